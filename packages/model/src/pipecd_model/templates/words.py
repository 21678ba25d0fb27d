# SPDX-License-Identifier: Apache-2.0
"""The words of a template, one after the other, with a look at the next one."""

from __future__ import annotations

from collections.abc import Iterator

from pipecd_model.templates.lexer import Word


class Words:
    """Hands out words; two can be looked at before they are taken."""

    __slots__ = ("_ahead", "_source")

    def __init__(self, source: Iterator[Word]) -> None:
        self._source = source
        self._ahead: list[Word] = []

    def next(self) -> Word:
        """Returns the next word and moves past it."""
        return self._ahead.pop() if self._ahead else next(self._source)

    def peek(self) -> Word:
        """Returns the next word without moving past it."""
        if not self._ahead:
            self._ahead.append(next(self._source))
        return self._ahead[-1]

    def put_back(self, word: Word) -> None:
        """Makes a word the next one again."""
        self._ahead.append(word)

    def skip_space(self) -> None:
        while self.peek().kind == "space":
            self._ahead.pop()
