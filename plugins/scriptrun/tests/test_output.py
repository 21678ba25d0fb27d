# SPDX-License-Identifier: Apache-2.0
"""Bytes to lines, whatever the pieces they come in."""

from hypothesis import given
from hypothesis import strategies as st
from pipecd_plugin_scriptrun.output import LONGEST_PART, Lines


def test_only_whole_lines_are_passed_on() -> None:
    lines = Lines()

    assert lines.feed(b"one\ntw") == "one\n"
    assert lines.has_part
    assert lines.feed(b"o\nthree") == "two\n"
    assert lines.feed(b"", final=True) == "three"


def test_a_line_shown_early_does_not_leave_an_empty_line_behind() -> None:
    lines = Lines()
    lines.feed(b"password: ")

    assert lines.take_part() == "password: "
    assert lines.feed(b"\nnext\n") == "next\n"


def test_the_rest_of_a_line_shown_early_is_a_line() -> None:
    lines = Lines()
    lines.feed(b"50%")
    lines.take_part()

    assert lines.feed(b" 60%\n") == " 60%\n"


def test_a_character_split_between_two_reads_stays_whole() -> None:
    lines = Lines()

    assert lines.feed(b"caf\xc3") == ""
    assert lines.feed(b"\xa9\n") == "café\n"


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert Lines().feed(b"\xff\xfe\n") == "��\n"


def test_a_line_without_end_is_not_held_back_for_ever() -> None:
    lines = Lines()

    assert lines.feed(b"x" * (LONGEST_PART + 1)) == "x" * (LONGEST_PART + 1)
    assert not lines.has_part


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_nothing_is_lost_or_doubled(pieces: list[bytes]) -> None:
    lines = Lines()

    passed = "".join(lines.feed(piece) for piece in pieces) + lines.feed(b"", final=True)

    assert passed == b"".join(pieces).decode(errors="replace")
