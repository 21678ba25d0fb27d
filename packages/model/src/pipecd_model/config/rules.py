# SPDX-License-Identifier: Apache-2.0
"""Rules that several documents share: what a time, a pattern, a name or a list may be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any

from pipecd_model import paths
from pipecd_model.close_matches import find_close_matches
from pipecd_model.config.schema import Report
from pipecd_model.gitnames import BadGitNameError
from pipecd_model.regex import BadRegexError, Regex, compile_regex


def not_negative(report: Report, key: str, value: timedelta) -> None:
    """Reports a negative duration."""
    if value < timedelta():
        report.fault(key, message=f"must not be negative: {value}")


def positive(report: Report, key: str, value: timedelta) -> None:
    """Reports a duration that is not longer than zero."""
    if value <= timedelta():
        report.fault(key, message=f"must be positive: {value}")


def one_of(report: Report, *path: str | int, value: str, known: Collection[str]) -> None:
    """Reports a value that is not one of the allowed names."""
    if value and value not in known:
        report.fault(*path, message=f"unknown value {value!r}", hint=nearest(value, known))


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """Suggest what was probably meant."""
    near = find_close_matches(name, list(known), cutoff=cutoff)
    return f"did you mean {near[0]!r}?" if near else ""


def unique(report: Report, *path: str, of: str, values: Iterable[Any]) -> None:
    """Refuse a value that two items of the list at the path share; empty ones are not compared."""
    first: dict[Any, int] = {}
    for index, value in enumerate(values):
        if not value:
            continue
        if value in first:
            report.fault(
                *path,
                index,
                of,
                message=f"{of} {value!r} is used already, by item {first[value] + 1}",
            )
        first.setdefault(value, index)


def path_patterns(report: Report, key: str, patterns: Iterable[str]) -> None:
    """Refuse path patterns that cannot be used."""
    for index, pattern in enumerate(patterns):
        try:
            paths.check(pattern)
        except paths.BadPatternError as error:
            report.fault(key, index, message=str(error))


def relative_paths(report: Report, key: str, names: Iterable[str]) -> None:
    """Refuse files outside of any repository; the rest is known only once there is a checkout."""
    for index, name in enumerate(names):
        if name.startswith("/"):
            report.fault(
                key,
                index,
                message=f"not inside the repository: {name!r}",
                hint="write it relative to the application's folder",
            )


def git_name(report: Report, key: str, name: Callable[[str], object], value: str) -> None:
    """Reports a name that must not reach git; an empty name is left to other checks."""
    if not value or report.is_broken(key):
        return
    try:
        name(value)
    except BadGitNameError as error:
        report.fault(key, message=str(error), hint=error.hint)


def regex(report: Report, key: str, pattern: str) -> Regex | None:
    """Returns the compiled expression; None, with a fault reported, for one that is not RE2."""
    try:
        return compile_regex(pattern)
    except BadRegexError as error:
        hint = "look-around and back-references are not supported"
        report.fault(
            key,
            message=f"not a regular expression: {pattern!r}",
            hint=f"{error}; {hint}" if "perl operator" in str(error) else str(error),
        )
        return None
