# SPDX-License-Identifier: Apache-2.0
"""Functions that make much out of little: how much it will be, said before it is made.

Everything else a template can call makes at most a few times of what it is given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from pipecd_model.templates.limits import ITEM, TooMuchError

_WIDEST: Final = 10_000
"""Characters to which printf may fill up one value."""

_PATTERN: Final = 512
"""Characters of a regular expression."""

_REPEATS: Final = 5000
"""All counts in a regular expression, multiplied: what it is written out to inside the engine."""

_SEARCHED: Final = 1 << 16
"""Characters of a text in which an expression is looked for."""

_COUNT: Final = re.compile(r"\{\d*,?(\d+)\}")
_NUMBER: Final = re.compile(r"\d+")
_VERSION: Final = 256


def _repeat(count: int, text: str) -> int:
    return count * len(text)


def _indent(spaces: int, text: str) -> int:
    return spaces * (1 + text.count("\n"))


def _replace(old: str, new: str, text: str) -> int:
    return text.count(old) * len(new)


def _join(separator: str, items: object) -> int:
    return len(separator) * len(items) if isinstance(items, list | tuple) else 0


def _wrap_with(width: int, separator: str, text: str) -> int:
    return (len(text) // max(width, 1) + 1) * max(len(separator), 1)


def _until(count: int) -> int:
    return abs(count) * ITEM


def _until_step(start: int, stop: int, step: int) -> int:
    return abs(stop - start) // max(abs(step), 1) * ITEM


def _sequence(*numbers: int) -> int:
    if len(numbers) == 3:
        start, step, stop = numbers
        return (abs(stop - start) // max(abs(step), 1) + 1) * 2 * ITEM
    return (abs(numbers[-1] - numbers[0]) + abs(numbers[0]) + 1) * 2 * ITEM if numbers else 0


def _printf(form: str, *values: object) -> int:
    widths = [int(each) for each in _NUMBER.findall(form) if len(each) < 19]
    if "*" in form:
        widths += [each for each in values if isinstance(each, int)]
    if any(abs(width) > _WIDEST for width in widths) or re.search(r"\d{19}", form):
        raise TooMuchError(f"printf may fill up to {_WIDEST:,} characters")
    largest = max((_written(each) for each in values), default=0)
    return form.count("%") * (largest + max(map(abs, widths), default=0))


def _written(value: object) -> int:
    return len(value) if isinstance(value, str) else len(str(value))


def _searched(pattern: str, text: str, *_: object) -> int:
    if len(pattern) > _PATTERN:
        raise TooMuchError(f"a regular expression may have {_PATTERN} characters")
    if math.prod(int(each[:6]) for each in _COUNT.findall(pattern)) > _REPEATS:
        raise TooMuchError("a regular expression repeats too often")
    if len(text) > _SEARCHED:
        raise TooMuchError(f"a regular expression may search {_SEARCHED:,} characters")
    return 0


def _replaced(pattern: str, text: str, new: str) -> int:
    _searched(pattern, text)
    return (len(text) + 1) * len(new)


def _versions(*texts: str) -> int:
    if any(len(text) > _VERSION for text in texts):
        raise TooMuchError(f"a version may have {_VERSION} characters")
    return 0


GROWTH: Final[Mapping[str, Callable[..., int]]] = {
    "repeat": _repeat,
    "indent": _indent,
    "nindent": _indent,
    "replace": _replace,
    "join": _join,
    "wrapWith": _wrap_with,
    "until": _until,
    "untilStep": _until_step,
    "seq": _sequence,
    "printf": _printf,
    "semverCompare": _versions,
    **dict.fromkeys(
        (
            *("regexFind", "regexFindAll", "regexMatch", "regexSplit"),
            *("mustRegexFind", "mustRegexFindAll", "mustRegexMatch", "mustRegexSplit"),
        ),
        _searched,
    ),
    **dict.fromkeys(
        (
            *("regexReplaceAll", "regexReplaceAllLiteral"),
            *("mustRegexReplaceAll", "mustRegexReplaceAllLiteral"),
        ),
        _replaced,
    ),
}
