# SPDX-License-Identifier: Apache-2.0
"""What people write for this plugin: of the piped file, the application file and the pipeline."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Literal

from pipecd_plugin_terraform.flags import find_flag_faults, read_flags_of_variable
from pipecd_sdk import (
    ApplicationConfig,
    Duration,
    PluginConfig,
    Report,
    StageConfig,
    TargetConfig,
    field,
)
from pipecd_sdk.constraints import InRange
from pipecd_sdk.repository import find_path_fault

AUTO_ROLLBACK_HINT: Final = "write spec.planner.autoRollback"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORKSPACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.~+-]{0,89}")
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?")


class TerraformPluginConfig(PluginConfig):
    """The options of the plugin."""

    constraints: ClassVar = (
        InRange(key="killGrace", minimum=1, message="must be 1s or longer: {value}"),
        InRange(key="driftInterval", minimum=1, message="must be 1s or longer: {value}"),
        InRange(key="atOnce", minimum=1, maximum=64, message="must be 1 to 64: {value}"),
    )

    program: Literal["terraform", "tofu"] = "terraform"
    """Which program plans and applies: `terraform`, or `tofu` for OpenTofu."""
    kill_grace: Duration = Duration(minutes=5)
    """How long an interrupted program may take to end by itself, and to release its lock, before
    it is killed."""
    drift_interval: Duration = Duration(minutes=2)
    """How long nothing is planned for drift while commit and state stay the same; doubled each
    time that nothing has changed, up to an hour."""
    at_once: int = 2
    """How many plans for drift and previews run at a time."""


class PreviewConfig(TargetConfig):
    """Plan previews of a deploy target: off until they are allowed here."""

    enabled: bool = False
    """Allow previews. A plan runs what a branch brings: data sources, provider programs."""
    envs: tuple[str, ...] = ()
    """`KEY=value`: the credentials of previews. They get none of the others."""
    env_file: str = ""
    """A file with such lines, read at each preview."""

    def check(self, report: Report) -> None:
        _check_pairs(report, "envs", self.envs, _NAME)
        _check_absolute(report, "env_file", [self.env_file])


class TerraformTarget(TargetConfig):
    """The options of a deploy target."""

    vars: tuple[str, ...] = ()
    """`name=value`: variables of all applications; those of an application come after them."""
    var_files: tuple[str, ...] = ()
    """Absolute paths of files with variables."""
    envs: tuple[str, ...] = ()
    """`KEY=value`: environment variables of all commands, e.g. credentials."""
    backend_config: tuple[str, ...] = ()
    """`key=value`: what the backend of a configuration leaves open, e.g. where its state is."""
    drift_detection_enabled: bool = True
    """Plan from time to time whether what is there is what git says."""
    plan_preview: PreviewConfig = field(default_factory=PreviewConfig)
    """Plan previews, which are off until they are allowed here."""

    def check(self, report: Report) -> None:
        _check_pairs(report, "vars", self.vars, _VARIABLE)
        _check_pairs(report, "backend_config", self.backend_config, _VARIABLE)
        _check_pairs(report, "envs", self.envs, _NAME)
        _check_absolute(report, "var_files", self.var_files)


class CommandWords(ApplicationConfig):
    """Words for the commands, in lists."""

    shared: tuple[str, ...] = ()
    """Of all."""
    init: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    apply: tuple[str, ...] = ()

    def list_all(self) -> list[str]:
        """Returns the words of all commands."""
        return [*self.shared, *self.init, *self.plan, *self.apply]

    def iter_sound(self, report: Report) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yields the lists that could be read, by their names."""
        for key in ("shared", "init", "plan", "apply"):
            if not report.is_broken(key):
                yield key, getattr(self, key)


class CommandFlags(CommandWords):
    """Flags of the commands."""

    def check(self, report: Report) -> None:
        for key, given in self.iter_sound(report):
            for index, fault in find_flag_faults(given):
                report.fault(key, index, message=fault.message, hint=fault.hint)


class CommandEnvs(CommandWords):
    """Environment variables of the commands, `KEY=value`."""

    def check(self, report: Report) -> None:
        for key, given in self.iter_sound(report):
            _check_pairs(report, key, given, _NAME)
            for index, each in enumerate(given):
                _check_flags_of_variable(report, key, index, *each.partition("=")[::2])


