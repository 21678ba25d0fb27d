# SPDX-License-Identifier: Apache-2.0
"""Recurrence rules of RFC 5545, as far as they choose days. Pure.

Whatever somebody writes, a rule is looked up in a time that is bounded: only the days that are
asked for are looked at, each once. The parts that choose among the days of a period (BYSETPOS), or
by numbers that hardly anybody reads (BYWEEKNO, BYYEARDAY), are refused, and so is what is finer
than a day. As with the libraries of the field, the first day counts only if it matches.
"""

from __future__ import annotations

import calendar
import functools
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from pipecd_model.errors import ConfigError

LONGEST_RULE: Final = 500
MOST_INTERVAL: Final = 1000
MOST_COUNT: Final = 10_000
MOST_COUNTED_DAYS: Final = 366 * 50
"""How many days a rule with COUNT is looked for from its first one on."""

FREQUENCIES: Final = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
PARTS: Final = frozenset(
    {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", "BYMONTHDAY", "BYMONTH"}
)

_DAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_WEEKDAY: Final = re.compile(r"([+-]?[1-9]\d?)?(MO|TU|WE|TH|FR|SA|SU)")
_HINT: Final = "as in FREQ=WEEKLY;BYDAY=MO,TU; the time of day is that of the start"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrenceRule:
    """The days of a recurrence."""

    frequency: str
    interval: int = 1
    count: int = 0
    """How many days there are in all; 0 for no such limit."""
    until: date | None = None
    week_start: int = 0
    weekdays: tuple[tuple[int, int], ...] = ()
    """Each with its place in the month or year, counted from the end if negative; 0 for all."""
    month_days: tuple[int, ...] = ()
    """Counted from the end of the month if negative."""
    months: tuple[int, ...] = ()

    def list_days(self, first: date, lowest: date, highest: date) -> Iterator[date]:
        """Yields the days between two days, both included; none before `first`."""
        if self.until is not None:
            highest = min(highest, self.until)
        if self.count:
            for day in _list_counted(self, first):
                if lowest <= day <= highest:
                    yield day
            return
        day = max(first, lowest)
        while day <= highest:
            if self.matches(first, day):
                yield day
            day += timedelta(days=1)

    def matches(self, first: date, day: date) -> bool:
        """Returns whether a day is one of the recurrence that begins at `first`."""
        return (
            self._is_in_turn(first, day)
            and (not self.months or day.month in self.months)
            and self._is_day(first, day)
        )

    def _is_in_turn(self, first: date, day: date) -> bool:
        match self.frequency:
            case "DAILY":
                passed = (day - first).days
            case "WEEKLY":
                passed = (self._week(day) - self._week(first)).days // 7
            case "MONTHLY":
                passed = (day.year - first.year) * 12 + day.month - first.month
            case _:
                passed = day.year - first.year
        return passed % self.interval == 0

    def _week(self, day: date) -> date:
        return day - timedelta(days=(day.weekday() - self.week_start) % 7)

    def _is_day(self, first: date, day: date) -> bool:
        if self.weekdays or self.month_days:
            return self._has_weekday(day) and self._has_month_day(day)
        match self.frequency:
            case "DAILY":
                return True
            case "WEEKLY":
                return day.weekday() == first.weekday()
            case "MONTHLY":
                return day.day == first.day
            case _:
                return day.day == first.day and (bool(self.months) or day.month == first.month)

    def _has_month_day(self, day: date) -> bool:
        length = calendar.monthrange(day.year, day.month)[1]
        return not self.month_days or bool({day.day, day.day - length - 1} & {*self.month_days})

    def _has_weekday(self, day: date) -> bool:
        if not self.weekdays:
            return True
        if self.frequency == "YEARLY" and not self.months:
            place = day.timetuple().tm_yday
            length = 366 if calendar.isleap(day.year) else 365
        else:
            place = day.day
            length = calendar.monthrange(day.year, day.month)[1]
        places = {0, (place - 1) // 7 + 1, -((length - place) // 7 + 1)}
        return any(day.weekday() == weekday and n in places for n, weekday in self.weekdays)


@functools.lru_cache(maxsize=64)
def _list_counted(rule: RecurrenceRule, first: date) -> tuple[date, ...]:
    """Returns all days of a rule that says how many there are."""
    found: list[date] = []
    for number in range(MOST_COUNTED_DAYS):
        day = first + timedelta(days=number)
        if rule.matches(first, day):
            found.append(day)
            if len(found) == rule.count:
                break
    return tuple(found)


@functools.lru_cache(maxsize=256)
def parse_rule(text: str) -> RecurrenceRule | None:
    """Returns a rule from its text, None for an empty one. Raises ConfigError."""
    if not text:
        return None
    if len(text) > LONGEST_RULE:
        raise _fault(f"is longer than {LONGEST_RULE} characters")
    parts: dict[str, str] = {}
    for part in text.strip().rstrip(";").upper().split(";"):
        name, _, value = part.partition("=")
        if name not in PARTS:
            raise _fault(f"{name[:40]!r} is not known here, or finer than a day")
        if name in parts:
            raise _fault(f"{name} is there twice")
        parts[name] = value
    frequency = parts.get("FREQ", "")
    if frequency not in FREQUENCIES:
        raise _fault(f"FREQ is none of {', '.join(FREQUENCIES)}")
    if "COUNT" in parts and "UNTIL" in parts:
        raise _fault("COUNT and UNTIL exclude each other")
    weekdays = _parse_weekdays(parts.get("BYDAY", ""), frequency)
    return RecurrenceRule(
        frequency=frequency,
        interval=_parse_number("INTERVAL", parts.get("INTERVAL", "1"), 1, MOST_INTERVAL),
        count=_parse_number("COUNT", parts["COUNT"], 1, MOST_COUNT) if "COUNT" in parts else 0,
        until=_parse_until(parts["UNTIL"]) if "UNTIL" in parts else None,
        week_start=_parse_weekdays(parts.get("WKST", "MO"), "DAILY")[0][1],
        weekdays=weekdays,
        month_days=_parse_numbers("BYMONTHDAY", parts.get("BYMONTHDAY", ""), -31, 31),
        months=_parse_numbers("BYMONTH", parts.get("BYMONTH", ""), 1, 12),
    )


def _fault(message: str) -> ConfigError:
    return ConfigError(f"invalid window: rule: {message}", hint=_HINT)


def _parse_number(name: str, text: str, least: int, most: int) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,6}", text) and least <= int(text) <= most and int(text):
        return int(text)
    raise _fault(f"{name}: {text[:40]!r} is not between {least} and {most}")


def _parse_numbers(name: str, text: str, least: int, most: int) -> tuple[int, ...]:
    return tuple(_parse_number(name, each, least, most) for each in text.split(",") if text)


def _parse_weekdays(text: str, frequency: str) -> tuple[tuple[int, int], ...]:
    found = []
    for each in text.split(",") if text else ():
        parsed = _WEEKDAY.fullmatch(each)
        if parsed is None:
            raise _fault(f"{each[:40]!r} is no day; they are {', '.join(_DAYS)}")
        if parsed[1] and frequency not in {"MONTHLY", "YEARLY"}:
            raise _fault(f"{each!r}: only MONTHLY and YEARLY know which one of a day")
        found.append((int(parsed[1] or 0), _DAYS.index(parsed[2])))
    return tuple(found)


def _parse_until(text: str) -> date:
    """Returns the last day; the time of day of an UNTIL does not count."""
    with suppress(ValueError):
        return datetime.strptime(text[:8], "%Y%m%d").date()  # noqa: DTZ007 - a day
    raise _fault(f"UNTIL: {text[:40]!r} is no day, as in 20261231")
