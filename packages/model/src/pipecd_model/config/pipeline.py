# SPDX-License-Identifier: Apache-2.0
"""The pipeline of an application file: its stages in order, their options left to the plugins."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from pipecd_model import paths
from pipecd_model.config.schema import ConfigModel, Report
from pipecd_model.config.values import Duration

SCRIPT_RUN = "SCRIPT_RUN"

# The script-run document writes these on the stage itself. Each line is one setting: what stands
# under `with` wins over what stands on the stage, whatever its spelling.
_SCRIPT_SETTINGS = (("run", "runs"), ("onRollback", "runsOnRollback"), ("env",))


class SkipOnConfig(ConfigModel):
    """When a stage is passed over."""

    commit_message_prefixes: tuple[str, ...] = ()
    """Any of them at the start of the commit's message."""
    paths: tuple[str, ...] = ()
    """All changed files match."""

    def check(self, report: Report) -> None:
        for index, pattern in enumerate(self.paths):
            try:
                paths.check(pattern)
            except paths.BadPatternError as error:
                report.fault("paths", index, message=str(error))


class StageConfig(ConfigModel):
    """One stage of a pipeline."""

    derived: ClassVar = frozenset({"index"})

    name: str
    id: str = ""
    desc: str = ""
    timeout: Duration = Duration(hours=6)
    """How long the stage may take."""
    with_: dict[str, Any] = msgspec.field(name="with", default_factory=dict)
    """The plugin's own options, passed on unread."""
    skip_on: SkipOnConfig = msgspec.field(default_factory=SkipOnConfig)
    plugin: str | None = None
    """Which plugin runs it, when several offer a stage of this name."""
    index: int = 0
    """Its place in the pipeline, from 0."""

    @classmethod
    def prepare(cls, raw: dict[str, Any], report: Report) -> dict[str, Any]:
        return _fold_script_settings(raw, report)

    def check(self, report: Report) -> None:
        if self.timeout <= Duration():
            report.fault("timeout", message=f"must be positive: {self.timeout}")


class PipelineConfig(ConfigModel):
    """The stages of a deployment, in order."""

    stages: tuple[StageConfig, ...] = ()

    @classmethod
    def finish(cls, values: dict[str, Any]) -> dict[str, Any]:
        stages = [
            msgspec.structs.replace(stage, index=index)
            for index, stage in enumerate(values["stages"])
        ]
        return {**values, "stages": tuple(stages)}


def _fold_script_settings(raw: dict[str, Any], report: Report) -> dict[str, Any]:
    by_fold = {key.lower(): key for key in raw}
    if raw.get(by_fold.get("name", "")) != SCRIPT_RUN:
        return raw
    with_key = by_fold.get("with", "with")
    options = raw.get(with_key) or {}
    if not isinstance(options, dict):
        return raw  # wrong anyway, and said so when it is decoded
    under_with = {key.lower() for key in options}
    rest = dict(raw)
    folded = dict(options)
    for spellings in _SCRIPT_SETTINGS:
        taken = any(spelling.lower() in under_with for spelling in spellings)
        for spelling in spellings:
            key = by_fold.get(spelling.lower())
            if key is None:
                continue
            value = rest.pop(key)
            if taken:
                report.warn(key, message="ignored, with has it too", hint="keep the one under with")
            elif value is not None:
                folded[spelling] = value
    return {**rest, with_key: folded}
