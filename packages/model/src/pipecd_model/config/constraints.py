# SPDX-License-Identifier: Apache-2.0
"""Constraints on the values of a struct, as data: checked by the decoder, and part of its schema.

What a struct's `check` says in Python is known only to a program that runs it. A constraint is also
written into the JSON Schema, as `x-constraints`, so that a program that has only the schema refuses
the same values with the same messages. Keys are spelled as files spell them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final, Protocol

import msgspec

from pipecd_model.config.amounts import Replicas

_NAMED: Final = re.compile(r"\{(\w+)\}")


class FaultReport(Protocol):
    """Where a constraint reports what it refuses."""

    def fault(self, *path: str | int, message: str, hint: str = "") -> None:
        """Reports a fault of the value at the path."""

    def is_broken(self, key: str) -> bool:
        """Returns whether a value under this key was refused already."""


class NoSuchConstraintError(ValueError):
    """A schema names a constraint that this version does not know."""


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that all constraints have. `{value}` in a message stands for the refused value."""

    kind: ClassVar[str] = ""

    key: str = ""
    """The setting that is refused; empty: the whole struct."""
    message: str
    hint: str = ""
    unless: str = ""
    """A setting: where it is given, the constraint does not hold."""

    def check(self, values: Mapping[str, Any], report: FaultReport) -> None:
        """Report what is wrong; `values` are the decoded settings by their keys."""
        if self.unless and is_given(values.get(self.unless)):
            return
        found = self._refuse(values, report)
        if found is not None:
            path = (found["at"],) if found.get("at") else ()
            message, hint = _fill(self.message, found), _fill(self.hint, found)
            report.fault(*path, message=message, hint=hint)

    def to_json(self) -> dict[str, Any]:
        """Return its form in a schema."""
        given = msgspec.structs.asdict(self)
        given = {key: value for key, value in given.items() if value not in (None, "")}
        return {"kind": self.kind, **given}

    def _refuse(self, values: Mapping[str, Any], report: FaultReport) -> dict[str, Any] | None:
        """Return what the message may name, with the key in `at`; None if nothing is wrong."""
        raise NotImplementedError


class InRange(Constraint, frozen=True, kw_only=True):
    """A number, a duration (in seconds) or an amount lies within bounds, both included.

    Zero means the default, as everywhere, and is not asked about.
    """

    kind = "inRange"

    minimum: float | None = None
    maximum: float | None = None

    def _refuse(self, values: Mapping[str, Any], report: FaultReport) -> dict[str, Any] | None:
        value = values.get(self.key)
        if not value or report.is_broken(self.key):
            return None
        number = _number(value)
        too_low = self.minimum is not None and number < self.minimum
        too_high = self.maximum is not None and number > self.maximum
        return {"at": self.key, "value": value} if too_low or too_high else None


class NotTogether(Constraint, frozen=True, kw_only=True):
    """A setting is not given together with any of some others."""

    kind = "notTogether"

    others: Sequence[str]

    def _refuse(self, values: Mapping[str, Any], report: FaultReport) -> dict[str, Any] | None:
        others = [key for key in self.others if is_given(values.get(key))]
        if not others or not is_given(values.get(self.key)):
            return None
        return {"at": self.key, "value": values[self.key]}


class AnyGiven(Constraint, frozen=True, kw_only=True):
    """At least one of some settings is given; `section` says within which setting they stand.

    `when` names settings that must have a value each for the constraint to hold.
    """

    kind = "anyGiven"

    among: Sequence[str]
    section: str = ""
    when: Mapping[str, Any] | None = None

    def _refuse(self, values: Mapping[str, Any], report: FaultReport) -> dict[str, Any] | None:
        if any(values.get(key) != value for key, value in (self.when or {}).items()):
            return None
        if any(report.is_broken(key) for key in ((self.section,) if self.section else self.among)):
            return None
        inner = values if not self.section else _settings(values.get(self.section))
        found = [inner.get(key) for key in self.among]
        # In a section of its own a zero is a number that somebody wrote: a limit may be zero.
        if any(is_given(each) or (self.section and _is_number(each)) for each in found):
            return None
        return {"at": self.key}


class AtMostCount(Constraint, frozen=True, kw_only=True):
    """A number is not larger than the count of different items of a list, if that has any.

    The message may name `{count}`.
    """

    kind = "atMostCount"

    of: str

    def _refuse(self, values: Mapping[str, Any], report: FaultReport) -> dict[str, Any] | None:
        value, items = values.get(self.key), values.get(self.of)
        if value is None or not items or report.is_broken(self.key) or report.is_broken(self.of):
            return None
        count = len(set(items))
        return {"at": self.key, "value": value, "count": count} if value > count else None


class AddsUp(Constraint, frozen=True, kw_only=True):
    """Some numbers add up to a total: never to more, and exactly to it where `key` is given.

    The last number that is given is refused; the message may name `{sum}`.
    """

    kind = "addsUp"

    keys: Sequence[str]
    total: int

    def _refuse(self, values: Mapping[str, Any], report: FaultReport) -> dict[str, Any] | None:
        given = [key for key in self.keys if values.get(key)]
        if not given or any(report.is_broken(key) for key in self.keys):
            return None
        found = sum(_number(values[key]) for key in given)
        if found == self.total or (found < self.total and self.key not in given):
            return None
        return {"at": given[-1], "sum": int(found)}


_KINDS: Final[Mapping[str, type[Constraint]]] = {
    each.kind: each for each in (InRange, NotTogether, AnyGiven, AtMostCount, AddsUp)
}


def parse_constraint(raw: Mapping[str, Any]) -> Constraint:
    """Read a constraint of a schema; raises NoSuchConstraintError."""
    cls = _KINDS.get(str(raw.get("kind")))
    names = set(cls.__struct_fields__) if cls is not None else set()
    given = {key: value for key, value in raw.items() if key != "kind"}
    if cls is None or not given.keys() <= names:
        raise NoSuchConstraintError(f"unknown constraint: {dict(raw)!r}")
    try:
        return msgspec.convert(given, cls)
    except msgspec.ValidationError as error:
        raise NoSuchConstraintError(str(error)) from None


def _fill(text: str, found: Mapping[str, Any]) -> str:
    """Returns a sentence with what it names in braces; a schema's text is no format string."""
    return _NAMED.sub(lambda match: str(found.get(match[1], match[0])), text)


def is_given(value: Any) -> bool:
    """Does a setting say anything? Zero, blank text and a list of nothing else do not."""
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, list | tuple):
        return any(is_given(each) for each in value)
    return bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return float(value.number if isinstance(value, Replicas) else value)


def _settings(section: Any) -> Mapping[str, Any]:
    """Return the settings of a decoded section by their keys."""
    if section is None:
        return {}
    names = zip(section.__struct_encode_fields__, section.__struct_fields__, strict=True)
    return {key: getattr(section, name) for key, name in names}
