# SPDX-License-Identifier: Apache-2.0
"""Frames of HTTP/2 on their way, however they are cut."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_controlplane.http.http2 import (
    PREFACE,
    ClientFrames,
    FrameLimitError,
    ServerFrames,
    StrangerCalls,
    goaway,
)
from pipecd_model.config.frontlimits import FrontLimitsConfig

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4

LIMITS = FrontLimitsConfig(
    max_stranger_calls=4,
    max_stranger_calls_per_connection=2,
    max_control_frames=100,
    max_header_bytes=4096,
)


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def call(stream: int, size: int = 10) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, bytes(size)) + frame(DATA, END_STREAM, stream, b"x")


def frames(calls: StrangerCalls | None = None) -> ClientFrames:
    return ClientFrames(LIMITS, calls or StrangerCalls(LIMITS.max_stranger_calls))


def fed(client: ClientFrames, data: bytes, sizes: list[int] | None = None) -> tuple[bytes, bytes]:
    """Returns what has passed, and what waits, when the data comes in pieces of these sizes."""
    passed = waiting = b""
    at = 0
    for size in [*(sizes or []), len(data)]:
        piece = data[at : at + size]
        at += size
        if waiting or not piece:
            waiting += piece
            continue
        now, waiting = client.feed(piece)
        passed += now
    return passed, waiting


@given(st.lists(st.integers(min_value=1, max_value=40), max_size=30))
def test_what_may_pass_passes_unchanged_however_it_is_cut(sizes: list[int]) -> None:
    data = PREFACE + frame(SETTINGS) + call(1) + call(3, 200) + frame(WINDOW_UPDATE, 0, 0, bytes(4))

    assert fed(frames(), data, sizes) == (data, b"")


@given(st.lists(st.integers(min_value=1, max_value=40), max_size=30))
def test_calls_beyond_those_of_a_stranger_wait_however_they_are_cut(sizes: list[int]) -> None:
    first = PREFACE + frame(SETTINGS) + call(1) + call(3)
    client = frames()

    passed, waiting = fed(client, first + call(5) + call(7), sizes)

    assert (passed, waiting) == (first, call(5) + call(7))
    client.close_stream(1)
    assert client.feed(waiting) == (call(5), call(7))


def test_a_partial_head_of_a_frame_waits_for_its_rest() -> None:
    client = frames()
    client.feed(PREFACE)

    assert client.feed(call(1)[:5]) == (b"", b"")
    assert client.feed(call(1)[5:]) == (call(1), b"")


@given(st.lists(st.integers(min_value=1, max_value=40), max_size=30))
def test_a_call_takes_its_place_when_all_of_its_head_has_come(sizes: list[int]) -> None:
    calls = StrangerCalls(1)
    client = frames(calls)
    head = frame(HEADERS, 0, 1, bytes(90)) + frame(CONTINUATION, 0, 1, bytes(90))
    last = frame(CONTINUATION, END_HEADERS, 1, bytes(9))

    passed, _ = fed(client, PREFACE + head + last[:-1], sizes)
    assert (passed, client.held_bytes) == (PREFACE, len(head + last) - 1)
    assert calls.take()
    calls.release()

    assert client.feed(last[-1:]) == (head + last, b"")
    assert not calls.take()


@pytest.mark.parametrize("stream", [0, 2])
def test_a_head_that_no_client_may_send_is_refused(stream: int) -> None:
    client = frames()
    client.feed(PREFACE)

    with pytest.raises(FrameLimitError):
        client.feed(call(stream))


def test_a_head_of_a_call_that_is_over_takes_no_place() -> None:
    calls = StrangerCalls(1)
    client = frames(calls)
    client.feed(PREFACE + call(5))
    client.close_stream(5)

    assert client.feed(call(5) + call(3)) == (call(5) + call(3), b"")
    assert calls.take()


def test_a_known_caller_waits_for_nothing() -> None:
    client = frames()
    _, waiting = client.feed(PREFACE + b"".join(call(stream) for stream in range(1, 41, 2)))
    assert waiting

    client.identify()

    assert client.feed(waiting) == (waiting, b"")


def test_places_of_all_strangers_together_are_limited_and_given_back() -> None:
    calls = StrangerCalls(3)
    one, two = frames(calls), frames(calls)
    resumed: list[str] = []
    calls.wait(lambda: resumed.append("first"))

    assert one.feed(PREFACE + call(1) + call(3))[1] == b""
    assert two.feed(PREFACE + call(1) + call(3))[1] == call(3)
    assert resumed == []
    one.leave()

    assert resumed == ["first"]
    assert two.feed(call(3)) == (call(3), b"")


def test_one_that_waits_in_vain_does_not_keep_the_next_one_waiting() -> None:
    calls = StrangerCalls(1)
    assert calls.take()
    resumed: list[str] = []
    calls.wait(lambda: resumed.append("gone meanwhile"))
    calls.wait(lambda: resumed.append("next"))

    calls.release()

    assert resumed == ["gone meanwhile", "next"]


@pytest.mark.parametrize(
    "flood",
    [
        frame(SETTINGS) * 20,
        frame(PING, 0, 0, bytes(8)) * 20,
        frame(WINDOW_UPDATE, 0, 0, bytes(4)) * 20,
        frame(2, 0, 1, bytes(5)) * 20,
        frame(0xFA) * 20,
        call(1) + frame(DATA, 0, 1) * 20,
        b"".join(call(n) + frame(RST_STREAM, 0, n, bytes(4)) for n in range(1, 9, 2)),
        frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1) * 40,
        frame(HEADERS, 0, 1, bytes(2000)) + frame(CONTINUATION, 0, 1, bytes(2000)) * 2,
        frame(HEADERS, END_HEADERS, 1, bytes(5000)),
    ],
)
def test_a_stranger_with_too_much_is_refused(flood: bytes) -> None:
    client = frames()
    client.feed(PREFACE)

    with pytest.raises(FrameLimitError):
        client.feed(flood)


@pytest.mark.parametrize(
    "flood", [frame(SETTINGS) * 200, b"".join(frame(RST_STREAM, 0, n) for n in range(1, 401, 2))]
)
def test_a_known_caller_may_have_more_but_not_without_end(flood: bytes) -> None:
    client = frames()
    client.feed(PREFACE)
    client.identify()

    with pytest.raises(FrameLimitError):
        client.feed(flood)


def test_pings_and_windows_of_a_known_caller_are_its_own_business() -> None:
    """Go's client measures with a ping for each answer, and asks for more after each."""
    client = frames()
    client.feed(PREFACE)
    client.identify()
    both = (frame(PING, 0, 0, bytes(8)) + frame(WINDOW_UPDATE, 0, 0, bytes(4))) * 5000

    assert client.feed(both) == (both, b"")


@given(st.lists(st.integers(min_value=1, max_value=12), max_size=40))
def test_ends_of_calls_are_seen_however_answers_are_cut(sizes: list[int]) -> None:
    ended: list[int] = []
    server = ServerFrames(ended.append)
    data = (
        frame(SETTINGS)
        + frame(HEADERS, END_HEADERS, 1, bytes(30))
        + frame(DATA, 0, 1, bytes(50))
        + frame(HEADERS, END_HEADERS | END_STREAM, 1, bytes(3))
        + frame(RST_STREAM, 0, 3, bytes(4))
        + frame(DATA, END_STREAM, 5)
    )
    at = 0
    for size in [*sizes, len(data)]:
        server.feed(data[at : at + size])
        at += size

    assert ended == [1, 3, 5]
    assert server.is_between_frames()


def test_a_connection_within_a_frame_cannot_be_told_anything() -> None:
    server = ServerFrames(lambda _stream: None)

    server.feed(frame(DATA, 0, 1, bytes(50))[:20])

    assert not server.is_between_frames()


def test_the_frame_that_ends_a_connection() -> None:
    assert goaway(0xB) == frame(7, 0, 0, b"\x7f\xff\xff\xff\x00\x00\x00\x0b")