class TerraformInput(ApplicationConfig):
    """The same options once more: older files have them under `input`."""

    moved: ClassVar = {"autoRollback": AUTO_ROLLBACK_HINT}
    constraints: ClassVar = (
        InRange(key="lockTimeout", minimum=0, maximum=86_400, message="must be 0s to 24h: {value}"),
    )

    workspace: str = ""
    """The workspace; without it, the one named `default`."""
    create_workspace: bool = False
    """Make the workspace when it is not there."""
    terraform_version: str = ""
    """The version to install; without it, the program on PATH is used."""
    vars: tuple[str, ...] = ()
    """`name=value`: variables. A value may name a secret."""
    var_files: tuple[str, ...] = ()
    """Files with variables, from the application's folder, within the repository."""
    command_flags: CommandFlags = field(default_factory=CommandFlags)
    """Flags of the commands."""
    command_envs: CommandEnvs = field(default_factory=CommandEnvs)
    """Environment variables of the commands; a value may name a secret."""
    lock_timeout: Duration = Duration()
    """How long to wait for a lock of the state that somebody else holds."""

    def check(self, report: Report) -> None:
        _check_grammar(
            report,
            "workspace",
            None if report.is_broken("workspace") else self.workspace,
            _WORKSPACE,
            hint="letters, digits and _.~+-, not - first",
        )
        _check_grammar(
            report,
            "terraform_version",
            None if report.is_broken("terraform_version") else self.terraform_version,
            _VERSION,
            hint="e.g. 1.9.8",
        )
        self._check_workspaces(report)
        if not report.is_broken("vars"):
            _check_pairs(report, "vars", self.vars, _VARIABLE)
        for index, path in enumerate(() if report.is_broken("var_files") else self.var_files):
            if fault := find_path_fault(path):
                hint = "paths are read from the application's folder"
                report.fault("var_files", index, message=fault, hint=hint)

    def _check_workspaces(self, report: Report) -> None:
        if report.is_broken("workspace") or report.is_broken("command_envs") or not self.workspace:
            return
        if any(
            each.startswith("TF_WORKSPACE=") and each != f"TF_WORKSPACE={self.workspace}"
            for each in self.command_envs.list_all()
        ):
            report.fault(
                "command_envs",
                message=f"TF_WORKSPACE is another workspace than {self.workspace!r}",
                hint="write workspace alone",
            )


class TerraformOptions(TerraformInput):
    """The options in an application file, under `spec.plugins.terraform`, or under `input` there.

    Both places may be used, for different options.
    """

    quick_sync: dict[str, Any] = field(default_factory=dict)
    """Nothing; older files have it."""
    input: TerraformInput = field(default_factory=TerraformInput)
    """The same options, as older files have them."""

    @classmethod
    def prepare(cls, raw: dict[str, Any], report: Report) -> dict[str, Any]:
        """Returns the options with those of `input` among them; two values for one are a fault."""
        inner = {key: value for key, value in raw.items() if key.lower() == "input"}
        direct = {key: value for key, value in raw.items() if key.lower() != "input"}
        known = {key.lower(): key for key in direct}
        for name, section in inner.items():
            if section is None:
                continue
            if not isinstance(section, dict):
                report.fault(name, message="must be a mapping")
                continue
            for key, value in section.items():
                if key.lower() == "autorollback":
                    report.warn(name, key, message="has no effect here", hint=AUTO_ROLLBACK_HINT)
                    continue
                if key.lower() == "quicksync":
                    report.warn(name, key, message="has no effect here", hint="leave it out")
                    continue
                if key.lower() == "input":
                    report.fault(
                        name,
                        key,
                        message=f"cannot stand within {name}",
                        hint=f"write its options under {name} itself",
                    )
                    continue
                other = known.get(key.lower())
                if other is not None and direct[other] != value:
                    report.fault(
                        name,
                        key,
                        message=f"is also given outside of {name}, with another value",
                        hint="write it once",
                    )
                direct.setdefault(other or key, value)
        return direct


class PlanConfig(StageConfig):
    """The options of TERRAFORM_PLAN."""

    exit_on_no_changes: bool = False
    """End the deployment with success if there is nothing to do."""


class ApplyConfig(StageConfig):
    """The options of TERRAFORM_APPLY and TERRAFORM_SYNC: there are none."""


def _check_grammar(
    report: Report, key: str, value: str | None, grammar: re.Pattern[str], *, hint: str
) -> None:
    if value and not grammar.fullmatch(value):
        what = key.removeprefix("terraform_")
        report.fault(key, message=f"not a {what}: {value[:100]!r}", hint=hint)


def _check_pairs(report: Report, key: str, given: Sequence[str], grammar: re.Pattern[str]) -> None:
    """Refuses what is no `name=value`, and a name that is given twice. Shows no values."""
    if report.is_broken(key):
        return
    seen: set[str] = set()
    for index, each in enumerate(given):
        name, sign, value = each.partition("=")
        if not sign or not grammar.fullmatch(name) or "\0" in value:
            report.fault(key, index, message="is not name=value", hint="e.g. region=eu-west-1")
        elif name in seen:
            report.fault(key, index, message=f"{name!r} is given twice")
        seen.add(name)


def _check_flags_of_variable(report: Report, key: str, index: int, name: str, value: str) -> None:
    """Refuses in TF_CLI_ARGS what is refused as a flag."""
    try:
        faults = [fault for _, fault in find_flag_faults(read_flags_of_variable(name, value))]
    except ValueError:
        report.fault(key, index, message=f"{name}: a quote is never closed")
        return
    for fault in faults:
        report.fault(key, index, message=f"{name}: {fault.message}", hint=fault.hint)


def _check_absolute(report: Report, key: str, given: Sequence[str]) -> None:
    for each in () if report.is_broken(key) else given:
        if each and not posixpath.isabs(each):
            report.fault(key, message=f"must be an absolute path: {each!r}")
