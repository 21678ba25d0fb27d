# SPDX-License-Identifier: Apache-2.0
"""The Mann-Whitney U test: do two samples come from the same distribution?

Small samples get the exact distribution of U over all ways to deal the pooled values out, ties
included; large ones the normal approximation with a correction for ties and continuity. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from math import comb, erfc, sqrt
from typing import Final

EXACT_WITHOUT_TIES: Final = 50
EXACT_WITH_TIES: Final = 25
"""The largest size of either sample for which the distribution is computed exactly."""


class Alternative(Enum):
    """Which way of differing counts."""

    EITHER = "EITHER"
    HIGH = "HIGH"
    """The first sample has the greater values."""
    LOW = "LOW"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The outcome of the test."""

    u: float
    """U of the first sample: in how many pairs its value is the greater one, a tie counts half."""
    p_value: float
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _TieGroup:
    """Equal values of the pooled samples."""

    size: int
    doubled_rank: int
    """Twice the rank that they share: a whole number."""


def compare(
    first: Sequence[float], second: Sequence[float], alternative: Alternative
) -> Comparison:
    """Tests whether two samples differ; both must have values, all of them finite."""
    sizes = len(first), len(second)
    groups, doubled_sum = _rank(first, second)
    doubled_u = doubled_sum - sizes[0] * (sizes[0] + 1)
    has_ties = any(each.size > 1 for each in groups)
    is_exact = max(sizes) <= (EXACT_WITH_TIES if has_ties else EXACT_WITHOUT_TIES)
    if len(groups) == 1:
        p_value = 1.0
    elif is_exact:
        p_value = _find_exact(groups, sizes, doubled_sum, alternative)
    else:
        p_value = _approximate(groups, sizes, doubled_u / 2, alternative)
    return Comparison(u=doubled_u / 2, p_value=p_value, is_exact=is_exact)


def _rank(first: Sequence[float], second: Sequence[float]) -> tuple[list[_TieGroup], int]:
    """Returns the groups of equal values in order, and twice the sum of the first's ranks."""
    pooled = sorted([*((each, True) for each in first), *((each, False) for each in second)])
    groups: list[_TieGroup] = []
    before = doubled_sum = 0
    for _, tied in groupby(pooled, key=lambda each: each[0]):
        flags = [is_first for _, is_first in tied]
        group = _TieGroup(size=len(flags), doubled_rank=2 * before + len(flags) + 1)
        groups.append(group)
        doubled_sum += group.doubled_rank * sum(flags)
        before += len(flags)
    return groups, doubled_sum


def _find_exact(
    groups: Sequence[_TieGroup], sizes: tuple[int, int], doubled_sum: int, alternative: Alternative
) -> float:
    """Counts the ways to choose the first sample of the pooled values, by what U would be."""
    if any(each.size > 1 for each in groups):
        counts, place = _count_with_ties(groups, sizes), doubled_sum
    else:
        counts = _count_without_ties(*sizes)
        place = (doubled_sum - sizes[0] * (sizes[0] + 1)) // 2
    total = comb(sum(sizes), sizes[0])
    at_most, at_least = sum(counts[: place + 1]), sum(counts[place:])
    match alternative:
        case Alternative.LOW:
            return at_most / total
        case Alternative.HIGH:
            return at_least / total
        case Alternative.EITHER:
            if doubled_sum == sizes[0] * (sum(sizes) + 1):  # U is the same for both samples
                return 1.0
            # With ties the distribution may be askew: each tail is counted on its own side.
            return min(1.0, 2 * min(at_most, at_least) / total)


def _count_without_ties(first: int, second: int) -> list[int]:
    """Returns how many ways there are for each U: the coefficients of a Gaussian binomial."""
    counts = [1] + [0] * (first * second)
    for number in range(1, first + 1):
        for place in range(len(counts) - 1, second + number - 1, -1):
            counts[place] -= counts[place - second - number]
        for place in range(number, len(counts)):
            counts[place] += counts[place - number]
    return counts


def _count_with_ties(groups: Sequence[_TieGroup], sizes: tuple[int, int]) -> list[int]:
    """Returns how many ways there are for each doubled sum of ranks of the first sample.

    The counts of one number of chosen values are kept side by side in one large integer: adding a
    group of values is then a shift and a multiplication.
    """
    width = (comb(sum(sizes), sizes[0]).bit_length() + 8) // 8  # bytes of one count
    ways = [1] + [0] * sizes[0]
    for group in groups:
        for chosen in range(sizes[0], 0, -1):
            for of_group in range(1, min(group.size, chosen) + 1):
                moved = ways[chosen - of_group] << (8 * width * group.doubled_rank * of_group)
                ways[chosen] += comb(group.size, of_group) * moved
    packed = ways[sizes[0]].to_bytes(width * (2 * sizes[0] * sum(sizes) + 1), "little")
    return [
        int.from_bytes(packed[at : at + width], "little") for at in range(0, len(packed), width)
    ]


def _approximate(
    groups: Sequence[_TieGroup], sizes: tuple[int, int], u: float, alternative: Alternative
) -> float:
    count = sum(sizes)
    ties = sum(each.size**3 - each.size for each in groups)
    pairs = sizes[0] * sizes[1]
    deviation = sqrt(pairs / 12 * ((count + 1) - ties / (count * (count - 1))))
    if deviation == 0:
        return 1.0
    away = u - pairs / 2
    match alternative:
        case Alternative.LOW:
            return _normal((away + 0.5) / deviation)
        case Alternative.HIGH:
            return _normal(-(away - 0.5) / deviation)
        case Alternative.EITHER:
            z = -max(abs(away) - 0.5, 0.0) / deviation
            return min(1.0, 2 * _normal(z))


def _normal(z: float) -> float:
    """Returns the share of a standard normal distribution that is at most `z`."""
    return erfc(-z / sqrt(2)) / 2
