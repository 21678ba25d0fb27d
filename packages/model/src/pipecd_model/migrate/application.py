# SPDX-License-Identifier: Apache-2.0
"""An application file of an older kind, rewritten as `kind: Application`."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from pipecd_model.config import v0
from pipecd_model.config.application import ApplicationConfig
from pipecd_model.config.document import Document, load_application
from pipecd_model.config.fault import ConfigFaultsError, Fault, sort_faults
from pipecd_model.config.path import Path
from pipecd_model.config.schema import find_value
from pipecd_model.migrate.rewritten import Rewritten, not_the_same, refusal
from pipecd_model.migrate.splice import Splice

_SPEC: Path = ("spec",)


def migrate_application(text: str, *, file: str) -> Rewritten:
    """Rewrite a file; raises `ConfigFaultsError` if it is wrong or cannot be rewritten."""
    before = load_application(text, file=file)
    document = Document(text, file)
    if document.kind not in v0.KINDS:
        hint = "it is written as files are written today"
        raise refusal(file, f"nothing to migrate: the kind is {document.kind}", hint)
    try:
        migration = _Migration(text, document.kind, document.spec or {}, file)
        migration.run()
        after = load_application(migration.text, file=file)
    except (ConfigFaultsError, yaml.YAMLError, StopIteration, AssertionError):
        raise not_the_same(file) from None
    if _comparable(before.config, migration.redirected) != _comparable(
        after.config, migration.redirected
    ):
        raise not_the_same(file)
    hazards = sort_faults((*before.warnings, *migration.hazards))
    return Rewritten(text=migration.text, hazards=hazards)


def _comparable(config: ApplicationConfig, redirected: bool) -> ApplicationConfig:
    """Leave out what has to differ."""
    same = msgspec.structs.replace(config, kind="Application")
    return msgspec.structs.replace(same, event_watcher=()) if redirected else same


class _Migration:
    def __init__(self, text: str, kind: str, spec: dict[str, Any], file: str) -> None:
        self._splice = Splice(text)
        self._kind = kind
        self._plugin = v0.PLUGIN[kind]
        self._spec = spec
        self._file = file
        self.hazards: list[Fault] = []
        self.redirected = False
        """Does an event change this file, at a place that moved?"""

    @property
    def text(self) -> str:
        return self._splice.text

    def run(self) -> None:
        namespace = v0.k8s_namespace(self._kind, self._spec)
        self._redirect_events()
        self._move_stage_settings()
        self._move_rollback_switch()
        self._keep_defaults()
        self._move_sections()
        if namespace is not None:
            arguments: Path = (*_SPEC, "plugins", "analysis", "appCustomArgs")
            if not self._splice.has((*arguments, "k8sNamespace")):
                self._splice.put(arguments, f"k8sNamespace: {_quote(namespace)}\n")
        self._splice.replace(("kind",), "Application")
        self._write_kind_label()

    def _move_rollback_switch(self) -> None:
        old: Path = (*_SPEC, "input", "autoRollback")
        new: Path = (*_SPEC, "planner", "autoRollback")
        switch = v0.auto_rollback(self._kind, self._spec)
        if self._splice.has(old):
            piece = self._splice.cut(old)
            if switch is not None and not self._splice.has(new):
                self._splice.put(new[:-1], piece)
        elif switch is not None and not self._splice.has(new):
            self._splice.put(new[:-1], f"autoRollback: {str(switch).lower()}\n")

    def _keep_defaults(self) -> None:
        platform_input = find_value(self._spec, "input") or {}
        if isinstance(platform_input, dict) and v0.is_standalone_task(self._kind, platform_input):
            self._splice.put((*_SPEC, "input"), "runStandaloneTask: true\n")
            self._tell("runStandaloneTask is written out: its default is false today")

    def _move_stage_settings(self) -> None:
        stages: Path = (*_SPEC, "pipeline", "stages")
        pipeline = find_value(self._spec, "pipeline") or {}
        given = find_value(pipeline, "stages") or ()
        for index, stage in enumerate(given):
            at: Path = (*stages, index)
            for key in v0.STAGE_KEYS:
                if self._splice.has((*at, "with", key)):
                    piece = self._splice.cut((*at, "with", key))
                    if not self._splice.has((*at, key)):
                        self._splice.put(at, piece)
            name = str(find_value(stage, "name"))
            for key in v0.percent_options(name):
                number = v0.plain_number(self._splice.value((*at, "with", key)))
                if number is not None:
                    self._splice.replace((*at, "with", key), str(number))
            if name == "WAIT_APPROVAL" and not self._splice.has((*at, "with", "approvers")):
                message = "WAIT_APPROVAL without approvers: other makers' plugins refuse it"
                self._tell(f"stage {index + 1}: {message}", "name the approvers")

    def _move_sections(self) -> None:
        section: Path = (*_SPEC, "plugins", self._plugin)
        for key in v0.section_keys(self._kind):
            if not self._splice.has((*_SPEC, key)):
                continue
            if self._splice.has((*section, key)):
                self._splice.cut((*_SPEC, key))  # what the section says itself wins
            elif key == "input" and self._kind == "TerraformApp":
                pieces = self._splice.inner((*_SPEC, key))
                self._splice.cut((*_SPEC, key))
                for piece in pieces:
                    self._splice.put(section, piece)
            else:
                self._splice.put(section, self._splice.cut((*_SPEC, key)))
        if not self._splice.has(section):
            self._splice.put(section[:-1], f"{self._plugin}: {{}}\n")

    def _write_kind_label(self) -> None:
        kind = self._plugin.upper()
        if not self._splice.has(("metadata",)):
            self._splice.put_after(("kind",), f"metadata:\n  labels:\n    kind: {kind}\n")
        elif not self._splice.has(("metadata", "labels", "kind")):
            self._splice.put(("metadata", "labels"), f"kind: {kind}\n")

    def _redirect_events(self) -> None:
        """An event that changes this file must find its setting where it is now."""
        watched = find_value(self._spec, "eventWatcher") or ()
        name = self._file.rpartition("/")[2]
        moved = {key.lower() for key in v0.section_keys(self._kind)}
        for index, event in enumerate(watched):
            at: Path = (*_SPEC, "eventWatcher", index, "handler", "config", "replacements")
            replacements = (event.get("handler") or {}).get("config", {}).get("replacements") or ()
            for place, replacement in enumerate(replacements):
                parts = str(replacement.get("yamlField", "")).split(".")
                if replacement.get("file", "").removeprefix("./") != name or len(parts) < 3:
                    continue
                if parts[:2] == ["$", "spec"] and parts[2].lower() in moved:
                    flat = self._kind == "TerraformApp" and parts[2] == "input"
                    rest = parts[3:] if flat else parts[2:]
                    field = ".".join(["$.spec.plugins", self._plugin, *rest])
                    self._splice.replace((*at, place, "yamlField"), _quote(field))
                    self._tell(f"an event that changes this file now names {field}")
                    self.redirected = True

    def _tell(self, message: str, hint: str = "") -> None:
        self.hazards.append(Fault(file=self._file, message=message, hint=hint))


def _quote(text: str) -> str:
    """Write a text so that it is one, whatever it looks like."""
    written: str = yaml.safe_dump(text, default_style=None, width=10_000).splitlines()[0]
    return written
