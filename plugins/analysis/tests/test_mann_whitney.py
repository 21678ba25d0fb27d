# SPDX-License-Identifier: Apache-2.0
"""The U test, against an enumeration of all outcomes and against a library of statistics."""

import random
from itertools import combinations
from math import comb

import pytest
from pipecd_plugin_analysis.mann_whitney import Alternative, compare
from scipy import stats

NAMES = {Alternative.EITHER: "two-sided", Alternative.HIGH: "greater", Alternative.LOW: "less"}


def count_pairs(first: list[float], second: list[float]) -> float:
    """U by its definition: in how many pairs the first is greater, a tie counts half."""
    return sum((a > b) + (a == b) / 2 for a in first for b in second)


def enumerate_p_value(first: list[float], second: list[float], alternative: Alternative) -> float:
    """The share of all ways to deal the values out that are at least as extreme."""
    pooled = [*first, *second]
    seen = count_pairs(first, second)
    at_most = at_least = 0
    for chosen in combinations(range(len(pooled)), len(first)):
        rest = [pooled[place] for place in range(len(pooled)) if place not in chosen]
        u = count_pairs([pooled[place] for place in chosen], rest)
        at_most += u <= seen
        at_least += u >= seen
    total = comb(len(pooled), len(first))
    if alternative is Alternative.LOW:
        return at_most / total
    if alternative is Alternative.HIGH:
        return at_least / total
    if seen == len(first) * len(second) / 2:
        return 1.0
    return min(1.0, 2 * min(at_most, at_least) / total)


def make_samples(seed: int, *, ties: bool, most: int) -> tuple[list[float], list[float]]:
    chance = random.Random(seed)  # noqa: S311 - the same in every run
    sizes = chance.randint(1, most), chance.randint(1, most)

    def draw() -> float:
        return float(chance.randint(0, 4)) if ties else chance.random()

    return [draw() for _ in range(sizes[0])], [draw() for _ in range(sizes[1])]


@pytest.mark.parametrize("alternative", Alternative)
@pytest.mark.parametrize("ties", [False, True], ids=["without ties", "with ties"])
def test_small_samples_have_the_p_value_of_an_enumeration(
    ties: bool, alternative: Alternative
) -> None:
    for seed in range(25):
        first, second = make_samples(seed, ties=ties, most=6)
        found = compare(first, second, alternative)
        if len({*first, *second}) == 1:
            assert found.p_value == 1
            continue
        assert found.u == count_pairs(first, second)
        assert found.p_value == pytest.approx(
            enumerate_p_value(first, second, alternative), abs=1e-9
        ), (first, second)


@pytest.mark.parametrize("alternative", Alternative)
def test_exact_p_values_of_larger_samples_are_those_of_the_library(
    alternative: Alternative,
) -> None:
    for seed in range(10):
        first, second = make_samples(seed, ties=False, most=50)
        expected = stats.mannwhitneyu(first, second, alternative=NAMES[alternative], method="exact")
        found = compare(first, second, alternative)
        assert found.is_exact
        assert found.p_value == pytest.approx(expected.pvalue, abs=1e-6)


@pytest.mark.parametrize("alternative", Alternative)
@pytest.mark.parametrize("ties", [False, True], ids=["without ties", "with ties"])
def test_p_values_of_large_samples_are_those_of_the_library(
    ties: bool, alternative: Alternative
) -> None:
    for seed in range(20):
        first, second = make_samples(seed, ties=ties, most=40)
        first, second = first + first, [each + (seed % 3) / 4 for each in second + second]
        first = first + [0.5 if not ties else 1.0] * (52 - min(52, len(first)))
        expected = stats.mannwhitneyu(
            first, second, alternative=NAMES[alternative], method="asymptotic"
        )
        found = compare(first, second, alternative)
        assert not found.is_exact
        assert found.p_value == pytest.approx(expected.pvalue, abs=1e-6)


@pytest.mark.parametrize(
    ("first", "second", "alternative", "p_value"),
    [
        ([1, 2, 3], [4, 5, 6], Alternative.EITHER, 0.1),
        ([1, 2, 3, 4], [5, 6, 7, 8], Alternative.EITHER, 2 / 70),
        ([1, 2, 3, 4], [5, 6, 7, 8], Alternative.LOW, 1 / 70),
        ([1, 2, 3, 4], [5, 6, 7, 8], Alternative.HIGH, 1.0),
        ([7, 7, 7, 7], [7, 7, 7, 7], Alternative.EITHER, 1.0),
    ],
)
def test_well_known_samples(
    first: list[float], second: list[float], alternative: Alternative, p_value: float
) -> None:
    assert compare(first, second, alternative).p_value == pytest.approx(p_value, abs=1e-12)
