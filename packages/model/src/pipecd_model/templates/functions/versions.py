# SPDX-License-Identifier: Apache-2.0
"""Versions and what they are compared with: `semverCompare ">=1.2 <2" "1.3.4"`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import total_ordering
from typing import Final

from pipecd_model.templates.faults import FunctionError
from pipecd_model.templates.functions.signature import Function, declare
from pipecd_model.templates.limits import TooMuchError

_LONGEST: Final = 256
_LARGEST: Final = (1 << 64) - 1

_TAIL: Final = r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
_VERSION: Final = re.compile(rf"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?{_TAIL}")
_PART: Final = r"[0-9xX*|]+"
_CONDITION: Final = (
    rf"(=||!=|>|<|>=|=>|<=|=<|~|~>|\^)\s*(v?({_PART})(\.{_PART})?(\.{_PART})?{_TAIL})"
)
_ONE: Final = re.compile(rf"\s*{_CONDITION}\s*")
_RANGE: Final = re.compile(
    rf"\s*(v?{_PART}(?:\.{_PART}){{0,2}}{_TAIL})\s+-\s+(v?{_PART}(?:\.{_PART}){{0,2}}{_TAIL})\s*"
)


@total_ordering
@dataclass(frozen=True, slots=True)
class _SemanticVersion:
    major: int
    minor: int
    patch: int
    before: tuple[str, ...] = ()
    """The parts of what stands behind a dash: a version before this one."""

    def __lt__(self, other: _SemanticVersion) -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[object, ...]:
        parts = tuple(
            (0, int(each), "") if each.isdecimal() else (1, 0, each) for each in self.before
        )
        return (self.major, self.minor, self.patch, not self.before, parts)


def _parse(text: str) -> _SemanticVersion:
    found = _VERSION.fullmatch(text)
    if found is None:
        raise FunctionError("this is no version")
    major, minor, patch = (int(each or 0) for each in found.groups()[:3])
    if max(major, minor, patch) > _LARGEST:
        raise FunctionError("this is no version")
    before = tuple(found[4].split(".")) if found[4] else ()
    if any(each.isdecimal() and len(each) > 1 and each[0] == "0" for each in before):
        raise FunctionError("this is no version")
    return _SemanticVersion(major, minor, patch, before)


@dataclass(frozen=True, slots=True)
class _Condition:
    """One comparison; a version in it may leave its last parts open."""

    operator: str
    version: _SemanticVersion
    is_open: bool
    minor_open: bool
    patch_open: bool

    def holds(self, given: _SemanticVersion) -> bool:
        strict = self.operator != "!=" or self.is_open
        if strict and given.before and not self.version.before:
            return False
        return _RULES[self.operator](self, given)


def _is_open(part: str | None) -> bool:
    return part is None or part.lstrip(".") in {"", "x", "X", "*"}


def _condition(found: re.Match[str]) -> _Condition:
    operator, text, major, minor, patch, before = found.groups()
    tail = f"-{before}" if before else ""
    if _is_open(major):
        return _Condition(operator, _parse(f"0.0.0{tail}"), True, False, False)
    if _is_open(minor):
        return _Condition(operator, _parse(f"{major}.0.0{tail}"), True, True, False)
    if _is_open(patch):
        return _Condition(operator, _parse(f"{major}{minor}.0{tail}"), True, False, True)
    return _Condition(operator, _parse(text), False, False, False)


def _tilde(condition: _Condition, given: _SemanticVersion) -> bool:
    wanted = condition.version
    if given < wanted:
        return False
    everything = (wanted.major, wanted.minor, wanted.patch) == (0, 0, 0)
    if everything and not condition.minor_open and not condition.patch_open:
        return True
    return given.major == wanted.major and (given.minor == wanted.minor or condition.minor_open)


def _caret(condition: _Condition, given: _SemanticVersion) -> bool:
    wanted = condition.version
    if given < wanted:
        return False
    if wanted.major > 0 or condition.minor_open:
        return given.major == wanted.major
    if given.major > 0:
        return False
    if wanted.minor > 0 or condition.patch_open:
        return given.minor == wanted.minor
    return given.minor == 0 and given.patch == wanted.patch


def _equal(condition: _Condition, given: _SemanticVersion) -> bool:
    return _tilde(condition, given) if condition.is_open else given == condition.version


def _not_equal(condition: _Condition, given: _SemanticVersion) -> bool:
    wanted = condition.version
    if not condition.is_open or given.major != wanted.major:
        return given != wanted
    if condition.minor_open:
        return False
    if given.minor != wanted.minor:
        return True
    if condition.patch_open:
        return bool(given.before or wanted.before) and given.before != wanted.before
    return given != wanted


def _greater(condition: _Condition, given: _SemanticVersion) -> bool:
    wanted = condition.version
    if not condition.minor_open and not condition.patch_open:
        return given > wanted
    if given.major != wanted.major:
        return given.major > wanted.major
    return condition.patch_open and given.minor > wanted.minor


def _less_or_equal(condition: _Condition, given: _SemanticVersion) -> bool:
    wanted = condition.version
    if not condition.is_open:
        return given <= wanted
    if given.major > wanted.major:
        return False
    return not (
        given.major == wanted.major and given.minor > wanted.minor and not condition.minor_open
    )


_RULES: Final[Mapping[str, Callable[[_Condition, _SemanticVersion], bool]]] = {
    "": _equal,
    "=": _equal,
    "!=": _not_equal,
    ">": _greater,
    "<": lambda condition, given: given < condition.version,
    ">=": lambda condition, given: given >= condition.version,
    "=>": lambda condition, given: given >= condition.version,
    "<=": _less_or_equal,
    "=<": _less_or_equal,
    "~": _tilde,
    "~>": _tilde,
    "^": _caret,
}


def _conditions(text: str) -> list[_Condition]:
    """Read conditions that all must hold."""
    text = _RANGE.sub(r">=\1 <=\3", text)
    conditions: list[_Condition] = []
    position = 0
    while position < len(text) or not conditions:
        found = _ONE.match(text, position)
        if found is None:
            raise FunctionError("this is no condition for versions")
        conditions.append(_condition(found))
        position = found.end()
        if position < len(text) and text[position] == ",":
            position += 1
    return conditions


def _compare(condition: str, version: str) -> bool:
    ways = [_conditions(each) for each in condition.split("||")]
    given = _parse(version)
    return any(all(each.holds(given) for each in way) for way in ways)


def _grow(*texts: str) -> int:
    if any(len(text) > _LONGEST for text in texts):
        raise TooMuchError(f"a version may have {_LONGEST} characters")
    return 0


VERSIONS: Final[Mapping[str, Function]] = {
    "semverCompare": declare("ss", _compare, cost=_grow),
}
