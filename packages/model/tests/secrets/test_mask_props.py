# SPDX-License-Identifier: Apache-2.0
"""The masking door: however a text is cut, no value comes through and nothing else is lost."""

import base64
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipecd_model.secrets import Masker

# Few letters, so that values overlap, repeat and nearly match.
TEXT = st.text(alphabet="ab\n=", max_size=60)
VALUE = st.text(alphabet="ab\n=", min_size=6, max_size=12)


def streamed(masker: Masker, pieces: list[str]) -> str:
    return "".join([*(masker.feed(piece) for piece in pieces), masker.flush()])


@given(st.lists(VALUE, max_size=4), st.lists(st.one_of(TEXT, VALUE), max_size=12))
def test_cutting_a_text_changes_nothing(values: list[str], pieces: list[str]) -> None:
    masker = Masker(values)

    assert streamed(masker, pieces) == masker.line("".join(pieces))


@given(st.data())
def test_no_value_comes_through(data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUE, min_size=1, max_size=4))
    text = "".join(data.draw(st.lists(st.one_of(TEXT, st.sampled_from(values)), max_size=8)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    borders = [0, *cuts, len(text)]
    pieces = [text[start:end] for start, end in pairwise(borders)]

    shown = streamed(Masker(values), pieces)

    assert not [value for value in values if value in shown]
    assert not [line for value in values for line in value.split("\n") if leaks(line, shown)]


def leaks(line: str, shown: str) -> bool:
    return len(line) >= 6 and line in shown


@given(st.binary(min_size=9, max_size=200), st.binary(max_size=20), st.binary(max_size=20))
def test_no_base64_of_a_value_comes_through(value: bytes, before: bytes, after: bytes) -> None:
    text = value.hex()
    shown = Masker([text]).line(base64.b64encode(before + text.encode() + after).decode())

    kept = shown.replace("***", "")
    assert len(kept) <= len(base64.b64encode(before + after)) + 8


@given(
    st.lists(st.text(alphabet="ABCDEF", min_size=6), max_size=3),
    st.lists(st.text(alphabet="xyz .:\n", max_size=20), max_size=10),
)
def test_a_text_without_values_stays_as_it_is(values: list[str], pieces: list[str]) -> None:
    assert streamed(Masker(values), pieces) == "".join(pieces)


@given(st.text(min_size=6, max_size=5000), st.integers(1, 500))
def test_little_is_held_back(value: str, size: int) -> None:
    masker = Masker([value])
    held = 0

    for start in range(0, len(value) - 1, size):
        masker.feed(value[start : start + size])
        held = max(held, len(masker._held))

    assert held < 1024
