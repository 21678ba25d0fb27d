# SPDX-License-Identifier: Apache-2.0
"""Durations: what holds for every one of them."""

from contextlib import suppress
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from pipecd_model.config import BadValueError, Duration
from pipecd_model.config.values import format_duration

century = timedelta(days=36_500)
durations = st.timedeltas(min_value=-century, max_value=century)
parts = st.tuples(
    st.integers(min_value=0, max_value=10_000), st.sampled_from(["us", "ms", "s", "m", "h"])
)
MICROSECONDS = {"us": 1, "ms": 1_000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6}


@given(durations)
def test_what_is_shown_is_read_back(value: timedelta) -> None:
    assert Duration.parse(format_duration(value)) == value


@given(st.lists(parts, min_size=1, max_size=6), st.sampled_from(["", "+", "-"]))
def test_a_duration_is_the_sum_of_its_parts(written: list[tuple[int, str]], sign: str) -> None:
    text = sign + "".join(f"{number}{unit}" for number, unit in written)
    total = sum(number * MICROSECONDS[unit] for number, unit in written)

    assert Duration.parse(text) == timedelta(microseconds=-total if sign == "-" else total)


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text())
def test_any_value_is_a_duration_or_is_refused(value: object) -> None:
    with suppress(BadValueError):
        assert isinstance(Duration.from_config(value), timedelta)
