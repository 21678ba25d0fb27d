# SPDX-License-Identifier: Apache-2.0
"""Texts and characters in quotes, as Go writes them."""

from __future__ import annotations

from typing import Final

from pipecd_model.templates.charmap import replace_characters

_NAMED: Final = {7: "a", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t", 11: "v"}
_LOWEST_BYTE: Final = 0xDC80
_HIGHEST_BYTE: Final = 0xDCFF


def quote(text: str, *, ascii_only: bool = False, mark: str = '"') -> str:
    """Return a text in quotes, everything in it that cannot be seen escaped."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f"{mark}{text}{mark}"
    return mark + replace_characters(text, lambda char: _escape(char, ascii_only, mark)) + mark


def quote_character(code: int, *, ascii_only: bool = False) -> str:
    """Return the character of a number in single quotes."""
    valid = 0 <= code <= 0x10FFFF and not 0xD800 <= code < 0xE000
    return quote(chr(code) if valid else "\ufffd", ascii_only=ascii_only, mark="'")


def can_backquote(text: str) -> bool:
    """Say whether a text can stand between backquotes as it is."""
    return not any(
        (ord(char) < 0x20 and char != "\t") or char in "`\x7f\ufeff" or 0xD800 <= ord(char) < 0xE000
        for char in text
    )


def _escape(char: str, ascii_only: bool, mark: str) -> str:
    code = ord(char)
    if char in {mark, "\\"}:
        return "\\" + char
    if (code < 0x7F if ascii_only else char.isprintable()) and code >= 0x20:
        return char
    if code in _NAMED:
        return "\\" + _NAMED[code]
    if _LOWEST_BYTE <= code <= _HIGHEST_BYTE:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
