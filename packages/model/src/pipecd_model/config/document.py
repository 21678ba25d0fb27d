# SPDX-License-Identifier: Apache-2.0
"""Files that people write, loaded: text in, a struct or all of its faults out.

Every document has the same envelope (`apiVersion`, `kind`, `metadata`, `spec`); what is under
`spec` is the struct of its kind. Reading the file itself is the caller's part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import yaml

from pipecd_model.close_matches import find_close_matches
from pipecd_model.config import dialect, syntax, v0
from pipecd_model.config.analysis import AnalysisTemplateConfig
from pipecd_model.config.application import ApplicationConfig
from pipecd_model.config.controlplane import ControlPlaneConfig
from pipecd_model.config.decoder import Finding, Findings, decode
from pipecd_model.config.events import EventWatcherDocument
from pipecd_model.config.fault import ConfigFaultsError, Fault, Loaded, sort_faults
from pipecd_model.config.locate import Positions
from pipecd_model.config.path import Path, format_path
from pipecd_model.config.piped import PipedConfig
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.unserved import find_unserved

API_VERSION = "pipecd.dev/v1beta1"
LARGEST_FILE = 4 << 20
"""Bytes of a file that is still read: far more than anybody writes."""

APPLICATION_KINDS = ("Application", *v0.KINDS)
KINDS: dict[str, type[ConfigModel]] = {
    "Application": ApplicationConfig,
    "Piped": PipedConfig,
    "ControlPlane": ControlPlaneConfig,
    "EventWatcher": EventWatcherDocument,
    "AnalysisTemplate": AnalysisTemplateConfig,
}
"""Today's kinds, each with what is under its `spec`."""

M = TypeVar("M", bound=ConfigModel)


def load_piped(text: str | bytes, *, file: str, strict: bool = False) -> Loaded[PipedConfig]:
    """Load the document `Piped`; raises `ConfigFaultsError` with everything that is wrong."""
    return _load(PipedConfig, "Piped", text, file, strict=strict)


def load_application(
    text: str | bytes,
    *,
    file: str,
    strict: bool = False,
    names: Mapping[str, str] | None = None,
) -> Loaded[ApplicationConfig]:
    """Load an application file of any kind; raises `ConfigFaultsError` with all that is wrong.

    An older kind stands for a plugin; `names` has those that the piped calls otherwise, as
    `known_plugins.find_configured_names` finds them.
    """
    document = Document(text, file, strict=strict)
    document.expect(APPLICATION_KINDS)
    return load_application_document(document, names=names)


def application_for_plugins(
    text: bytes, *, file: str, names: Mapping[str, str] | None = None
) -> bytes:
    """Give an application file as plugins read it: an older kind in today's shape, as JSON."""
    document = Document(text, file)
    if document.kind not in v0.KINDS:
        return text
    labels = v0.labels(document.kind) | document.labels
    today = {
        "apiVersion": API_VERSION,
        "kind": "Application",
        "metadata": {"labels": labels},
        "spec": document.application_spec(names=names),
    }
    return json.dumps(today, ensure_ascii=False).encode()


def load_control_plane(text: str | bytes, *, file: str) -> Loaded[ControlPlaneConfig]:
    """Loads the document `ControlPlane`; here unknown keys are faults too.

    Raises `ConfigFaultsError` with everything that is wrong.
    """
    return _load(ControlPlaneConfig, "ControlPlane", text, file, strict=True)


def load_event_watcher(
    text: str | bytes, *, file: str, strict: bool = False
) -> Loaded[EventWatcherDocument]:
    """Loads the document `EventWatcher`. Raises `ConfigFaultsError` with everything wrong."""
    return _load(EventWatcherDocument, "EventWatcher", text, file, strict=strict)


def load_analysis_template(
    text: str | bytes, *, file: str, strict: bool = False
) -> Loaded[AnalysisTemplateConfig]:
    """Loads the document `AnalysisTemplate`. Raises `ConfigFaultsError` with everything wrong."""
    return _load(AnalysisTemplateConfig, "AnalysisTemplate", text, file, strict=strict)


def load_first_analysis_template(
    files: Iterable[tuple[str, str | bytes]],
) -> Loaded[AnalysisTemplateConfig] | None:
    """Loads the first document `AnalysisTemplate` among files, each with its name; None without.

    Raises `ConfigFaultsError` for it, and for a file before it that cannot be read at all.
    """
    for name, text in files:
        if Document(text, name).kind == "AnalysisTemplate":
            return load_analysis_template(text, file=name)
    return None


def _load(cls: type[M], kind: str, text: str | bytes, file: str, *, strict: bool) -> Loaded[M]:
    document = Document(text, file, strict=strict)
    document.expect((kind,))
    return document.load(cls, document.spec)


def load_application_document(
    document: Document, *, names: Mapping[str, str] | None = None
) -> Loaded[ApplicationConfig]:
    """Decode the body of an application of any kind."""
    loaded = document.load(ApplicationConfig, document.application_spec(names=names))
    labels = v0.labels(document.kind) | document.labels | loaded.config.labels
    config = msgspec.structs.replace(loaded.config, kind=document.kind, labels=labels)
    return Loaded(config=config, warnings=loaded.warnings)


