# SPDX-License-Identifier: Apache-2.0
"""CUSTOM_SYNC of older pipelines: a script that deploys. To go back, the one before runs again."""

from typing import Any, ClassVar, Final

from pipecd_plugin_scriptrun.config import ScriptConfig, check_text, check_variables
from pipecd_sdk import Report, Source, StageConfig, StageFailedError, field

CUSTOM_SYNC: Final = "CUSTOM_SYNC"
CUSTOM_SYNC_ROLLBACK: Final = "CUSTOM_SYNC_ROLLBACK"


class CustomSyncConfig(StageConfig):
    """The options of CUSTOM_SYNC."""

    moved: ClassVar = {"env": "use envs; env belongs to SCRIPT_RUN"}

    run: str
    """The script."""
    envs: dict[str, str] = field(default_factory=dict)
    """Its variables."""

    def check(self, report: Report) -> None:
        if self.run and not self.run.strip():
            report.fault("run", message="missing", hint="give the commands of the script")
        check_variables(report, "envs", self.envs)
        for path, text in ((("run",), self.run), *((("envs", n), t) for n, t in self.envs.items())):
            check_text(report, path, text)

    def script(self) -> ScriptConfig:
        """Returns the same options as those of a SCRIPT_RUN."""
        return ScriptConfig(run=self.run, env=self.envs)


def script_before(source: Source | None) -> ScriptConfig:
    """Returns the script of the running commit. Raises StageFailedError when there is none."""
    if source is None:
        raise StageFailedError(
            "there is nothing to go back to", hint="this was the application's first deployment"
        )
    from pipecd_sdk.kit import yaml  # noqa: PLC0415 - only a rollback needs it

    stages = _inner(_inner(_inner(yaml.load(source.config), "spec"), "pipeline"), "stages")
    found = [
        stage.get("with")
        for stage in (stages if isinstance(stages, list) else ())
        if isinstance(stage, dict) and stage.get("name") == CUSTOM_SYNC
    ]
    options = found[0] if len(found) == 1 and isinstance(found[0], dict) else {}
    run, envs = options.get("run"), options.get("envs") or {}
    if not isinstance(run, str) or not run.strip() or not isinstance(envs, dict):
        raise StageFailedError(
            f"the commit that ran before has no {CUSTOM_SYNC} to go back with",
            hint="bring back what ran before by hand, or deploy a commit that does",
        )
    return ScriptConfig(run=run, env={str(name): str(value) for name, value in envs.items()})


def _inner(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
