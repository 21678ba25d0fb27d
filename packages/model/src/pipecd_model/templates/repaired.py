# SPDX-License-Identifier: Apache-2.0
"""Functions that the engine does otherwise than sprig, done as sprig does them.

Found by comparing both on thousands of calls; each has its case among the golden ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, cast

from gotpl.funcs.sprig import text_func_map

_ENGINE = text_func_map()


def _round(value: object, places: int, *half: float) -> float:
    """Round by what the number has become as a binary fraction, as Go does."""
    number = cast(float, _ENGINE["float64"](value))
    power = math.pow(10, places)
    digits = power * number
    if not math.isfinite(digits):
        return math.nan
    up = math.modf(digits)[0] >= (half[0] if half else 0.5)
    return float(math.ceil(digits) if up else math.floor(digits)) / power


def _nospace(value: str) -> str:
    """Take out white space of any alphabet; the engine takes letters apart into bytes."""
    return "".join(value.split())


def _regex_find_all(pattern: str, value: str, count: int) -> object:
    """Find nothing as an empty list, not as no list."""
    return _ENGINE["regexFindAll"](pattern, value, count) or []


REPAIRED: Final[Mapping[str, Callable[..., object]]] = {
    "mustRegexFindAll": _regex_find_all,
    "nospace": _nospace,
    "regexFindAll": _regex_find_all,
    "round": _round,
}
