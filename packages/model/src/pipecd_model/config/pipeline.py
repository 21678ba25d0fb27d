# SPDX-License-Identifier: Apache-2.0
"""The pipeline of an application file: its stages in order, their options left to the plugins."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from pipecd_model.config import rules
from pipecd_model.config.schema import ConfigModel, Report, find_key, find_value
from pipecd_model.config.values import Duration
from pipecd_model.known_plugins import is_planned_automatically

SCRIPT_RUN = "SCRIPT_RUN"

# The script-run document writes these on the stage itself. Each line is one setting: what stands
# under `with` wins over what stands on the stage, whatever its spelling.
_SCRIPT_SETTINGS: tuple[tuple[str, ...], ...] = (
    ("run", "runs"),
    ("onRollback", "runsOnRollback"),
    ("env",),
    ("onInterrupted",),
)


class SkipOnConfig(ConfigModel):
    """When a stage is passed over."""

    commit_message_prefixes: tuple[str, ...] = ()
    """Any of them at the start of the commit's message."""
    paths: tuple[str, ...] = ()
    """All changed files match."""

    def check(self, report: Report) -> None:
        rules.path_patterns(report, "paths", self.paths)


class StageConfig(ConfigModel):
    """One stage of a pipeline."""

    elsewhere: ClassVar = {name: f"with.{name}" for names in _SCRIPT_SETTINGS for name in names}
    derived: ClassVar = frozenset({"index"})

    name: str
    """What is done, e.g. `WAIT`; a plugin must offer it."""
    id: str = ""
    """Kept for older files; not used."""
    desc: str = ""
    """Shown beside the stage."""
    timeout: Duration = Duration(hours=6)
    """How long the stage may take."""
    with_: dict[str, Any] = msgspec.field(name="with", default_factory=dict)
    """The plugin's own options, passed on unread."""
    skip_on: SkipOnConfig = msgspec.field(default_factory=SkipOnConfig)
    on_failure: Literal["rollback", "wait"] | None = None
    """What happens when the stage fails; the default is what the application says."""
    plugin: str | None = None
    """Which plugin runs it, when several offer a stage of this name."""
    index: int = 0
    """Its place in the pipeline, from 0."""

    @classmethod
    def prepare(cls, raw: dict[str, Any], report: Report) -> dict[str, Any]:
        return fold_script_settings(raw, report)

    def check(self, report: Report) -> None:
        rules.positive(report, "timeout", self.timeout)
        if is_planned_automatically(self.name):
            report.fault("name", message=f"{self.name} is added by itself", hint="remove the stage")


class PipelineConfig(ConfigModel):
    """The stages of a deployment, in order."""

    stages: tuple[StageConfig, ...] = ()

    @classmethod
    def finish(cls, values: dict[str, Any]) -> dict[str, Any]:
        stages = [
            msgspec.structs.replace(stage, index=index)
            for index, stage in enumerate(values.get("stages", ()))
        ]
        return {**values, "stages": tuple(stages)}


def fold_script_settings(raw: dict[str, Any], report: Report | None = None) -> dict[str, Any]:
    """Bring what a script's stage says on itself under `with`, where it is read."""
    if find_value(raw, "name") != SCRIPT_RUN:
        return raw
    with_key = find_key(raw, "with") or "with"
    options = raw.get(with_key) or {}
    if not isinstance(options, dict):
        return raw  # wrong anyway, and said so when it is decoded
    rest = dict(raw)
    folded = dict(options)
    for names in _SCRIPT_SETTINGS:
        under_with = any(find_key(options, name) for name in names)
        for name in names:
            key = find_key(rest, name)
            if key is None:
                continue
            value = rest.pop(key)
            if under_with:
                if report is not None:
                    report.warn(
                        key, message="ignored, with has it too", hint="keep the one under with"
                    )
            elif value is not None:
                folded[name] = value
    return {**rest, with_key: _as_read(folded)}


def _as_read(options: dict[str, Any]) -> dict[str, Any]:
    """A text stands under `run` and a list under `runs`, whichever of them was written."""
    read = dict(options)
    for text, commands in _SCRIPT_SETTINGS[:2]:
        given = [key for key in (find_key(read, text), find_key(read, commands)) if key]
        if len(given) == 1 and isinstance(read[given[0]], str | list):
            value = read.pop(given[0])
            read[text if isinstance(value, str) else commands] = value
    return read
