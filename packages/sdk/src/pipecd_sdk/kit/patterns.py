# SPDX-License-Identifier: Apache-2.0
"""Path patterns as application files have them: `*` in one folder, `**` over all, `!` excludes."""

from collections.abc import Iterable

from pipecd_model import paths
from pipecd_model.paths import BadPatternError

__all__ = ["BadPatternError", "check", "matches"]


def matches(patterns: Iterable[str], path: str) -> bool:
    """Returns whether a pattern matches this path, and none with `!` excludes it.

    Example:
        >>> matches(["docs/**", "!docs/keep.md"], "docs/a.md")
        True
        >>> matches(["docs/**", "!docs/keep.md"], "docs/keep.md")
        False
    """
    return paths.matches(patterns, path)


def check(pattern: str) -> None:
    """Raises BadPatternError for a pattern that can match nothing.

    Example:
        >>> check("docs/**")
    """
    paths.check(pattern)
