# SPDX-License-Identifier: Apache-2.0
"""Replacing characters one by one, in time that a text of any size can be given."""

from __future__ import annotations

from collections.abc import Callable


class CharMap(dict[int, str]):
    """A table for `str.translate` that asks once for each character that it meets."""

    def __init__(self, replaced: Callable[[str], str]) -> None:
        super().__init__()
        self._replaced = replaced

    def __missing__(self, code: int) -> str:
        made = self[code] = self._replaced(chr(code))
        return made


def replace_characters(text: str, replaced: Callable[[str], str]) -> str:
    """Return a text with something else for each character; the same for the same."""
    return text.translate(CharMap(replaced))
