# SPDX-License-Identifier: Apache-2.0
"""Windows: recurring times in which deployments may begin, or may not. Pure: no I/O, no clock.

A window recurs by a rule of RFC 5545 in the local time of its zone. It begins and ends by the clock
on the wall there: one of 24 hours that recurs daily has no gap when the clocks change, and an hour
that is left out on that day is left out of the window, too. Deny wins; where
windows that allow apply to an application, it may begin only within one of them.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pipecd_model.errors import ConfigError
from pipecd_model.recurrence import parse_rule
from pipecd_wire.pipecd.control.control_pb2 import Window

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

LONGEST: Final = timedelta(days=366)
"""What one occurrence of a window lasts at most."""

_HORIZON_DAYS: Final = (2, 40, 400)
"""How far an end of a denial is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One time of a window, in UTC; `end` does not belong to it."""

    window: Window
    start: datetime
    end: datetime

    def covers(self, at: datetime) -> bool:
        return self.start <= at < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """Why a deployment may not begin now."""

    sentence: str
    until: datetime | None
    """When one may; None when that is not within a year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time in which deployments of an application may begin, or may not."""

    start: datetime
    end: datetime
    reason: str
    """Why they may not; empty when they may."""


def check_window(window: Window) -> None:
    """Raises ConfigError, with what is wrong, for a window that cannot be used."""
    zone = _zone(window)
    start = _start(window)
    duration = window.duration.ToTimedelta()
    if not timedelta(minutes=1) <= duration <= LONGEST:
        raise ConfigError(
            f"invalid window: duration: {duration} is not between a minute and {LONGEST.days} days"
        )
    if window.application_id and window.labels:
        raise ConfigError("invalid window: it is for an application or for labels, not for both")
    if window.effect not in {Window.ALLOW, Window.DENY}:
        raise ConfigError("invalid window: effect: it allows or it denies")
    rule = parse_rule(window.rule)
    within = start.date() + timedelta(days=1500)
    if rule is not None and not any(rule.list_days(start.date(), start.date(), within)):
        raise ConfigError(
            "invalid window: rule: it never occurs", hint=f"within four years of {start} {zone}"
        )


def applies(window: Window, application_id: str, labels: Mapping[str, str]) -> bool:
    """Returns whether a window is about an application."""
    if window.application_id:
        return window.application_id == application_id
    return all(labels.get(key) == value for key, value in window.labels.items())


def list_occurrences(window: Window, start: datetime, end: datetime) -> Iterator[Occurrence]:
    """Yields the times of a window that touch a span of time, in their order."""
    zone, first = _zone(window), _start(window)
    duration = window.duration.ToTimedelta()
    slack = timedelta(days=1)  # zones differ by no more
    lowest = start.astimezone(zone).replace(tzinfo=None) - duration - slack
    highest = end.astimezone(zone).replace(tzinfo=None) + slack
    rule = parse_rule(window.rule)
    if rule is None:
        days: Iterable[date] = (first.date(),)
    else:
        days = rule.list_days(first.date(), lowest.date(), highest.date())
    for day in days:
        local = datetime.combine(day, first.time())
        begins = local.replace(tzinfo=zone).astimezone(UTC)
        ends = (local + duration).replace(tzinfo=zone).astimezone(UTC)
        if begins < end and ends > start and begins < ends:
            yield Occurrence(window=window, start=begins, end=ends)


def find_denial(
    windows: Iterable[Window], *, application_id: str, labels: Mapping[str, str], now: datetime
) -> Denial | None:
    """Returns the window because of which a deployment may not begin now; None when it may."""
    relevant = [each for each in windows if applies(each, application_id, labels)]
    if not relevant:
        return None
    covering = [
        each.window
        for each in _list_all(relevant, now, now + timedelta(seconds=1))
        if each.covers(now)
    ]
    reason = _find_reason(relevant, covering)
    if not reason:
        return None
    # Asked for every deployment that waits, again and again: most answers are those of before.
    minute = now.replace(second=0, microsecond=0)
    until = _find_end(
        tuple(each.SerializeToString(deterministic=True) for each in relevant), minute
    )
    return Denial(sentence=reason, until=until if until is None or until > now else None)


def list_spans(
    windows: Iterable[Window],
    *,
    application_id: str,
    labels: Mapping[str, str],
    start: datetime,
    end: datetime,
) -> list[Span]:
    """Returns what the windows say of a time that is to come, without gaps and in order."""
    relevant = [each for each in windows if applies(each, application_id, labels)]
    spans: list[Span] = []
    for at, covering in _sweep(relevant, start, end):
        reason = _find_reason(relevant, covering)
        if spans and spans[-1].reason == reason:
            continue
        if spans:
            spans[-1] = replace(spans[-1], end=at)
        spans.append(Span(start=at, end=end, reason=reason))
    return spans


def _sweep(
    relevant: Sequence[Window], start: datetime, end: datetime
) -> Iterator[tuple[datetime, Collection[Window]]]:
    """Yields each time at which something changes, the start first, with what covers it then."""
    changes: dict[datetime, list[tuple[bool, int]]] = {start: []}
    for number, window in enumerate(relevant):
        for each in list_occurrences(window, start, end):
            changes.setdefault(max(each.start, start), []).append((True, number))
            if each.end < end:
                changes.setdefault(each.end, []).append((False, number))
    covering: Counter[int] = Counter()
    for at in sorted(changes):
        for begins, number in changes[at]:
            covering[number] += 1 if begins else -1
        yield at, [relevant[number] for number in sorted(covering) if covering[number] > 0]


@functools.lru_cache(maxsize=1024)
def _find_end(windows: tuple[bytes, ...], now: datetime) -> datetime | None:
    """Returns when a deployment may begin that may not now; None when that is not to be seen."""
    relevant = [Window.FromString(each) for each in windows]
    for days in _HORIZON_DAYS:
        for at, covering in _sweep(relevant, now, now + timedelta(days=days)):
            if at > now and not _find_reason(relevant, covering):
                return at
    return None


def _list_all(windows: Iterable[Window], start: datetime, end: datetime) -> list[Occurrence]:
    return [each for window in windows for each in list_occurrences(window, start, end)]


def _find_reason(relevant: Sequence[Window], covering: Collection[Window]) -> str:
    """Returns why no deployment may begin while windows cover the time; empty when one may."""
    for window in covering:
        if window.effect == Window.DENY:
            return f"the window {window.name!r} denies deployments{_why(window)}"
    allowing = [each for each in relevant if each.effect == Window.ALLOW]
    if allowing and not any(window.effect == Window.ALLOW for window in covering):
        names = ", ".join(sorted(repr(each.name) for each in allowing)[:5])
        only = allowing[0] if len(allowing) == 1 else None
        return f"deployments begin only within the window {names}{_why(only) if only else ''}"
    return ""


def _why(window: Window) -> str:
    return f" ({window.reason})" if window.reason else ""


def _zone(window: Window) -> ZoneInfo:
    # Here and not above: it brings how Python was built, and most projects have no window.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415

    try:
        return ZoneInfo(window.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"invalid window: time zone: there is none called {window.time_zone[:80]!r}",
            hint="as in Europe/Berlin, America/New_York or UTC",
        ) from None


def _start(window: Window) -> datetime:
    start: datetime | None = None
    with suppress(ValueError):
        start = datetime.fromisoformat(window.start)
    if start is None or start.tzinfo is not None or not 1971 <= start.year <= 9000:
        raise ConfigError(
            f"invalid window: start: {window.start[:80]!r} is no local time",
            hint="as in 2026-11-16T09:00:00; the zone stands apart",
        )
    return start.replace(microsecond=0)