class Document:
    """One file on its way from text to struct. Broken syntax raises `ConfigFaultsError` at once."""

    def __init__(self, text: str | bytes, file: str, *, strict: bool = False) -> None:
        self._file = file
        self._strict = strict
        self._text = self._decode_text(text)
        self.findings = Findings()
        """What was found so far; who knows more about the body adds to it before `load`."""
        self._faults: list[Fault] = []
        self._warnings: list[Fault] = []
        self._raw = self._parse()
        self.kind = ""
        self.spec: Any = None
        self.labels: dict[str, str] = {}
        self._mapped: v0.Mapped | None = None
        self._open_envelope()

    def _decode_text(self, text: str | bytes) -> str:
        if len(text) > LARGEST_FILE:
            message = f"the file is larger than {LARGEST_FILE >> 20} MiB"
            raise self._refusal(message, "is it the right file?")
        data = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
        try:
            return data.decode().removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            message = f"not UTF-8 at byte {error.start}"
            raise self._refusal(message, "save it as UTF-8", line=line) from None

    def _parse(self) -> dict[str, Any]:
        try:
            parsed = dialect.parse(self._text)
        except yaml.YAMLError as error:
            raise ConfigFaultsError(
                [self._fault_of_problem(syntax.explain(error, self._text))]
            ) from None
        self._faults += [self._fault_of_problem(problem) for problem in parsed.faults]
        for problem in parsed.warnings:
            refused = problem.is_loss and self._strict
            (self._faults if refused else self._warnings).append(self._fault_of_problem(problem))
        if parsed.value is None:
            raise self._refusal("the document is empty", "expected apiVersion, kind and spec")
        if not isinstance(parsed.value, dict):
            kind = "a list" if isinstance(parsed.value, list) else "a single value"
            hint = 'is there a space after each ":"?' if kind == "a single value" else ""
            raise self._refusal(f"the document must be a mapping, got {kind}", hint)
        return parsed.value

    def _open_envelope(self) -> None:
        known = ("apiVersion", "kind", "metadata", "spec")
        folded = {key.lower(): key for key in known}
        envelope: dict[str, Any] = {}
        for key, value in self._raw.items():
            if key.lower() in folded:
                envelope[folded[key.lower()]] = value
                continue
            near = find_close_matches(key.lower(), folded)
            hint = f"did you mean {folded[near[0]]!r}?" if near else ""
            finding = Finding(path=(key,), message="unknown key", hint=hint, on_key=True)
            findings = self.findings.faults if self._strict else self.findings.warnings
            findings.append(finding)
        version = envelope.get("apiVersion")
        if version is None:
            self._fault(("apiVersion",), "missing", f"write apiVersion: {API_VERSION}")
        elif version != API_VERSION:
            self._fault(("apiVersion",), f"unknown version {version!r}", f"use {API_VERSION}")
        self.kind = envelope.get("kind") or ""
        self.spec = envelope.get("spec")
        self.labels = _metadata_kind(envelope.get("metadata"))

    def expect(self, kinds: tuple[str, ...]) -> None:
        """Refuse a document of another kind."""
        if self.kind in kinds:
            return
        if not self.kind:
            self._fault(("kind",), "missing", f"one of {', '.join(kinds)}")
            return
        near = find_close_matches(str(self.kind), kinds)
        hint = f"did you mean {near[0]!r}?" if near else f"expected {kinds[0]}"
        self._fault(("kind",), f"this is not of kind {kinds[0]} but {self.kind!r}", hint)

    def application_spec(self, *, names: Mapping[str, str] | None = None) -> Any:
        """Give the body in today's shape, whichever kind it is written in."""
        spec = {} if self.spec is None else self.spec
        if self.kind not in v0.KINDS or not isinstance(spec, dict):
            return self.spec
        if self._mapped is None:
            self._mapped = v0.to_application(self.kind, spec, names=names)
            self.findings.faults += self._mapped.findings.faults
            self.findings.warnings += self._mapped.findings.warnings
        return self._mapped.spec

    def load(self, cls: type[M], spec: Any) -> Loaded[M]:
        """Decode the body, then report everything that was found on the way."""
        config, found = decode(cls, spec, path=("spec",), strict=self._strict)
        idle = [] if config is None else find_unserved(config)
        findings = Findings(
            faults=self.findings.faults + found.faults,
            warnings=self.findings.warnings + found.warnings + idle,
        )
        if findings.faults or findings.warnings:
            places = Positions(self._text)
            self._faults += [self._locate(finding, places) for finding in findings.faults]
            self._warnings += [self._locate(finding, places) for finding in findings.warnings]
        if self._faults or config is None:
            raise ConfigFaultsError(self._faults, warnings=self._warnings)
        return Loaded(config=config, warnings=sort_faults(self._warnings))

    def _fault(self, path: Path, message: str, hint: str) -> None:
        self.findings.faults.append(Finding(path=path, message=message, hint=hint))

    def _refusal(self, message: str, hint: str, *, line: int = 1) -> ConfigFaultsError:
        fault = Fault(file=self._file, line=line, column=1, message=message, hint=hint)
        return ConfigFaultsError([fault])

    def _fault_of_problem(self, problem: dialect.YamlProblem) -> Fault:
        return Fault(
            file=self._file,
            line=problem.line,
            column=problem.column,
            message=problem.message,
            hint=problem.hint,
        )

    def _locate(self, finding: Finding, places: Positions) -> Fault:
        at = places.key(finding.path) if finding.on_key else places.value(finding.path)
        return Fault(
            file=self._file,
            line=at[0],
            column=at[1],
            path=format_path(finding.path),
            message=finding.message,
            hint=finding.hint,
        )


def _metadata_kind(metadata: Any) -> dict[str, str]:
    """Take the application's kind as the plugin document writes it; the rest is free text."""
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    kind = labels.get("kind") if isinstance(labels, dict) else None
    return {"kind": kind} if isinstance(kind, str) and kind else {}
