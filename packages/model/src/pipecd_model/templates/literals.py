# SPDX-License-Identifier: Apache-2.0
"""Numbers, texts and characters as they are written in an action."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pipecd_model.templates.kinds import to_text

_INT_LIMIT: Final = 1 << 63
_LONGEST: Final = 400
"""Characters of a number: more than the longest that means something."""

_INTEGER: Final = re.compile(
    r"""(?P<sign>[+-]?)(?:
        0[xX](?P<hex>(?:_?[0-9a-fA-F])+)
        | 0[bB](?P<binary>(?:_?[01])+)
        | 0[oO](?P<octal>(?:_?[0-7])+)
        | 0(?P<old>(?:_?[0-7])+)
        | (?P<decimal>0|[1-9](?:_?[0-9])*)
    )""",
    re.VERBOSE,
)
_BASES: Final = {"hex": 16, "binary": 2, "octal": 8, "old": 8, "decimal": 10}
_DIGITS: Final = "[0-9]+(?:_[0-9]+)*"
_FLOAT: Final = re.compile(
    rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?"
)
_HEX_FLOAT: Final = re.compile(
    r"[+-]?0[xX]_?(?:[0-9a-fA-F_]+\.?[0-9a-fA-F_]*|\.[0-9a-fA-F_]+)[pP][+-]?[0-9]+"
)


class BadLiteralError(ValueError):
    """What is written is no number, text or character; says why."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written: it becomes what its place needs, if it can."""

    value: int | float
    whole: int | None
    """The number as a whole one, if it is one of 64 bits."""


def parse_number(text: str) -> Number:
    """Read a number; raises BadLiteralError."""
    if len(text) > _LONGEST:
        raise BadLiteralError(f"the number {text[:12]}… is too long")
    if found := _INTEGER.fullmatch(text):
        kind = found.lastgroup or ""
        number = int(found[kind].replace("_", ""), _BASES[kind])
        number = -number if found["sign"] == "-" else number
        if not -_INT_LIMIT <= number < _INT_LIMIT:
            raise BadLiteralError(f"the number {text[:30]} is too large for 64 bits")
        return Number(number, number)
    if _FLOAT.fullmatch(text):
        value = float(text)
    elif _HEX_FLOAT.fullmatch(text):
        value = _parse_hex_float(text)
    else:
        raise BadLiteralError(f"{text[:30]!r} is not a number")
    if value in {float("inf"), float("-inf")}:
        raise BadLiteralError(f"the number {text[:30]} is too large")
    if not set(text) & set(".eEpP"):
        raise BadLiteralError(f"{text[:30]!r} is not a number")
    fits = value.is_integer() and -_INT_LIMIT <= value < _INT_LIMIT
    return Number(value, int(value) if fits else None)


def _parse_hex_float(text: str) -> float:
    try:
        return float.fromhex(text.replace("_", ""))
    except (ValueError, OverflowError):
        raise BadLiteralError(f"{text[:30]!r} is not a number") from None


_ESCAPE: Final = re.compile(
    r"""\\(?:
        (?P<plain>[abfnrtv\\'"])
        | x(?P<byte>[0-9a-fA-F]{2})
        | (?P<octal>[0-7]{3})
        | u(?P<short>[0-9a-fA-F]{4})
        | U(?P<long>[0-9a-fA-F]{8})
        | (?P<bad>.?)
    )""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN: Final = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}


def parse_text(quoted: str) -> str:
    """Read a text in quotes or backquotes; raises BadLiteralError."""
    inside = quoted[1:-1]
    if quoted[0] == "`":
        return inside.replace("\r", "")
    if "\\" not in inside:
        return inside
    content = bytearray()
    position = 0
    for found in _ESCAPE.finditer(inside):
        content += inside[position : found.start()].encode(errors="surrogateescape")
        code, is_byte = _read_escape(found, quote='"')
        content += bytes([code]) if is_byte else chr(code).encode()
        position = found.end()
    content += inside[position:].encode(errors="surrogateescape")
    return to_text(bytes(content))


def parse_character(quoted: str) -> int:
    """Read a character in single quotes, which is its number; raises BadLiteralError."""
    inside = quoted[1:-1]
    if len(inside) == 1 and inside != "'":
        return ord(inside)
    found = _ESCAPE.fullmatch(inside)
    if found is None:
        raise BadLiteralError("single quotes are for one character; a text has double quotes")
    return _read_escape(found, quote="'")[0]


def _read_escape(found: re.Match[str], *, quote: str) -> tuple[int, bool]:
    """Return the number that an escape stands for, and whether it is that of a byte."""
    kind = found.lastgroup or "bad"
    digits = found[kind]
    if kind == "plain" and digits not in {"'", '"'} - {quote}:
        return _PLAIN.get(digits, ord(digits)), True
    if kind == "byte":
        return int(digits, 16), True
    if kind == "octal" and int(digits, 8) < 256:
        return int(digits, 8), True
    if kind in {"short", "long"}:
        code = int(digits, 16)
        if code <= 0x10FFFF and not 0xD800 <= code < 0xE000:
            return code, False
    raise BadLiteralError(f"{found[0][:10]} is no escape")
