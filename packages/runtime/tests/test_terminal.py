# SPDX-License-Identifier: Apache-2.0
"""What a terminal gets to see of text that others wrote."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_runtime.terminal import RESET, make_printable, make_printable_line

HOSTILE = {
    "title": "\x1b]0;owned\x07",
    "title in C1": "\x9d0;owned\x9c",
    "clipboard": "\x1b]52;c;ZXZpbA==\x1b\\",
    "link": "\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\",
    "clear": "\x1b[2J\x1b[H",
    "clear in C1": "\x9b2J",
    "line up and over": "\x1b[1A\x1b[2Kall is well",
    "other screen": "\x1b[?1049h",
    "report": "\x1b[6n\x1b[c",
    "reset": "\x1bc",
    "device string": "\x1bP$q\x1b\\",
    "back over it": "secret\b\b\b\b\b\bpublic",
    "carriage return": "error: broken\rall is well  ",
    "bell": "\a",
    "other letters": "\x0e\x1b(0",
    "concealed": "\x1b[8mhidden",
    "concealed among colours": "\x1b[31;8mhidden",
    "concealed after a colour by its number": "\x1b[38;5;1;8mhidden",
    "concealed after a colour by its parts": "\x1b[48:2:1:2:3:8mhidden",
    "concealed as a colour": "\x1b[38;8mhidden",
    "a colour without its number": "\x1b[38;5m",
    "blinking": "\x1b[5m!",
    "a colour that is none": "\x1b[38;5;999m",
    "keys turned on": "\x1b[?1000h",
    "not a colour but an m": "\x1b[>4;2m",
    "a very long colour": "\x1b[" + "1;" * 1000 + "m",
    "right to left": "user\u202enimda",
    "isolate": "\u2066abc\u2069",
    "letters that nobody sees": "a\u200bb\ufeffc\u2060d\u00ade",
    "tags": "a\U000e0041b",
    "not text": "\udcff",
    "delete": "a\x7fb",
    "nul": "a\0b",
    "cut short": "\x1b[3",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_but_colours_reaches_the_terminal(text: str) -> None:
    for shown in (make_printable(text), make_printable_line(text)):
        assert not _controls(shown)
        shown.encode()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_kept_out_is_shown_as_text(text: str) -> None:
    assert re.search(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}", make_printable(text))


@pytest.mark.parametrize(
    "text",
    ["\x1b[31mred\x1b[0m", "\x1b[1;38;5;200mpink\x1b[0m", "\x1b[38;2;1;2;3;1mown\x1b[m\x1b[0m"],
)
def test_colours_pass(text: str) -> None:
    assert make_printable(text) == text


def test_a_colour_ends_with_its_text() -> None:
    """Otherwise one line of a log would colour, or hide, all that follows."""
    assert make_printable("\x1b[30mblack\n") == f"\x1b[30mblack{RESET}\n"


def test_lines_and_tabs_stay() -> None:
    assert make_printable("a\tb\r\nc\n") == "a\tb\nc\n"


def test_a_field_is_one_line_without_colours() -> None:
    assert make_printable_line("fix it\n\n\tall \x1b[31mred\n") == r"fix it  all \x1b[31mred"


def test_letters_of_every_language_stay() -> None:
    text = "grüße 世界 עברית 👩‍🚀 e\u0301"
    assert make_printable(text) == text
    assert make_printable_line(text) == text


@given(st.text())
def test_no_text_at_all_brings_a_control(text: str) -> None:
    assert not _controls(make_printable(text))
    line = make_printable_line(text)
    assert not _controls(line)
    assert "\n" not in line


def _controls(shown: str) -> list[str]:
    rest = re.sub(r"\x1b\[[0-9;:]*m", "", shown)
    return [each for each in rest if re.match(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", each)]
