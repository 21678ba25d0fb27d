# SPDX-License-Identifier: Apache-2.0
"""Functions that look at letters and words: upper and lower case, names, abbreviations, lines."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Final

from pipecd_model.templates.charmap import replace_characters
from pipecd_model.templates.functions.cases import to_lower, to_title, to_upper
from pipecd_model.templates.functions.signature import Function, declare
from pipecd_model.templates.functions.texts import SPACES
from pipecd_model.templates.functions.wording import to_camel, to_kebab, to_snake
from pipecd_model.templates.kinds import to_bytes, to_text
from pipecd_model.templates.limits import ITEM


def _upper(value: str) -> str:
    return value.upper() if value.isascii() else replace_characters(_letters(value), to_upper)


def _lower(value: str) -> str:
    return value.lower() if value.isascii() else replace_characters(_letters(value), to_lower)


def _letters(value: str) -> str:
    """Return a text of letters alone: a byte that is none becomes the sign for that."""
    return value if value.isascii() else _NO_LETTER.sub("\ufffd", value)


_NO_LETTER: Final = re.compile("[\ud800-\udfff]")


def _is_separator(char: str) -> bool:
    """Say whether a letter after this one starts a word."""
    if char.isascii():
        return not (char.isalnum() or char == "_")
    return not (char.isalpha() or char.isdecimal()) and char in SPACES


def _title(value: str) -> str:
    made: list[str] = []
    before = " "
    for char in _letters(value):
        made.append(to_title(char) if _is_separator(before) else char)
        before = char
    return "".join(made)


def _untitle(value: str) -> str:
    made: list[str] = []
    first = True
    for char in _letters(value):
        if char in SPACES:
            first = True
            made.append(char)
        else:
            made.append(to_lower(char) if first else char)
            first = False
    return "".join(made)


def _swapcase(value: str) -> str:
    made: list[str] = []
    white = True
    for char in _letters(value):
        category = unicodedata.category(char)
        if category in {"Lu", "Lt"}:
            made.append(to_lower(char))
            white = False
        elif category == "Ll":
            made.append(to_title(char) if white else to_upper(char))
            white = False
        else:
            made.append(char)
            white = char in SPACES
    return "".join(made)


def _initials(value: str) -> str:
    made: list[str] = []
    first = True
    for char in value:
        if char in SPACES:
            first = True
        elif first:
            made.append(char)
            first = False
    return "".join(made)


def _abbreviate(offset: int, width: int, value: str) -> str:
    content = to_bytes(value)
    if len(content) <= width:
        return value
    offset = min(offset, len(content))
    if len(content) - offset < width - 3:
        offset = len(content) - (width - 3)
    if offset <= 4:
        return to_text(content[: width - 3] + b"...")
    if offset + width - 3 < len(content):
        return "..." + _abbreviate(0, width - 3, to_text(content[offset:]))
    return to_text(b"..." + content[len(content) - (width - 3) :])


def _abbrev(width: int, value: str) -> str:
    return value if width < 4 else _abbreviate(0, width, value)


def _abbrev_both(left: int, right: int, value: str) -> str:
    if right < 4 or (left > 0 and right < 7):
        return value
    return _abbreviate(left, right, value)


def _wrap(width: int, value: str) -> str:
    return _wrap_lines(value, width, "\n", cuts=False)


def _wrap_with(width: int, separator: str, value: str) -> str:
    return _wrap_lines(value, width, separator or "\n", cuts=True)


def _wrap_lines(value: str, width: int, separator: str, *, cuts: bool) -> str:
    """Break a text into lines at its spaces; a word that is too long is cut, or stays as it is."""
    content = to_bytes(value)
    between = to_bytes(separator)
    width = max(width, 1)
    made: list[bytes] = []
    at = 0
    while len(content) - at > width:
        if content[at : at + 1] == b" ":
            at += 1
            continue
        end = at + width + 1
        space = content.rfind(b" ", at, end)
        if space >= at:
            made += [content[at:space], between]
            at = space + 1
        elif cuts:
            made += [content[at : at + width], between]
            at += width
        else:
            space = content.find(b" ", at + width)
            if space < 0:
                break
            made += [content[at:space], between]
            at = space + 1
    made.append(content[at:])
    return to_text(b"".join(made))


def _grow_wrap(width: int, value: str) -> int:
    return (len(value) // max(width, 1) + 1) * ITEM


def _grow_wrap_with(width: int, separator: str, value: str) -> int:
    return (len(value) // max(width, 1) + 1) * max(len(separator), ITEM)


def _grow_letters(value: str) -> int:
    """Refuse what takes long: it is done letter by letter."""
    return len(value) * ITEM


def _declare_naming(to_name: Callable[[str], str]) -> Function:
    return declare("s", lambda value: to_name(_letters(value)), cost=_grow_letters)


LETTERS: Final[Mapping[str, Function]] = {
    "abbrev": declare("is", _abbrev),
    "abbrevboth": declare("iis", _abbrev_both),
    "camelcase": _declare_naming(to_camel),
    "initials": declare("s", _initials, cost=_grow_letters),
    "kebabcase": _declare_naming(to_kebab),
    "lower": declare("s", _lower),
    "snakecase": _declare_naming(to_snake),
    "swapcase": declare("s", _swapcase, cost=_grow_letters),
    "title": declare("s", _title, cost=_grow_letters),
    "untitle": declare("s", _untitle, cost=_grow_letters),
    "upper": declare("s", _upper),
    "wrap": declare("is", _wrap, cost=_grow_wrap),
    "wrapWith": declare("iss", _wrap_with, cost=_grow_wrap_with),
}
