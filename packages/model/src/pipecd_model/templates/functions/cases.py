# SPDX-License-Identifier: Apache-2.0
"""Upper and lower case, letter by letter: a text keeps its number of letters."""

from __future__ import annotations


def to_upper(char: str) -> str:
    """Return one letter for one letter, as Go does: ß stays what it is."""
    upper = char.upper()
    if len(upper) == 1:
        return upper
    title = char.title()
    return title if len(title) == 1 else char


def to_lower(char: str) -> str:
    lower = char.lower()
    return lower if len(lower) == 1 else "i"  # only the dotted capital I becomes two


def to_title(char: str) -> str:
    title = char.title()
    return title if len(title) == 1 else char
