# SPDX-License-Identifier: Apache-2.0
"""Decodes plain values into structs, and reports all faults, not only the first.

Keys are matched whatever their case, unknown ones are reported, null and zero mean the default.
Used by the documents of this package and by callers that decode a part of them, such as plugins.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Literal, TypeVar, Union

import msgspec

from pipecd_model.close_matches import find_close_matches
from pipecd_model.config import path as paths
from pipecd_model.config.amounts import Percentage, Replicas
from pipecd_model.config.path import Path
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.shape import Field, Shape
from pipecd_model.config.shape import shape as shape_of
from pipecd_model.config.values import BadValueError, Duration
from pipecd_model.errors import add_hint

M = TypeVar("M", bound=ConfigModel)

_BROKEN: Any = object()  # stands for a value that was refused
_SECOND = 1_000_000_000  # nanoseconds
_NEVER_BLANK = frozenset({Duration, Percentage, Replicas})


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to say about the value at a path; becomes a fault once its line is known."""

    path: Path
    message: str
    hint: str = ""
    on_key: bool = False
    """Is it about the key rather than about what it holds?"""

    def __str__(self) -> str:
        path = f"{paths.format_path(self.path)}: " if self.path else ""
        return add_hint(f"{path}{self.message}", self.hint)


class Findings(msgspec.Struct):
    """What decoding found, in the order it was found."""

    faults: list[Finding] = msgspec.field(default_factory=list)
    warnings: list[Finding] = msgspec.field(default_factory=list)


def decode(
    cls: type[M], raw: Any, *, path: Path = (), strict: bool = False
) -> tuple[M | None, Findings]:
    """Read a plain value into a struct; None if there are faults. `strict` refuses unknown keys."""
    findings = Findings()
    value = _Decoder(findings, strict=strict).struct(cls, raw, path)
    return (None if findings.faults else value), findings


