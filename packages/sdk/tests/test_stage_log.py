# SPDX-License-Identifier: Apache-2.0
"""Texts to blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_sdk.stage_log import LONGEST_LINE, lines_of


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("one", ["one"]),
        ("one\n", ["one"]),
        ("one\ntwo\n", ["one", "two"]),
        ("one\r\ntwo\r\n", ["one", "two"]),
        ("", [" "]),
        ("\n", [" "]),
        ("one\n\ntwo", ["one", " ", "two"]),
        ("a\ud800b", ["a?b"]),
    ],
)
def test_each_line_is_a_block_and_none_is_empty(text: str, blocks: list[str]) -> None:
    assert list(lines_of(text)) == blocks


@pytest.mark.parametrize("letter", ["x", "é", "€", "😀"])
def test_a_long_line_is_cut_between_characters(letter: str) -> None:
    text = "a" + letter * LONGEST_LINE

    blocks = list(lines_of(text))

    assert "".join(blocks) == text
    assert len(blocks) > 1
    assert all(len(block.encode()) <= LONGEST_LINE for block in blocks)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\r")))
def test_nothing_of_a_text_is_lost(text: str) -> None:
    blocks = list(lines_of(text))

    assert all(blocks)
    assert [block for block in blocks if block != " "] == [
        line for line in text.split("\n") if line and line != " "
    ]
