# SPDX-License-Identifier: Apache-2.0
"""YAML text to plain values, in the dialect that existing files are written in.

The dialect is YAML 1.1 as Go reads it: `yes`, `on` and `y` are booleans, `1e3` is a number,
`12:30` and `2024-01-02` are texts, and every key becomes a text. What comes out can be written as
JSON. Unlike the common loaders this one builds from parser events without recursion: the files come
from repositories, and ten thousand nested brackets must not end the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

if not yaml.__with_libyaml__:  # pragma: no cover - our pins always bring it
    raise ImportError("PyYAML was built without libyaml; reinstall it from a wheel")

DEEPEST = 100  # levels of nesting; a hundred is far beyond what a person writes
LARGEST = 100_000  # values after aliases are written out: a few lines can stand for billions

_TAG = "tag:yaml.org,2002:"
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOLEAN = {
    form: value
    for value, words in ((True, ("y", "yes", "on", "true")), (False, ("n", "no", "off", "false")))
    for word in words
    for form in (word, word.title(), word.upper())
}
_INTEGER = re.compile(
    r"[-+]?(?:0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|0[0-7_]+|[1-9][0-9_]*|0)", re.ASCII
)
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NUMBER_START = frozenset("+-.0123456789")
_LONGEST_NUMBER = 400  # digits; Python refuses to read integers that are much longer


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlProblem:
    """Something wrong or odd in the text itself, with its place (counted from 1)."""

    line: int
    column: int
    message: str
    hint: str = ""
    is_loss: bool = False
    """Is something in the file not read at all? Then who checks files refuses it."""


@dataclass(slots=True, kw_only=True)
class Parsed:
    """The first document of a text."""

    value: Any = None
    faults: list[YamlProblem] = field(default_factory=list)
    warnings: list[YamlProblem] = field(default_factory=list)


def parse(text: str) -> Parsed:
    """Read the first document. Broken syntax raises `yaml.YAMLError`; the rest is collected."""
    return _Builder(iter_events(text)).build()


def iter_events(text: str) -> Iterator[Any]:
    """Yields the parser's events of all documents; raises `yaml.YAMLError`.

    It stops at what is nested too deep: the parser looks at all open brackets for each new one, and
    a hundred thousand of them would take it minutes.
    """
    depth = 0
    # Without `yaml.parse`, which asks twice for each event.
    events: Iterator[Any] = iter(yaml.CSafeLoader(text).get_event, None)
    for event in events:
        kind = type(event)
        if kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            depth += 1
            if depth > DEEPEST:
                raise yaml.MarkedYAMLError(
                    problem=f"nested more than {DEEPEST} levels deep",
                    problem_mark=event.start_mark,
                )
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            depth -= 1
        yield event


class _Map:
    __slots__ = ("anchor", "key", "lines", "merges", "size", "value")

    def __init__(self, anchor: str | None) -> None:
        self.value: dict[str, Any] = {}
        self.anchor = anchor
        self.key: str | None = None
        self.lines: dict[str, int] = {}
        self.merges: list[Any] | None = None
        self.size = 1


class _List:
    __slots__ = ("anchor", "size", "value")

    def __init__(self, anchor: str | None) -> None:
        self.value: list[Any] = []
        self.anchor = anchor
        self.size = 1


_MERGE = "<<"


class _Builder:
    """Builds one document from parser events, keeping the open maps and lists on a stack."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._parsed = Parsed()
        self._stack: list[_Map | _List] = []
        self._anchors: dict[str, tuple[Any, int]] = {}

    def build(self) -> Parsed:
        for event in self._events:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent:
                self._open(event, _Map(event.anchor))
            elif kind is yaml.SequenceStartEvent:
                self._open(event, _List(event.anchor))
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._close(event)
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentEndEvent:
                self._look_for_another_document()
                break
        return self._parsed

    def _scalar(self, event: Any) -> None:
        top = self._stack[-1] if self._stack else None
        if type(top) is _Map and top.key is None:
            if event.anchor:
                self._anchors[event.anchor] = (event.value, 1)
            self._key(top, event)
            return
        value = self._resolve(event)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._add(value, 1, event)

    def _resolve(self, event: Any) -> Any:
        text: str = event.value
        tag: str | None = event.tag
        if tag is None or tag == "!":
            # Quoted texts and blocks are texts; only plain words may mean something else.
            return self._plain(text, event) if event.implicit[0] else text
        short = tag.removeprefix(_TAG)
        if short == "str":
            return text
        if short in {"int", "float", "bool", "null"}:
            return self._plain(text, event)
        self._fault(event, f"the tag {_format_tag(tag)} is not supported", "remove it")
        return text

    def _plain(self, text: str, event: Any) -> Any:
        if text in _NULL:
            return None
        if text in _BOOLEAN:
            return _BOOLEAN[text]
        if text[0] not in _NUMBER_START:
            return text
        if _NO_NUMBER.fullmatch(text):
            self._fault(event, f"{text} is not a number", "put it in quotes if the text is meant")
            return 0
        if len(text) > _LONGEST_NUMBER:
            return text
        if _INTEGER.fullmatch(text):
            return _integer(text)
        if _FLOAT.fullmatch(text):
            number = float(text.replace("_", ""))
            if number in {float("inf"), float("-inf")}:
                self._fault(event, f"the number {text} is out of range")
                return 0
            return number
        return text

    def _key(self, top: _Map, event: Any) -> None:
        if event.value == _MERGE and event.implicit[0] and event.tag is None:
            top.key = _MERGE
            if top.merges is None:
                top.merges = []
            return
        value = self._resolve(event)
        if value is None:
            self._fault(event, "a key is empty", "write a name before the colon")
        if isinstance(value, bool):
            key = "true" if value else "false"
            self._warn(
                event,
                f"the key {event.value!r} is read as {key!r}",
                "put it in quotes if the text is meant",
            )
        elif isinstance(value, int | float):
            key = f"{value:g}" if isinstance(value, float) else str(value)
        else:
            key = event.value
        line = event.start_mark.line + 1
        if key in top.lines:
            self._fault(
                event,
                f"the key {key!r} is given twice, first in line {top.lines[key]}",
                "keep one of them",
            )
        top.lines[key] = line
        top.key = key

    def _open(self, event: Any, container: _Map | _List) -> None:
        top = self._stack[-1] if self._stack else None
        if type(top) is _Map and top.key is None:
            raise yaml.MarkedYAMLError(
                problem="a key must be a text", problem_mark=event.start_mark
            )
        if event.tag is not None and event.tag not in {"!", f"{_TAG}map", f"{_TAG}seq"}:
            self._fault(event, f"the tag {_format_tag(event.tag)} is not supported", "remove it")
        self._stack.append(container)

    def _close(self, event: Any) -> None:
        container = self._stack.pop()
        if type(container) is _Map and container.merges is not None:
            self._merge(container, event)
        if container.anchor:
            self._anchors[container.anchor] = (container.value, container.size)
        self._add(container.value, container.size, event)

    def _merge(self, container: _Map, event: Any) -> None:
        """What the map says itself wins over what it merges; of those, the first wins."""
        merged: dict[str, Any] = {}
        for source in container.merges or ():
            for each in source if isinstance(source, list) else [source]:
                if not isinstance(each, dict):
                    self._fault(event, "<< takes a mapping or a list of mappings")
                    continue
                for key, value in each.items():
                    merged.setdefault(key, value)
        for key, value in merged.items():
            container.value.setdefault(key, value)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            inside = any(each.anchor == event.anchor for each in self._stack)
            raise yaml.MarkedYAMLError(
                problem=f"the alias *{event.anchor} is inside what it stands for"
                if inside
                else f"the alias *{event.anchor} is not defined",
                problem_mark=event.start_mark,
            )
        value, size = self._anchors[event.anchor]
        top = self._stack[-1] if self._stack else None
        if type(top) is _Map and top.key is None:
            if isinstance(value, str):
                top.key = value
                return
            raise yaml.MarkedYAMLError(
                problem="a key must be a text", problem_mark=event.start_mark
            )
        self._add(value, size, event)

    def _add(self, value: Any, size: int, event: Any) -> None:
        if not self._stack:
            self._parsed.value = value
            return
        top = self._stack[-1]
        top.size += size
        if top.size > LARGEST:
            raise yaml.MarkedYAMLError(
                problem=f"more than {LARGEST} values once aliases are written out",
                problem_mark=event.start_mark,
            )
        if isinstance(top, _List):
            top.value.append(value)
            return
        if top.key == _MERGE and top.merges is not None:
            top.merges.append(value)
        else:
            top.value[top.key or ""] = value
        top.key = None

    def _look_for_another_document(self) -> None:
        try:
            event = next(self._events)
            if not isinstance(event, yaml.DocumentStartEvent):
                return
            content = next(self._events)
        except (StopIteration, yaml.YAMLError):
            return  # what is past the first document does not count, broken or not
        if isinstance(content, yaml.ScalarEvent) and content.value == "":
            return
        message = "only the first document of a file is read"
        problem = _problem(event, message, "give this one its own file")
        self._parsed.warnings.append(replace(problem, is_loss=True))

    def _fault(self, event: Any, message: str, hint: str = "") -> None:
        self._parsed.faults.append(_problem(event, message, hint))

    def _warn(self, event: Any, message: str, hint: str = "") -> None:
        self._parsed.warnings.append(_problem(event, message, hint))


def _problem(event: Any, message: str, hint: str) -> YamlProblem:
    mark = event.start_mark
    return YamlProblem(line=mark.line + 1, column=mark.column + 1, message=message, hint=hint)


def _format_tag(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag


def _integer(text: str) -> int:
    digits = text.replace("_", "").lower()
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    for prefix, base in (("0b", 2), ("0o", 8), ("0x", 16)):
        if digits.startswith(prefix):
            return sign * int(digits[2:] or "0", base)
    return sign * int(digits, 8 if digits.startswith("0") and len(digits) > 1 else 10)
