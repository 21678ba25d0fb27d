# SPDX-License-Identifier: Apache-2.0
"""What people write for SCRIPT_RUN: one text or a list of commands, and variables.

Commands and variables may name secrets, `{{ .encryptedSecrets.name }}`; other braces are theirs.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pipecd_sdk import Duration, PluginConfig, Report, StageConfig, field
from pipecd_sdk.constraints import AnyGiven, NotTogether


class ScriptRunConfig(PluginConfig):
    """The options of the plugin in the piped file."""

    kill_grace: Duration = Duration(seconds=10)
    """How long a cancelled script may take to end by itself before it is killed."""

    def check(self, report: Report) -> None:
        if self.kill_grace < Duration():
            report.fault("killGrace", message=f"must not be negative: {self.kill_grace}")


class ScriptConfig(StageConfig):
    """The options of SCRIPT_RUN. Each script has two spellings, and uses one of them."""

    moved: ClassVar = {"envs": "use env; envs belongs to CUSTOM_SYNC"}
    constraints: ClassVar = (
        NotTogether(
            key="runs",
            others=("run",),
            message="run and runs are the same setting",
            hint="use only run",
        ),
        NotTogether(
            key="runsOnRollback",
            others=("onRollback",),
            message="onRollback and runsOnRollback are the same setting",
            hint="use only onRollback",
        ),
        AnyGiven(
            key="run",
            among=("run", "runs"),
            message="missing",
            hint="give the commands of the script",
        ),
    )

    run: str = ""
    """The script."""
    runs: tuple[str, ...] = ()
    """The script as a list of commands; it stops at the first one that fails."""
    on_rollback: str = ""
    """What to run when the deployment is rolled back after this stage had started."""
    runs_on_rollback: tuple[str, ...] = ()
    """The same as a list of commands."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables of both scripts."""
    on_interrupted: Literal["fail", "rerun"] = "fail"
    """What to do when nobody knows how far a script came, because the machine was lost with it."""

    @property
    def commands(self) -> tuple[str, ...]:
        return (self.run,) if self.run.strip() else self.runs

    @property
    def rollback_commands(self) -> tuple[str, ...]:
        return (self.on_rollback,) if self.on_rollback.strip() else self.runs_on_rollback

    def check(self, report: Report) -> None:
        texts: list[tuple[tuple[str | int, ...], str]] = [
            (("run",), self.run),
            (("onRollback",), self.on_rollback),
        ]
        for key, commands in (("runs", self.runs), ("runsOnRollback", self.runs_on_rollback)):
            texts += [((key, index), text) for index, text in enumerate(commands)]
        texts += [(("env", name), text) for name, text in self.env.items()]
        for path, text in texts:
            check_text(report, path, text)
        check_variables(report, "env", self.env)


def check_variables(report: Report, key: str, variables: Mapping[str, str]) -> None:
    """Refuse names that no variable can have."""
    for name in variables:
        if not name or "=" in name or "\0" in name:
            report.fault(key, name, message=f"not the name of a variable: {name!r}")


def check_text(report: Report, path: tuple[str | int, ...], text: str) -> None:
    """Refuse what no shell can be given."""
    if "\0" in text:
        report.fault(*path, message="contains a null character")
