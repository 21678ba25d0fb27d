# SPDX-License-Identifier: Apache-2.0
"""Regular expressions that people write: RE2, as in all programs that read the same files.

RE2 takes time in proportion to the text, whatever the expression: one that makes other engines
think for hours cannot hold up the agent. It has no look-around and no back-references.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from pipecd_model.errors import MissingExtraError

_MEMORY = 1 << 20  # bytes that one compiled expression may take
_LONGEST = 1_000  # characters of an expression: more than anybody writes


class BadRegexError(ValueError):
    """What is no regular expression; says why."""


class Regex:
    """A compiled expression."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    @property
    def groups(self) -> int:
        """How many groups it has."""
        return int(self._compiled.groups)

    def is_found_in(self, text: str) -> bool:
        """Returns whether it matches somewhere in the text."""
        return self._compiled.search(_plain(text)) is not None

    def search(self, content: bytes, position: int) -> tuple[tuple[int, int], ...] | None:
        """Return where it and its groups are first found from a byte on; -1 for no such group."""
        found = self._compiled.search(content, position)
        if found is None:
            return None
        return tuple(found.span(number) for number in range(self.groups + 1))

    def group_number(self, name: str) -> int | None:
        """Return the number of a group that has a name."""
        number: int | None = self._compiled.groupindex.get(name)
        return number

    def means(self, text: str) -> bool:
        """Returns whether it matches the whole text."""
        return self._compiled.fullmatch(_plain(text)) is not None


@lru_cache(maxsize=4096)
def compile_regex(pattern: str, *, dot_matches_all: bool = False) -> Regex:
    """Compile an expression; raises `BadRegexError`, or `MissingExtraError` without RE2."""
    # Not every program reads expressions, and this one is a library of its own.
    try:
        import re2  # type: ignore[import-untyped]  # noqa: PLC0415
    except ModuleNotFoundError:
        raise MissingExtraError(
            "path patterns and regular expressions",
            distribution="google-re2",
            extras="pipecd-sdk[patterns] for a plugin, pipecd-model[regex] for anything else",
        ) from None
    if len(pattern) > _LONGEST:
        raise BadRegexError(f"longer than {_LONGEST} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    options.dot_nl = dot_matches_all
    try:
        return Regex(re2.compile(_plain(pattern), options))
    except re2.error as error:
        said = error.args[0] if error.args else ""
        what, _, where = (said.decode() if isinstance(said, bytes) else str(said)).partition(": ")
        raise BadRegexError(f"{what} at {where!r}" if where else what) from None


_SURROGATE = re.compile("[\ud800-\udfff]")


def _plain(text: str) -> str:
    """Bytes that are no UTF-8 come as surrogates, which the library cannot take."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
