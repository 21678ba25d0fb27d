# SPDX-License-Identifier: Apache-2.0
"""Path patterns as a Docker-ignore file has them: which changed files a rule means.

`*` and `?` stay within one folder, `**` spans any depth, a leading `!` excludes, and a pattern also
matches everything below a folder that it names. Paths are relative to the repository's root.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from functools import lru_cache

from pipecd_model.regex import BadRegexError, Regex, compile_regex


class BadPatternError(ValueError):
    """A pattern that means nothing."""


def matches(patterns: Iterable[str], path: str) -> bool:
    """Returns whether a pattern matches this path, and none with `!` excludes it."""
    found = False
    for pattern in patterns:
        compiled = _compile(pattern)
        if compiled is None or not compiled.means(path):
            continue
        if compiled.excludes:
            return False
        found = True
    return found


def check(pattern: str) -> None:
    """Raise `BadPatternError` for a pattern that cannot be used."""
    _compile(pattern)


class _Pattern:
    __slots__ = ("_regex", "excludes", "parts")

    def __init__(self, regex: Regex, *, excludes: bool, parts: int) -> None:
        self._regex = regex
        self.excludes = excludes
        self.parts = parts

    def means(self, path: str) -> bool:
        if self._regex.means(path):
            return True
        # A pattern that names a folder means what is in it.
        folders = path.split("/")[:-1]
        named = "/".join(folders[: self.parts])
        return len(folders) >= self.parts and self._regex.means(named)


@lru_cache(maxsize=4096)
def _compile(written: str) -> _Pattern | None:
    pattern = written.strip()
    if not pattern:
        return None
    excludes = pattern.startswith("!")
    if excludes:
        pattern = pattern[1:].strip()
        if not pattern:
            raise BadPatternError("a lone '!' excludes nothing")
    pattern = posixpath.normpath(pattern)
    try:
        regex = compile_regex(_regex(pattern), dot_matches_all=True)
    except BadRegexError as error:
        raise BadPatternError(f"bad pattern {written!r}: {error}") from None
    return _Pattern(regex, excludes=excludes, parts=pattern.count("/") + 1)


def _regex(pattern: str) -> str:
    out = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        index += 1
        if char == "*":
            if pattern[index : index + 1] == "*":
                index += 1
                if pattern[index : index + 1] == "/":
                    index += 1
                out.append(".*" if index >= len(pattern) else "(?:.*/)?")
            else:
                out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char in ".$":
            out.append(f"\\{char}")
        elif char == "\\":
            out.append(re.escape(pattern[index : index + 1]) or "\\")  # alone at the end: refused
            index += 1
        elif char == "[":
            found = _SET.match(pattern, index)
            out.append(f"[{_IN_A_SET.sub(_escape, found[0])}" if found else "[")
            index = found.end() if found else index
        else:
            out.append(char)
    return "".join(out)


_SET = re.compile(r"\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_IN_A_SET = re.compile(r"\\.|[\[&~|]|-(?=-)", re.DOTALL)  # what Python may one day read as more


def _escape(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith("\\") else f"\\{found[0]}"
