# SPDX-License-Identifier: Apache-2.0
"""Times as people read them."""

import pytest

from pipecd_pipectl.times import format_age, format_duration, format_moment

NOW = 1_700_000_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (184, "3m4s"),
        (3600, "1h"),
        (3900, "1h5m"),
        (90_000, "1d1h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (-30, "now"),
        (0, "now"),
        (5, "5s ago"),
        (190, "3m ago"),
        (7300, "2h ago"),
        (200_000, "2d ago"),
    ],
)
def test_an_age_has_one_unit(passed: int, text: str) -> None:
    assert format_age(NOW - passed, NOW) == text


def test_what_is_old_has_a_date() -> None:
    assert format_age(NOW - 400 * 86_400, NOW).startswith("2022-10-")


def test_what_never_happened_is_empty() -> None:
    assert format_age(0, NOW) == format_moment(0, NOW) == ""


@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**63), 253_402_300_800])
def test_a_time_that_no_calendar_has_is_shown_as_its_number(seconds: int) -> None:
    assert format_age(seconds, NOW) == format_moment(seconds, NOW) == str(seconds)
