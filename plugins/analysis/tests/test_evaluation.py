# SPDX-License-Identifier: Apache-2.0
"""What numbers mean: ranges, and differences between two samples."""

import pytest
from pipecd_plugin_analysis.evaluation import LookVerdict, judge_difference, judge_range
from pipecd_plugin_analysis.mann_whitney import Alternative

from pipecd_sdk.kit.analysis import ExpectedConfig
from pipecd_sdk.testing import NOON


@pytest.mark.parametrize(
    ("values", "low", "high", "verdict"),
    [
        ([0.1, 0.5], 0.1, 0.5, LookVerdict.EXPECTED),  # both ends belong to the range
        ([0.1, 0.51], 0.1, 0.5, LookVerdict.UNEXPECTED),
        ([0.09], 0.1, None, LookVerdict.UNEXPECTED),
        ([0.0], None, 0.0, LookVerdict.EXPECTED),  # a limit of zero is a limit
        ([0.001], None, 0.0, LookVerdict.UNEXPECTED),
        ([float("inf")], None, 5, LookVerdict.UNEXPECTED),
        ([], 1, 2, LookVerdict.EXPECTED),
    ],
)
def test_all_values_must_be_in_the_range(
    values: list[float], low: float | None, high: float | None, verdict: LookVerdict
) -> None:
    assert judge_range(NOON, values, ExpectedConfig(min=low, max=high)).verdict is verdict


def test_the_sentence_of_a_range_has_the_worst_value_and_the_numbers() -> None:
    found = judge_range(NOON, [0.2, 0.9, 0.6], ExpectedConfig(max=0.5))

    assert found.text == (
        "0.9 is out of range: 3 values from 0.2 to 0.9, median 0.6; expected at most 0.5; 2 outside"
    )


def judge(
    values: list[float], control: list[float], deviation: Alternative = Alternative.EITHER
) -> LookVerdict:
    return judge_difference(
        NOON, values, control, names=("canary", "primary"), deviation=deviation
    ).verdict


@pytest.mark.parametrize(
    ("deviation", "verdict"),
    [
        (Alternative.EITHER, LookVerdict.UNEXPECTED),
        (Alternative.LOW, LookVerdict.UNEXPECTED),
        (Alternative.HIGH, LookVerdict.EXPECTED),
    ],
)
def test_only_the_deviation_that_counts_is_a_failure(
    deviation: Alternative, verdict: LookVerdict
) -> None:
    assert judge([1, 2, 3, 4], [5, 6, 7, 8], deviation) is verdict


def test_samples_that_chance_explains_are_fine() -> None:
    assert judge([1, 2, 3], [4, 5, 6]) is LookVerdict.EXPECTED  # p-value 0.1
    assert judge([5, 5], [5, 5]) is LookVerdict.EXPECTED


def test_no_values_on_both_sides_are_fine_and_on_one_an_error() -> None:
    assert judge([], []) is LookVerdict.EXPECTED
    assert judge([1], []) is LookVerdict.ERROR
    assert judge([], [1]) is LookVerdict.ERROR


def test_too_few_values_to_show_a_difference_are_warned_of() -> None:
    """A window of a single sample passes the U test whatever it is."""
    few = judge_difference(
        NOON, [9], [1, 1, 1, 1], names=("canary", "primary"), deviation=Alternative.EITHER
    )
    enough = judge_difference(
        NOON, [9, 9, 9, 9], [1, 1, 1, 1], names=("canary", "primary"), deviation=Alternative.HIGH
    )

    assert few.verdict is LookVerdict.EXPECTED
    assert few.warning.startswith("only 1 value on one side")
    assert enough.verdict is LookVerdict.UNEXPECTED
    assert enough.warning == ""


def test_the_sentence_of_a_difference_has_the_p_value() -> None:
    found = judge_difference(
        NOON, [5, 6, 7, 8], [1, 2, 3, 4], names=("canary", "primary"), deviation=Alternative.HIGH
    )

    assert found.p_value == pytest.approx(1 / 70)
    assert found.text == (
        "canary is higher than primary: canary 4 values from 5 to 8, median 6.5;"
        " primary 4 values from 1 to 4, median 2.5;"
        " p-value 0.01429 (exact, differs at 0.05 or less)"
    )
