# SPDX-License-Identifier: Apache-2.0
"""Tables fit the terminal: cut, never wrapped."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_pipectl.tables import cut_text, fit_widths, measure_width, shorten_ids
from pipecd_test_support.pipectl_site import run_in_terminal

TABLE = """
from pipecd_pipectl.tables import Column, print_table
rows = [("hello", "SUCCESS", "a reason " * 40), ("日本語" * 20, "FAILURE", "short")]
columns = [
    Column(heading="NAME", cell=lambda it: it[0]),
    Column(heading="STATUS", cell=lambda it: it[1], colour=lambda it: "green", fixed=True),
    Column(heading="REASON", cell=lambda it: it[2]),
]
print_table(columns, rows, wide={wide})
"""


@pytest.mark.parametrize("columns", [20, 40, 80, 132])
def test_a_table_is_cut_to_the_terminal(columns: int) -> None:
    shown = run_in_terminal([sys.executable, "-c", TABLE.format(wide=False)], columns=columns)

    assert shown.code == 0, shown.text
    assert len(shown.lines) == 3
    assert all(measure_width(line) <= columns for line in shown.lines)
    assert "…" in shown.text
    if columns >= 40:
        assert "SUCCESS" in shown.lines[1]


def test_a_wide_table_is_not_cut() -> None:
    shown = run_in_terminal([sys.executable, "-c", TABLE.format(wide=True)])

    assert "…" not in shown.text
    assert "日本語" * 20 in shown.text


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_no_color_takes_the_colours_away(environment: dict[str, str], coloured: bool) -> None:
    shown = run_in_terminal([sys.executable, "-c", TABLE.format(wide=False)], env=environment)

    assert ("\x1b[32m" in shown.raw) == coloured


@given(
    natural=st.lists(st.integers(0, 200), min_size=1, max_size=8),
    fixed=st.lists(st.booleans(), min_size=8, max_size=8),
    limit=st.integers(20, 200),
)
def test_columns_are_made_shorter_and_never_longer(
    natural: list[int], fixed: list[bool], limit: int
) -> None:
    widths = fit_widths(natural, fixed[: len(natural)], limit)

    assert all(width <= most for width, most in zip(widths, natural, strict=True))
    room = limit - 2 * (len(natural) - 1)
    if sum(natural) <= room:
        assert widths == natural
    elif sum(min(each, 6) for each in natural) <= room:
        assert sum(widths) == room


def test_fixed_columns_give_way_last() -> None:
    assert fit_widths([30, 10, 60], [False, True, False], 60) == [23, 10, 23]


@given(st.text(), st.integers(1, 30))
def test_a_text_that_is_cut_fits(text: str, width: int) -> None:
    shown = cut_text(text, width)

    assert measure_width(shown) <= width
    assert shown == text or shown.endswith("…")


def test_ids_are_as_short_as_they_can_be() -> None:
    assert shorten_ids(["01234567-a", "fedcba98-b"]) == {
        "01234567-a": "01234567",
        "fedcba98-b": "fedcba98",
    }
    assert shorten_ids(["01234567-a", "01234567-b"]) == {
        "01234567-a": "01234567-a",
        "01234567-b": "01234567-b",
    }
    assert shorten_ids(["d"]) == {"d": "d"}