class _Decoder:
    def __init__(self, findings: Findings, *, strict: bool) -> None:
        self._findings = findings
        self._strict = strict

    def fault(self, path: Path, message: str, hint: str = "", *, on_key: bool = False) -> Any:
        finding = Finding(path=path, message=message, hint=hint, on_key=on_key)
        self._findings.faults.append(finding)
        return _BROKEN

    def warn(self, path: Path, message: str, hint: str = "", *, on_key: bool = True) -> None:
        finding = Finding(path=path, message=message, hint=hint, on_key=on_key)
        self._findings.warnings.append(finding)

    def struct(self, cls: type[ConfigModel], raw: Any, path: Path) -> Any:
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            return self.fault(
                path, f"expected a mapping, got {_kind(raw)}", _mapping_hint(cls, raw)
            )
        shape = shape_of(cls)
        report = _StructReport(self, path)
        given = report.given = self._match_keys(cls, shape, cls.prepare(raw, report), path)
        # Most settings of most files are not written: these are left to the struct itself.
        values = {
            each.name: self._field(cls, each, path, given, report)
            for each in shape.fields
            if each.required or each.key in given
        }
        instance = cls(**cls.finish(values))
        if cls.constraints:
            settings = {each.key: getattr(instance, each.name) for each in shape.fields}
            for constraint in cls.constraints:
                constraint.check(settings, report)
        instance.check(report)
        return instance

    def _match_keys(
        self, cls: type[ConfigModel], shape: Shape, raw: dict[str, Any], path: Path
    ) -> dict[str, tuple[str, Any]]:
        """Say which key of the file gives which setting: the setting's key to (name, value)."""
        given: dict[str, tuple[str, Any]] = {}
        for name, value in raw.items():
            key = shape.key(name)
            if key is None:
                self._unknown(cls, shape, name, path)
            elif key not in given:
                given[key] = (name, value)
                if name != key and name.lower() == key.lower():
                    self.warn((*path, name), f"elsewhere spelled {key!r}")
            elif given[key][1] != value:
                self.fault(
                    (*path, name),
                    f"{name} and {given[key][0]} are the same setting",
                    f"use only {key}",
                    on_key=True,
                )
        return given

    def _unknown(self, cls: type[ConfigModel], shape: Shape, name: str, path: Path) -> None:
        low = name.lower()
        hint = next((text for key, text in cls.moved.items() if key.lower() == low), "")
        if not hint and (near := find_close_matches(low, shape.known)):
            hint = f"did you mean {shape.known[near[0]]!r}?"
        if self._strict:
            self.fault((*path, name), "unknown key", hint, on_key=True)
        else:
            self.warn((*path, name), "unknown key, ignored", hint)

    def _field(
        self,
        cls: type[ConfigModel],
        each: Field,
        path: Path,
        given: Mapping[str, tuple[str, Any]],
        report: _StructReport,
    ) -> Any:
        name, raw = given.get(each.key, (each.key, None))
        path = (*path, name)
        kind = _variant(cls, given) if each.key == "config" and cls.variants else each.type
        # A key without a value counts as not given, except where that has bitten people: an amount.
        if kind is None or (raw is None and not (each.key in given and kind in _NEVER_BLANK)):
            if not each.required:
                return each.default()
            self.fault(path, "missing", on_key=True)
            report.broken_keys.add(each.key)
            return each.empty
        faults = len(self._findings.faults)
        value = self.value(kind, raw, path)
        if value is not _BROKEN and each.required and _is_zero(value):
            value = self.fault(path, "must not be empty")
        if len(self._findings.faults) > faults:
            report.broken_keys.add(each.key)
        if value is _BROKEN:
            return each.empty if each.required else each.default()
        if each.required or not _is_zero(value):
            return value
        default = each.default()
        # Where nothing means nothing, zero is a number like any other: a limit may be zero.
        return value if default is None and isinstance(value, int | float) else default

    def value(self, kind: Any, raw: Any, path: Path) -> Any:
        """Decodes a plain value as a type; returns `_BROKEN` when it was refused."""
        reader = _READERS.get(kind)
        if reader is not None:
            return reader(self, raw, path)
        origin = typing.get_origin(kind)
        if origin is Union or origin is types.UnionType:
            return self._union(kind, raw, path)
        if origin is Literal:
            return self._choice(typing.get_args(kind), raw, path)
        if origin is tuple:
            return self._list(typing.get_args(kind)[0], raw, path)
        if origin is dict:
            return self._map(typing.get_args(kind)[1], raw, path)
        if issubclass(kind, ConfigModel):
            return self.struct(kind, raw, path)
        if issubclass(kind, Enum):
            chosen = self._choice(tuple(member.value for member in kind), raw, path)
            return chosen if chosen is _BROKEN else kind(chosen)
        return self._own_grammar(kind, raw, path)

    def _union(self, kind: Any, raw: Any, path: Path) -> Any:
        """Decodes one of several types, chosen by whether the file has a list, a map or a text."""
        arms = [arm for arm in typing.get_args(kind) if arm is not type(None)]
        fitting = [arm for arm in arms if _form(arm) is _raw_form(raw)]
        for arm in fitting if len(fitting) > 1 else ():
            findings = Findings()
            value = _Decoder(findings, strict=self._strict).value(arm, raw, path)
            if not findings.faults:
                self._findings.warnings += findings.warnings
                return value
        return self.value((fitting or arms)[0], raw, path)

    def _own_grammar(self, kind: Any, raw: Any, path: Path) -> Any:
        try:
            value = kind.from_config(raw)
        except BadValueError as error:
            return self.fault(path, str(error), error.hint)
        if kind is Duration and isinstance(raw, int | float) and 0 < raw < _SECOND:
            message = f"a bare number counts nanoseconds: {raw}"
            self.warn(path, message, f"did you mean {raw}s?", on_key=False)
        return value

    def _choice(self, allowed: tuple[Any, ...], raw: Any, path: Path) -> Any:
        if raw in allowed:
            return raw
        names = [str(each) for each in allowed if each != ""]
        near = find_close_matches(str(raw).upper(), names, cutoff=0.5)
        near = near or find_close_matches(str(raw), names, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return self.fault(path, f"unknown value {raw!r}", f"{hint}one of {', '.join(names)}")

    def _list(self, kind: Any, raw: Any, path: Path) -> Any:
        if raw == {}:
            return ()  # published samples write an empty list so
        if not isinstance(raw, list):
            hint = 'start each item with "- "' if isinstance(raw, dict) else ""
            return self.fault(path, f"expected a list, got {_kind(raw)}", hint)
        items = tuple(
            self.fault((*path, index), "the item is empty", "remove it")
            if each is None
            else self.value(kind, each, (*path, index))
            for index, each in enumerate(raw)
        )
        # Rules see all items or none: positions in what they say must be those of the file.
        return _BROKEN if _BROKEN in items else items

    def _map(self, kind: Any, raw: Any, path: Path) -> Any:
        if not isinstance(raw, dict):
            return self.fault(path, f"expected a mapping, got {_kind(raw)}")
        entries = {
            key: "" if each is None and kind is str else self.value(kind, each, (*path, key))
            for key, each in raw.items()
        }
        return _BROKEN if _BROKEN in entries.values() else entries

    def text(self, raw: Any, path: Path) -> Any:
        if isinstance(raw, str):
            return raw
        hint = "" if isinstance(raw, dict | list) else "put it in quotes"
        return self.fault(path, f"expected a text, got {_kind(raw)}", hint)

    def boolean(self, raw: Any, path: Path) -> Any:
        if isinstance(raw, bool):
            return raw
        return self.fault(path, f"expected true or false, got {_kind(raw)}", "without quotes")

    def integer(self, raw: Any, path: Path) -> Any:
        number = self.number(raw, path)
        if number is not _BROKEN and number != int(number):
            return self.fault(path, f"expected a whole number, got {raw!r}")
        return number if number is _BROKEN else int(raw)

    def number(self, raw: Any, path: Path) -> Any:
        if isinstance(raw, int | float) and not isinstance(raw, bool):
            return raw
        hint = "without quotes" if isinstance(raw, str) else ""
        return self.fault(path, f"expected a number, got {_kind(raw)}", hint)

    def passthrough(self, raw: Any, path: Path) -> Any:
        """Returns a value unchanged: the program it belongs to, e.g. a plugin, decodes it."""
        return raw

    def any_map(self, raw: Any, path: Path) -> Any:
        """Returns a mapping unchanged: the program it belongs to, e.g. a plugin, decodes it."""
        if isinstance(raw, dict):
            return raw
        return self.fault(path, f"expected a mapping, got {_kind(raw)}")


_READERS: dict[Any, Callable[[_Decoder, Any, Path], Any]] = {
    str: _Decoder.text,
    bool: _Decoder.boolean,
    int: _Decoder.integer,
    float: _Decoder.number,
    dict[str, Any]: _Decoder.any_map,
    Any: _Decoder.passthrough,
}


class _StructReport:
    """What a struct's rules see: paths start at the struct; keys are spelled as the file does."""

    def __init__(self, decoder: _Decoder, path: Path) -> None:
        self._decoder = decoder
        self._path = path
        self.given: Mapping[str, tuple[str, Any]] = {}
        self.broken_keys: set[str] = set()

    def fault(self, *path: str | int, message: str, hint: str = "") -> None:
        if path:
            self.broken_keys.add(str(path[0]))
        self._decoder.fault(self._resolve_path(path), message, hint)

    def warn(self, *path: str | int, message: str, hint: str = "") -> None:
        self._decoder.warn(self._resolve_path(path), message, hint)

    def is_broken(self, key: str) -> bool:
        return key in self.broken_keys

    def _resolve_path(self, path: Path) -> Path:
        if not path:
            return self._path
        written, _ = self.given.get(str(path[0]), (path[0], None))
        return (*self._path, written, *path[1:])


def _variant(cls: type[ConfigModel], given: Mapping[str, tuple[str, Any]]) -> Any:
    default = next(each.default for each in shape_of(cls).fields if each.key == "type")
    return cls.variants.get(str(given["type"][1] if "type" in given else default()))


def _form(kind: Any) -> type:
    origin = typing.get_origin(kind)
    if origin in {tuple, dict}:
        return list if origin is tuple else dict
    return dict if isinstance(kind, type) and issubclass(kind, ConfigModel) else str


def _raw_form(raw: Any) -> type:
    return type(raw) if isinstance(raw, list | dict) else str


def _is_zero(value: Any) -> bool:
    return not isinstance(value, bool | ConfigModel) and not value


def _kind(raw: Any) -> str:
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, dict):
        return "a mapping"
    if isinstance(raw, list):
        return "a list"
    if isinstance(raw, str):
        return f"the text {raw!r}" if len(raw) <= 40 else "a text"
    return "nothing" if raw is None else f"the number {raw!r}"


def _mapping_hint(cls: type[ConfigModel], raw: Any) -> str:
    if isinstance(raw, str) and ":" in raw:
        return 'add a space after ":"'
    return f"with {', '.join(each.key for each in shape_of(cls).fields[:6])}"
