# SPDX-License-Identifier: Apache-2.0
"""The file of a script's output to lines: the same ones each time it is read."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pipecd_runtime.shim import frames
from pipecd_sdk.scripts.output import LONGEST_BLOCK, Lines, OutputFile


def fed(*pieces: bytes) -> list[str]:
    """All lines of these pieces, which follow each other."""
    lines, position, texts = Lines(), 0, []
    for piece in pieces:
        texts += [text for _, text in lines.feed(position, piece)]
        position += len(piece)
    return texts + [text for _, text in lines.cut()]


def test_only_whole_lines_are_passed_on() -> None:
    lines = Lines()

    assert list(lines.feed(0, b"one\ntw")) == [(0, "one")]
    assert list(lines.feed(6, b"o\nthree")) == [(4, "two")]
    assert list(lines.cut()) == [(8, "three")]


def test_a_line_shown_early_does_not_leave_an_empty_line_behind() -> None:
    lines = Lines()
    list(lines.feed(0, b"password: "))

    assert list(lines.cut()) == [(0, "password: ")]
    assert list(lines.feed(10, b"\nnext\n")) == [(11, "next")]


def test_the_rest_of_a_line_shown_early_is_a_line() -> None:
    lines = Lines()
    list(lines.feed(0, b"50%"))
    list(lines.cut())

    assert list(lines.feed(3, b" 60%\n")) == [(3, " 60%")]


def test_a_character_split_between_two_reads_stays_whole() -> None:
    assert fed(b"caf\xc3", b"\xa9\n") == ["café"]


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert fed(b"\xff\xfe\n") == ["��"]


def test_an_empty_line_is_a_line() -> None:
    assert fed(b"a\n\nb\r\n") == ["a", "", "b"]


def test_a_line_without_end_is_not_held_back_for_ever() -> None:
    text = "é" * LONGEST_BLOCK

    pieces = fed(b"x" + text.encode() + b"\nnext\n")

    assert "".join(pieces[:-1]) == "x" + text
    assert all(len(piece.encode()) <= LONGEST_BLOCK for piece in pieces)
    assert pieces[-1] == "next"


def test_a_line_of_exactly_the_longest_size_leaves_no_empty_one_behind() -> None:
    line = b"x" * LONGEST_BLOCK

    assert fed(line + b"\n", b"next\n") == fed(line, b"\nnext\n") == [line.decode(), "next"]


@given(st.lists(st.text(alphabet="aé€😀\n", max_size=30), max_size=10), st.integers(1, 7))
def test_nothing_is_lost_or_doubled(texts: list[str], size: int) -> None:
    data = "".join(texts).encode()

    passed = fed(*(data[start : start + size] for start in range(0, len(data), size)))

    assert passed == data.decode().removesuffix("\n").split("\n") or (data == b"" and not passed)


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_places_go_up_and_are_those_of_the_bytes(pieces: list[bytes]) -> None:
    data, lines, found, position = b"".join(pieces), Lines(), [], 0
    for piece in pieces:
        found += list(lines.feed(position, piece))
        position += len(piece)

    places = [place for place, _ in found]
    assert places == sorted(set(places))
    for place, text in found:
        line = data[place : data.index(b"\n", place)]
        assert text == line.decode(errors="replace").removesuffix("\r")


def test_a_frame_that_is_not_whole_is_waited_for(tmp_path: Path) -> None:
    """Also one that the shim could not finish."""
    file, whole = tmp_path / "output", frames.frame(frames.OUTPUT, 5_000_000, b"one\n")
    file.write_bytes(whole + whole[:-1])
    output = OutputFile(file)

    first = output.read()
    assert first is not None
    assert [(block.position, block.text, block.at) for block in first] == [(13, "one", 5.0)]
    assert output.read() is None

    file.write_bytes(whole + whole)
    assert [block.text for block in output.read() or ()] == ["one"]
    output.close()


def test_every_reader_cuts_where_the_writer_says(tmp_path: Path) -> None:
    file = tmp_path / "output"
    file.write_bytes(
        frames.frame(frames.OUTPUT, 1, b"sure? ")
        + frames.frame(frames.CUT, 2)
        + frames.frame(frames.OUTPUT, 3, b"yes")
        + frames.frame(frames.NOTE, 4, b"Killing")
        + frames.frame(frames.OUTPUT, 5, b"\nmore")
    )
    output = OutputFile(file)

    blocks = [*(output.read() or ()), *output.rest()]

    assert [(block.text, block.is_note) for block in blocks] == [
        ("sure? ", False),
        ("yes", False),
        ("Killing", True),
        ("more", False),
    ]
    output.close()


def test_a_file_that_is_not_there_yet_has_nothing_to_read(tmp_path: Path) -> None:
    assert OutputFile(tmp_path / "output").read() is None
