# SPDX-License-Identifier: Apache-2.0
"""The bytes of gRPC-Web, at their edges."""

import base64
import struct
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_wire.rpc import StatusError
from pipecd_wire.rpc.frames import (
    RequestReader,
    TextDecoder,
    frame,
    only_message,
    seconds,
    trailers,
)

LIMIT = 100


def from_text(*chunks: bytes) -> bytes:
    decoder = TextDecoder()
    decoded = b"".join(map(decoder.decode, chunks))
    decoder.finish()
    return decoded


@given(st.binary(max_size=LIMIT))
def test_a_framed_message_is_read_back(payload: bytes) -> None:
    assert only_message(frame(payload), limit=LIMIT) == payload


@given(st.binary(max_size=LIMIT), st.integers(min_value=1, max_value=LIMIT))
def test_base64_with_padding_at_any_chunk_border_is_read(data: bytes, size: int) -> None:
    chunks = [data[at : at + size] for at in range(0, len(data), size)]

    assert from_text(b"".join(map(base64.b64encode, chunks))) == data


@given(st.text())
def test_a_status_message_survives_its_way_through_a_header(message: str) -> None:
    block = trailers("NOT_FOUND", message)[5:].decode("ascii")

    lines = dict(line.split(":", 1) for line in block.removesuffix("\r\n").split("\r\n"))
    assert lines["grpc-status"] == "5"
    assert unquote(lines.get("grpc-message", "")) == message


def test_the_trailers_frame_has_its_own_flag() -> None:
    assert trailers("OK", "") == b"\x80\x00\x00\x00\x0fgrpc-status:0\r\n"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", "UNIMPLEMENTED", "has none"),
        (frame(b"a") + frame(b"b"), "UNIMPLEMENTED", "has more"),
        (frame(b"a", 0x01), "UNIMPLEMENTED", "compressed"),
        (frame(b"a", 0x80), "INVALID_ARGUMENT", "0x80"),
        (frame(b"abc")[:-1], "INVALID_ARGUMENT", "ends within a frame"),
        (frame(b"a" * (LIMIT + 1)), "RESOURCE_EXHAUSTED", "101 vs. 100"),
        (struct.pack(">BI", 0, 2**32 - 1), "RESOURCE_EXHAUSTED", "4294967295 vs. 100"),
    ],
)
def test_a_request_that_is_not_one_whole_message_is_refused(
    body: bytes, status: str, words: str
) -> None:
    with pytest.raises(StatusError, match=words) as refused:
        only_message(body, limit=LIMIT)

    assert refused.value.status == status


@given(st.binary(max_size=LIMIT), st.integers(min_value=1, max_value=7))
def test_base64_may_be_cut_anywhere_and_have_spaces(data: bytes, size: int) -> None:
    text = b" \n".join(base64.b64encode(data[at : at + 10]) for at in range(0, len(data), 10))

    assert from_text(*(text[at : at + size] for at in range(0, len(text), size))) == data


@pytest.mark.parametrize(
    "text",
    [b"!!!!", b"A", b"AAA", b"=", b"====", b"A===", b"QQ=", b"QQ=A", b"QQ==Q", b"\xff\xff=="],
)
def test_text_that_is_not_base64_is_refused(text: bytes) -> None:
    with pytest.raises(StatusError, match="not base64") as refused:
        from_text(text)

    assert refused.value.status == "INVALID_ARGUMENT"


def test_base64_in_very_many_pieces_is_refused_early() -> None:
    """Each padded piece costs a call: megabytes of them would hold the loop for seconds."""
    decoder = TextDecoder()

    with pytest.raises(StatusError, match="too many padded pieces"):
        decoder.decode(b"QQ==" * (TextDecoder.MOST_PIECES + 1))


def test_a_message_that_announces_too_much_is_refused_by_its_first_bytes() -> None:
    reader = RequestReader(limit=LIMIT, in_text=False)

    with pytest.raises(StatusError, match=r"101 vs\. 100"):
        reader.feed(struct.pack(">BI", 0, LIMIT + 1))


def test_spaces_without_end_are_refused() -> None:
    reader = RequestReader(limit=LIMIT, in_text=True)

    for _ in range(14):
        reader.feed(b" " * 10)
    with pytest.raises(StatusError, match="larger than max"):
        reader.feed(b" ")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("1H", 3600),
        ("2M", 120),
        ("5S", 5),
        ("1500m", 1.5),
        ("10u", 1e-5),
        ("99999999n", 0.099999999),
    ],
)
def test_a_timeout_is_read_in_all_its_units(header: str, expected: float) -> None:
    assert seconds(header) == pytest.approx(expected)


@pytest.mark.parametrize("header", ["", "5", "S", "-1S", "5s", "123456789S", "1.5S", "5S "])
def test_a_malformed_timeout_is_refused(header: str) -> None:
    with pytest.raises(StatusError, match="invalid grpc-timeout") as refused:
        seconds(header)

    assert refused.value.status == "INVALID_ARGUMENT"
