# SPDX-License-Identifier: Apache-2.0
"""Values with a grammar of their own: durations and secrets.

A type with `from_config` is decoded by it: it takes the plain value of the file and raises
`BadValueError` for one it does not understand.
"""

from __future__ import annotations

import base64
import math
import re
from datetime import timedelta
from typing import Any, Self, overload

from pipecd_model.errors import add_hint

MASK = "******"

_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([^\d.+-]*)")
_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5
    "μs": 1_000,  # U+03BC: both letters are in use
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_LONGEST = 100  # characters: far more than any real one, few enough to be read at once
_LIMIT = 1 << 63  # nanoseconds are kept in 64 bits by everybody else who reads these files


class BadValueError(ValueError):
    """A value that its type does not understand; becomes a fault with a place."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def format_bad_value(error: ValueError) -> str:
    """Returns the message of a value that is not understood, with its hint where it has one."""
    return add_hint(error, error.hint if isinstance(error, BadValueError) else "")


class Duration(timedelta):
    """A length of time, written as `90s`, `5m` or `1h30m`; a bare number counts nanoseconds.

    In a program: `Duration("90s")`, or the parts of a `timedelta`, e.g. `Duration(minutes=5)`.
    """

    @overload
    def __new__(cls, text: str, /) -> Self: ...

    @overload
    def __new__(
        cls,
        days: float = ...,
        seconds: float = ...,
        microseconds: float = ...,
        milliseconds: float = ...,
        minutes: float = ...,
        hours: float = ...,
        weeks: float = ...,
    ) -> Self: ...

    def __new__(cls, *parts: Any, **named: float) -> Self:
        if len(parts) == 1 and not named and isinstance(parts[0], str):
            return cls.parse(parts[0])
        return super().__new__(cls, *parts, **named)

    @classmethod
    def from_config(cls, value: Any) -> Self:
        if isinstance(value, str):
            return cls.parse(value)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and math.isfinite(value):
            return cls._from_nanoseconds(int(value), value)
        if value is None:
            raise BadValueError("the value is empty", hint="remove the key or give e.g. 90s, 5m")
        raise BadValueError(f"not a duration: {value!r}", hint="e.g. 90s, 5m")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the written form, sign included."""
        if len(text) > _LONGEST:
            raise BadValueError("not a duration: the text is too long", hint="e.g. 90s, 5m")
        body = text[1:] if text[:1] in {"+", "-"} else text
        if body == "0":
            return cls()
        nanoseconds = 0
        position = 0
        while position < len(body):
            part = _PART.match(body, position)
            if part is None:
                break
            number, unit = part.groups()
            if not unit:
                raise BadValueError(
                    f"not a duration: {text!r} has no unit", hint=f"e.g. {text}s for seconds"
                )
            if unit not in _NANOSECONDS:
                raise BadValueError(
                    f"not a duration: {text!r}, unit {unit!r} is unknown",
                    hint="units are h, m, s, ms; a day is 24h",
                )
            whole, _, fraction = number.partition(".")
            scale = _NANOSECONDS[unit]
            nanoseconds += int(whole or 0) * scale
            if fraction:
                nanoseconds += int(fraction) * scale // 10 ** len(fraction)
            position = part.end()
        if not body or position < len(body):
            raise BadValueError(f"not a duration: {text!r}", hint="e.g. 90s, 5m")
        return cls._from_nanoseconds(-nanoseconds if text[0] == "-" else nanoseconds, text)

    @classmethod
    def _from_nanoseconds(cls, nanoseconds: int, written: object) -> Self:
        if not -_LIMIT <= nanoseconds < _LIMIT:
            raise BadValueError(f"not a duration: {written!r} is out of range", hint="e.g. 90s, 5m")
        microseconds = abs(nanoseconds) // 1000
        if nanoseconds and not microseconds:
            microseconds = 1  # shorter than we can hold, but not zero: zero would mean the default
        return cls(microseconds=microseconds if nanoseconds >= 0 else -microseconds)

    def __str__(self) -> str:
        """Write the form that files and other implementations use: `1h30m0s`, `1.5s`, `100µs`."""
        return format_duration(self)

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"


def format_duration(value: timedelta) -> str:
    """Write a length of time as Go writes it, the form that files and the wire use."""
    total = value // timedelta(microseconds=1)
    sign = "-" if total < 0 else ""
    total = abs(total)
    if total == 0:
        return "0s"
    if total < 1_000:
        return f"{sign}{total}µs"
    if total < 1_000_000:
        return f"{sign}{_decimal(total, 1_000)}ms"
    minutes, rest = divmod(total, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds = _decimal(rest, 1_000_000)
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}s"
    return f"{sign}{minutes}m{seconds}s" if minutes else f"{sign}{seconds}s"


def _decimal(value: int, scale: int) -> str:
    whole, rest = divmod(value, scale)
    if not rest:
        return str(whole)
    return f"{whole}.{str(rest).rjust(len(str(scale)) - 1, '0').rstrip('0')}"


class Secret:
    """A text that never prints: not in a log, not in a traceback, not in a message."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @classmethod
    def from_config(cls, value: Any) -> Self:
        if not isinstance(value, str):
            # The value itself stays out of the message: a number may be the secret.
            raise BadValueError("expected a text", hint="put it in quotes")
        return cls(value)

    def reveal(self) -> str:
        """Give the text to the one who needs it."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.reveal() == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({MASK!r})"

    def __str__(self) -> str:
        return MASK


class Base64Secret(Secret):
    """A secret written as standard base64; line breaks inside are fine."""

    __slots__ = ()

    @classmethod
    def from_config(cls, value: Any) -> Self:
        secret = super().from_config(value)
        try:
            secret.decode()
        except ValueError:  # wrong letters, wrong length, or not even ASCII
            raise BadValueError(
                "not base64", hint="write the output of: base64 < the-key-file"
            ) from None
        return secret

    def decode(self) -> bytes:
        """Give what the base64 stands for."""
        return base64.b64decode(self._value.replace("\n", "").replace("\r", ""), validate=True)
