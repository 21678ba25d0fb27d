# SPDX-License-Identifier: Apache-2.0
"""Plain values to structs, with everything that is wrong and not only the first of it.

Keys are matched whatever their case, unknown ones are told, null and zero mean the default.
Used by the documents of this package and by whoever decodes a part of them, as a plugin does.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union

import msgspec

from pipecd_model.config.locate import Path
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.values import BadValueError, Duration

M = TypeVar("M", bound=ConfigModel)

BROKEN: Any = object()  # stands for a value that was refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to say about the value at a path; becomes a fault once its line is known."""

    path: Path
    message: str
    hint: str = ""
    on_key: bool = False


@dataclass(slots=True)
class Findings:
    """What decoding found, in the order it was found."""

    faults: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)


def decode(
    cls: type[M], raw: Any, *, path: Path = (), strict: bool = False
) -> tuple[M | None, Findings]:
    """Read a plain value into a struct; None if there are faults. `strict` refuses unknown keys."""
    findings = Findings()
    value = _Decoder(findings, strict=strict).struct(cls, raw, path)
    return (None if findings.faults or value is BROKEN else value), findings


class _Decoder:
    def __init__(self, findings: Findings, *, strict: bool) -> None:
        self._findings = findings
        self._strict = strict

    def fault(self, path: Path, message: str, hint: str = "", *, on_key: bool = False) -> Any:
        self._findings.faults.append(Finding(path=path, message=message, hint=hint, on_key=on_key))
        return BROKEN

    def warn(self, path: Path, message: str, hint: str = "", *, on_key: bool = True) -> None:
        self._findings.warnings.append(
            Finding(path=path, message=message, hint=hint, on_key=on_key)
        )

    def struct(self, cls: type[ConfigModel], raw: Any, path: Path) -> Any:
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            return self.fault(
                path, f"expected a mapping, got {_kind(raw)}", _mapping_hint(cls, raw)
            )
        shape = _shape(cls)
        report = _Report(self, path)
        raw = cls.prepare(raw, report)
        given = self._given(cls, shape, raw, path, report)
        values: dict[str, Any] = {}
        for each in shape.fields:
            key, value = given.get(each.key, (each.key, None))
            values[each.name] = self._field(cls, each, value, (*path, key), given, report)
        values = cls.finish(values)
        instance = cls(**values)
        instance.check(report)
        return instance

    def _given(
        self,
        cls: type[ConfigModel],
        shape: _Shape,
        raw: dict[str, Any],
        path: Path,
        report: _Report,
    ) -> dict[str, tuple[str, Any]]:
        """Say which key of the file gives which field: canonical key to (written key, value)."""
        given: dict[str, tuple[str, Any]] = {}
        for written, value in raw.items():
            canonical = shape.key(written)
            if canonical is None:
                self._unknown(cls, shape, written, path)
                continue
            if canonical in given:
                earlier, earlier_value = given[canonical]
                if earlier_value != value:
                    self.fault(
                        (*path, written),
                        f"{written} and {earlier} are the same setting",
                        f"use only {canonical}",
                        on_key=True,
                    )
                continue
            if written != canonical and written.lower() == canonical.lower():
                self.warn((*path, written), f"spelled {canonical!r} elsewhere")
            given[canonical] = (written, value)
            report.written[canonical] = written
        return given

    def _unknown(self, cls: type[ConfigModel], shape: _Shape, written: str, path: Path) -> None:
        if cls.open:
            return
        moved = {key.lower(): text for key, text in cls.moved.items()}
        near = get_close_matches(written.lower(), shape.folded, n=1)
        hint = moved.get(written.lower()) or (
            f"did you mean {shape.folded[near[0]]!r}?" if near else ""
        )
        message = "unknown key"
        if self._strict:
            self.fault((*path, written), message, hint, on_key=True)
        else:
            self.warn((*path, written), f"{message}, ignored", hint)

    def _field(
        self,
        cls: type[ConfigModel],
        each: _Field,
        raw: Any,
        path: Path,
        given: Mapping[str, tuple[str, Any]],
        report: _Report,
    ) -> Any:
        is_given = each.key in given
        if raw is None and not (is_given and each.type is Duration):
            if each.required:
                self.fault(path, "missing", on_key=True)
                report.broken_keys.add(each.key)
                return each.empty
            return each.default()
        kind = each.type
        if each.key == "config" and cls.variants:
            chosen = cls.variants.get(str(given.get("type", ("", ""))[1]))
            if chosen is None:
                return each.default()
            kind = chosen
        before = len(self._findings.faults)
        value = self.value(kind, raw, path)
        if len(self._findings.faults) > before:
            report.broken_keys.add(each.key)
        if value is BROKEN:
            return each.empty if each.required else each.default()
        if _is_zero(value):
            if not each.required:
                return each.default()
            report.broken_keys.add(each.key)
            self.fault(path, "must not be empty")
        return value

    def value(self, kind: Any, raw: Any, path: Path) -> Any:
        """Read a plain value as a type; BROKEN when it was refused."""
        reader = _READERS.get(kind)
        if reader is not None:
            return reader(self, raw, path)
        origin = typing.get_origin(kind)
        if origin is Union or origin is types.UnionType:
            # Only `X | None` is used: null was handled before.
            return self.value(
                next(a for a in typing.get_args(kind) if a is not type(None)), raw, path
            )
        if origin is Literal:
            return self._choice(typing.get_args(kind), raw, path)
        if origin in {tuple, list}:
            return self._list(typing.get_args(kind)[0], raw, path)
        if origin is dict:
            return self._map(typing.get_args(kind)[1], raw, path)
        if isinstance(kind, type) and issubclass(kind, ConfigModel):
            return self.struct(kind, raw, path)
        if isinstance(kind, type) and issubclass(kind, Enum):
            chosen = self._choice(tuple(member.value for member in kind), raw, path)
            return chosen if chosen is BROKEN else kind(chosen)
        return self._own_grammar(kind, raw, path)

    def _own_grammar(self, kind: Any, raw: Any, path: Path) -> Any:
        try:
            value = kind.from_config(raw)
        except BadValueError as error:
            return self.fault(path, str(error), error.hint)
        if kind is Duration and not isinstance(raw, str) and 0 < raw < 1_000_000_000:
            self.warn(
                path,
                f"a bare number counts nanoseconds: {raw}",
                f"did you mean {raw}s?",
                on_key=False,
            )
        return value

    def _choice(self, allowed: tuple[Any, ...], raw: Any, path: Path) -> Any:
        if raw in allowed:
            return raw
        near = get_close_matches(str(raw).upper(), [str(each) for each in allowed], n=1, cutoff=0.5)
        names = ", ".join(str(each) for each in allowed)
        hint = f"did you mean {near[0]!r}? one of {names}" if near else f"one of {names}"
        return self.fault(path, f"unknown value {raw!r}", hint)

    def _list(self, kind: Any, raw: Any, path: Path) -> Any:
        if raw == {}:
            return ()  # published samples write an empty list so
        if not isinstance(raw, list):
            hint = 'start each item with "- "' if isinstance(raw, dict) else ""
            return self.fault(path, f"expected a list, got {_kind(raw)}", hint)
        items = []
        for index, each in enumerate(raw):
            where = (*path, index)
            value = (
                self.fault(where, "the item is empty", "remove it")
                if each is None
                else self.value(kind, each, where)
            )
            if value is not BROKEN:
                items.append(value)
        return tuple(items)

    def _map(self, kind: Any, raw: Any, path: Path) -> Any:
        if not isinstance(raw, dict):
            return self.fault(path, f"expected a mapping, got {_kind(raw)}")
        entries = {}
        for key, each in raw.items():
            if each is None and kind is str:
                entries[key] = ""
                continue
            value = self.value(kind, each, (*path, key))
            if value is not BROKEN:
                entries[key] = value
        return entries

    def text(self, raw: Any, path: Path) -> Any:
        if isinstance(raw, str):
            return raw
        hint = "" if isinstance(raw, dict | list) else f"put it in quotes: {_quoted(raw)}"
        return self.fault(path, f"expected a text, got {_kind(raw)}", hint)

    def boolean(self, raw: Any, path: Path) -> Any:
        if isinstance(raw, bool):
            return raw
        return self.fault(path, f"expected true or false, got {_kind(raw)}", "without quotes")

    def integer(self, raw: Any, path: Path) -> Any:
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            hint = "without quotes" if isinstance(raw, str) else ""
            return self.fault(path, f"expected a whole number, got {_kind(raw)}", hint)
        if raw != int(raw):
            return self.fault(path, f"expected a whole number, got {raw!r}")
        return int(raw)

    def number(self, raw: Any, path: Path) -> Any:
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            hint = "without quotes" if isinstance(raw, str) else ""
            return self.fault(path, f"expected a number, got {_kind(raw)}", hint)
        return float(raw)

    def plain_map(self, raw: Any, path: Path) -> Any:
        """Read a mapping that is somebody else's: passed on as it is."""
        if not isinstance(raw, dict):
            return self.fault(path, f"expected a mapping, got {_kind(raw)}")
        return raw


