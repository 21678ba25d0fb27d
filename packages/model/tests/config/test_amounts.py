# SPDX-License-Identifier: Apache-2.0
"""Percentages and replicas as files write them."""

import pytest

from pipecd_model.config import BadValueError, Percentage, Replicas


@pytest.mark.parametrize(
    ("written", "expected"),
    [(10, 10), ("10", 10), ("10%", 10), (-5, -5), ("+5%", 5), (250, 250), (0, 0)],
)
def test_a_percentage_is_a_whole_number(written: object, expected: int) -> None:
    assert Percentage.from_config(written) == expected


@pytest.mark.parametrize(
    "written", [10.5, "10.5%", "1a%", "10 %", "", "%", True, None, [], {}, "9" * 30]
)
def test_anything_else_is_no_percentage(written: object) -> None:
    with pytest.raises(BadValueError):
        Percentage.from_config(written)


@pytest.mark.parametrize(
    ("written", "total", "expected"),
    [
        (2, 10, 2),
        ("2", 10, 2),
        ("10%", 10, 1),
        ("10%", 11, 2),
        ("100%", 3, 3),
        ("1%", 1, 1),
        (1.5, 10, 1),
        ("0", 10, 7),
        (0, 10, 7),
        ("0%", 10, 7),
    ],
)
def test_replicas_are_a_number_or_a_share_rounded_up(
    written: object, total: int, expected: int
) -> None:
    assert Replicas.from_config(written).resolve(total, default=7) == expected


@pytest.mark.parametrize("written", ["1.5", "1a%", True, [], None, ""])
def test_anything_else_is_no_number_of_replicas(written: object) -> None:
    with pytest.raises(BadValueError):
        Replicas.from_config(written)
