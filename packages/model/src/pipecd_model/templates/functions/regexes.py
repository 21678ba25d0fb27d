# SPDX-License-Identifier: Apache-2.0
"""Functions for regular expressions. They are RE2, so no text keeps one busy for long."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pipecd_model import regex
from pipecd_model.templates.faults import FunctionError
from pipecd_model.templates.functions.signature import Function, declare
from pipecd_model.templates.kinds import NoStrings, Strings, to_bytes, to_text
from pipecd_model.templates.limits import Meter, TooMuchError

_PATTERN: Final = 512
"""Characters of a regular expression."""

_REPEATS: Final = 5000
"""All counts in a regular expression, multiplied: what it is written out to inside RE2."""

_SEARCHED: Final = 1 << 16
"""Characters of a text in which an expression is looked for."""

_COUNT: Final = re.compile(r"\{\d*,?(\d+)\}")
_META: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")

Spans = tuple[tuple[int, int], ...]


def _compile(pattern: str) -> regex.Regex:
    try:
        pattern.encode()
        return regex.compile_regex(pattern)
    except (regex.BadRegexError, UnicodeEncodeError):
        raise FunctionError("this is no regular expression") from None


def _find(
    meter: Meter, expression: regex.Regex, content: bytes, count: int = -1
) -> Iterator[Spans]:
    """Yield where an expression and its groups are found, as Go finds them.

    An empty find right behind the one before is none.
    """
    position = 0
    last_end = -1
    while count != 0 and position <= len(content):
        meter.spend(_WORK + len(content) - position)
        spans = expression.search(content, position)
        if spans is None:
            return
        start, end = spans[0]
        if end > start or start != last_end:
            yield spans
            count -= 1
        last_end = end
        position = end if end > start else _next_letter(content, end)


_WORK: Final = 2048
"""What one search costs before it has looked at anything, counted in characters."""


def _next_letter(content: bytes, position: int) -> int:
    position += 1
    while position < len(content) and content[position] & 0xC0 == 0x80:
        position += 1
    return position


def _matches(meter: Meter, pattern: str, text: str) -> bool:
    return next(_find(meter, _compile(pattern), to_bytes(text)), None) is not None


def _matches_or_not(meter: Meter, pattern: str, text: str) -> bool:
    try:
        return _matches(meter, pattern, text)
    except FunctionError:
        return False


def _find_one(meter: Meter, pattern: str, text: str) -> str:
    content = to_bytes(text)
    for spans in _find(meter, _compile(pattern), content):
        return to_text(content[slice(*spans[0])])
    return ""


def _find_all(meter: Meter, pattern: str, text: str, count: int) -> Strings:
    content = to_bytes(text)
    found = _find(meter, _compile(pattern), content, count)
    return Strings(to_text(content[slice(*spans[0])]) for spans in found) or NoStrings()


def _split(meter: Meter, pattern: str, text: str, count: int) -> Strings:
    expression = _compile(pattern)
    if count == 0:
        return NoStrings()
    if pattern and not text:
        return Strings([""])
    content = to_bytes(text)
    parts = Strings()
    begin = end = 0
    for spans in _find(meter, expression, content):
        if count > 0 and len(parts) == count - 1:
            break
        end = spans[0][0]
        if spans[0][1] != 0:
            parts.append(to_text(content[begin:end]))
        begin = spans[0][1]
    if end != len(content):
        parts.append(to_text(content[begin:]))
    return parts


def _replace(
    meter: Meter, pattern: str, text: str, new: Callable[[regex.Regex, bytes, Spans], bytes]
) -> str:
    content = to_bytes(text)
    expression = _compile(pattern)
    made: list[bytes] = []
    position = size = 0
    for spans in _find(meter, expression, content):
        start, end = spans[0]
        made += [content[position:start], new(expression, content, spans)]
        size += len(made[-1])
        meter.allow(size)
        position = end
    made.append(content[position:])
    return to_text(b"".join(made))


def _replace_all(meter: Meter, pattern: str, text: str, new: str) -> str:
    parts = _template(new)
    return _replace(
        meter,
        pattern,
        text,
        lambda expression, content, spans: b"".join(
            each if isinstance(each, bytes) else _group(each, expression, content, spans)
            for each in parts
        ),
    )


def _replace_literal(meter: Meter, pattern: str, text: str, new: str) -> str:
    content = to_bytes(new)
    return _replace(meter, pattern, text, lambda *_: content)


_REFERENCE: Final = re.compile(r"\$(?:\$|\{(\w+)\}|(\w+))")


def _template(new: str) -> list[bytes | str]:
    """Cut a replacement into its bytes and the names of the groups in it."""
    parts: list[bytes | str] = []
    position = 0
    for found in _REFERENCE.finditer(new):
        parts.append(to_bytes(new[position : found.start()]))
        name = found[1] or found[2]
        parts.append(name or b"$")
        position = found.end()
    parts.append(to_bytes(new[position:]))
    return parts


def _group(name: str, expression: regex.Regex, content: bytes, spans: Spans) -> bytes:
    number = int(name) if name.isascii() and name.isdecimal() and len(name) < 9 else None
    if number is None:
        number = expression.group_number(name)
    if number is None or number >= len(spans) or spans[number][0] < 0:
        return b""
    return content[slice(*spans[number])]


def _quote_meta(text: str) -> str:
    return _META.sub(r"\\\g<0>", text)


def _grow(pattern: str, text: str, *_: object) -> int:
    if len(pattern) > _PATTERN:
        raise TooMuchError(f"a regular expression may have {_PATTERN} characters")
    if math.prod(int(each[:6]) for each in _COUNT.findall(pattern)) > _REPEATS:
        raise TooMuchError("a regular expression repeats too often")
    if len(text) > _SEARCHED:
        raise TooMuchError(f"a regular expression may search {_SEARCHED:,} characters")
    return 0


def _declare(signature: str, call: Callable[..., object]) -> Function:
    return declare(signature, call, metered=True, cost=_grow)


REGEXES: Final[Mapping[str, Function]] = {
    "regexMatch": _declare("ss", _matches_or_not),
    "mustRegexMatch": _declare("ss", _matches),
    **dict.fromkeys(("regexFind", "mustRegexFind"), _declare("ss", _find_one)),
    **dict.fromkeys(("regexFindAll", "mustRegexFindAll"), _declare("ssi", _find_all)),
    **dict.fromkeys(("regexSplit", "mustRegexSplit"), _declare("ssi", _split)),
    **dict.fromkeys(("regexReplaceAll", "mustRegexReplaceAll"), _declare("sss", _replace_all)),
    **dict.fromkeys(
        ("regexReplaceAllLiteral", "mustRegexReplaceAllLiteral"),
        _declare("sss", _replace_literal),
    ),
    "regexQuoteMeta": declare("s", _quote_meta),
}
