# SPDX-License-Identifier: Apache-2.0
"""Times as people read them: `3m ago` in a table, `1m12s` for how long, a date where it matters."""

import time
from datetime import UTC, datetime
from typing import Final

MINUTE_SECONDS: Final = 60
HOUR_SECONDS: Final = 60 * MINUTE_SECONDS
DAY_SECONDS: Final = 24 * HOUR_SECONDS
OLDEST_AGE_DAYS: Final = 90
"""What is older is shown with its date."""


def when(seconds: int) -> str:
    """Returns a Unix time as text in the local time zone; empty for 0.

    One out of range is returned as its number: a wrong report must not break the list.
    """
    if not seconds:
        return ""
    moment = _to_local(seconds)
    return str(seconds) if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")


def format_clock(seconds: int) -> str:
    """Returns the time of day of a Unix time, for a terminal."""
    moment = _to_local(seconds)
    return "--:--:--" if moment is None else moment.strftime("%H:%M:%S")


def format_timestamp(seconds: int) -> str:
    """Returns a Unix time in the form that programs read: `2026-11-16T12:03:04+01:00`."""
    moment = _to_local(seconds)
    return str(seconds) if moment is None else moment.isoformat(timespec="seconds")


def format_duration(seconds: float) -> str:
    """Returns a duration with its two largest units: `12s`, `3m4s`, `1h5m`, `2d3h`."""
    whole = max(0, int(seconds))
    for unit, size, below, small in (
        ("d", DAY_SECONDS, "h", HOUR_SECONDS),
        ("h", HOUR_SECONDS, "m", MINUTE_SECONDS),
        ("m", MINUTE_SECONDS, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size}{unit}" + (f"{rest}{below}" if rest else "")
    return f"{whole}s"


def format_age(seconds: int, now: float | None = None) -> str:
    """Returns how long ago a Unix time was, in its largest unit: `3m ago`; empty for 0.

    A time in the future, as the clock of another machine may give, is `now`.
    """
    if not seconds:
        return ""
    passed = (time.time() if now is None else now) - seconds
    if _to_local(seconds) is None:
        return str(seconds)
    if passed < 1:
        return "now"
    for unit, size in (("d", DAY_SECONDS), ("h", HOUR_SECONDS), ("m", MINUTE_SECONDS), ("s", 1)):
        if passed >= size:
            if unit == "d" and passed >= OLDEST_AGE_DAYS * DAY_SECONDS:
                break
            return f"{int(passed // size)}{unit} ago"
    return when(seconds).partition(" ")[0]


def format_moment(seconds: int, now: float | None = None) -> str:
    """Returns a time with its age: `2026-11-16 12:03:04 (3m ago)`; empty for 0."""
    age = format_age(seconds, now)
    shown = when(seconds)
    return f"{shown} ({age})" if age and age not in shown else shown


def _to_local(seconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return None