_READERS: dict[Any, Callable[[_Decoder, Any, Path], Any]] = {
    str: _Decoder.text,
    bool: _Decoder.boolean,
    int: _Decoder.integer,
    float: _Decoder.number,
    dict[str, Any]: _Decoder.plain_map,
    Any: lambda _decoder, raw, _path: raw,
}


class _Report:
    """What a struct's rules see: paths start at the struct; keys are spelled as the file does."""

    def __init__(self, decoder: _Decoder, path: Path) -> None:
        self._decoder = decoder
        self._path = path
        self.written: dict[str, str] = {}
        self.broken_keys: set[str] = set()

    def fault(self, *path: str | int, message: str, hint: str = "") -> None:
        if path:
            self.broken_keys.add(str(path[0]))
        self._decoder.fault(self._at(path), message, hint)

    def warn(self, *path: str | int, message: str, hint: str = "") -> None:
        self._decoder.warn(self._at(path), message, hint)

    def broken(self, key: str) -> bool:
        return key in self.broken_keys

    def _at(self, path: Path) -> Path:
        if not path:
            return self._path
        return (*self._path, self.written.get(str(path[0]), path[0]), *path[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    key: str
    type: Any
    required: bool
    default: Callable[[], Any]
    empty: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    fields: tuple[_Field, ...]
    folded: Mapping[str, str]
    aliases: Mapping[str, str]

    def key(self, written: str) -> str | None:
        low = written.lower()
        return self.folded.get(low) or self.aliases.get(low)


@cache
def _shape(cls: type[ConfigModel]) -> _Shape:
    hints = typing.get_type_hints(cls)
    fields = []
    for each in msgspec.structs.fields(cls):
        if each.name in cls.derived:
            continue
        kind = hints[each.name]
        fields.append(
            _Field(
                name=each.name,
                key=each.encode_name,
                type=kind,
                required=each.required,
                default=_default(each),
                empty="" if kind is str else None,
            )
        )
    return _Shape(
        fields=tuple(fields),
        folded={each.key.lower(): each.key for each in fields},
        aliases={alias.lower(): key for alias, key in cls.aliases.items()},
    )


def _default(each: msgspec.structs.FieldInfo) -> Callable[[], Any]:
    if each.default_factory is not msgspec.NODEFAULT:
        factory: Callable[[], Any] = each.default_factory
        return factory
    value = each.default
    return lambda: value


def _is_zero(value: Any) -> bool:
    return not isinstance(value, bool | ConfigModel) and not value


def _kind(raw: Any) -> str:
    if raw is None:
        return "nothing"
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, dict):
        return "a mapping"
    if isinstance(raw, list):
        return "a list"
    if isinstance(raw, str):
        return f"the text {raw!r}" if len(raw) <= 40 else "a text"
    return f"the number {raw!r}"


def _quoted(raw: Any) -> str:
    text = str(raw).lower() if isinstance(raw, bool) else str(raw)
    return f'"{text}"'


def _mapping_hint(cls: type[ConfigModel], raw: Any) -> str:
    if isinstance(raw, str) and ":" in raw:
        return 'add a space after ":"'
    keys = ", ".join(each.key for each in _shape(cls).fields[:6])
    return f"with {keys}" if keys else ""
