# SPDX-License-Identifier: Apache-2.0
"""Parses the frames of HTTP/2 connections as far as limits need it.

gRPC handles the frames; here they are parsed on their way to it. Few calls of a stranger are
authenticated at the same time: what comes after them waits in its socket. A call counts once its
head is complete, so that a head that never ends takes no place from others. The size of a head and
the rate of frames without data are limited for all.
"""

import time
from collections.abc import Callable
from typing import Final

from pipecd_model.config.frontlimits import FrontLimitsConfig

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD: Final = 9
"""Bytes before the payload of a frame: length, type, flags, stream."""

DATA: Final = 0
HEADERS: Final = 1
RST_STREAM: Final = 3
SETTINGS: Final = 4
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
ACK: Final = 0x1

MOST_CONTINUATIONS: Final = 32
"""Frames that the head of one call may take; by default each has 16 KiB."""

STRANGERS_SHARE: Final = 10
"""Strangers have this part of the allowed control frames."""

UNLIMITED_IF_KNOWN: Final = frozenset({WINDOW_UPDATE, PING})
"""Known callers send both as often as they read, and measure bandwidth with PING; gRPC has a limit
of its own for it. A client that was sent nothing has no reason for either."""

NO_ERROR: Final = 0x0
ENHANCE_YOUR_CALM: Final = 0xB


class FrameLimitError(Exception):
    """A connection has broken a limit: too large a head, or too many frames without data."""


class StrangerCalls:
    """Limits the calls of strangers over all connections; the others wait in order."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: dict[Callable[[], None], None] = {}

    def take(self) -> bool:
        """Takes a place; returns whether there was one."""
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    def wait(self, resume: Callable[[], None]) -> None:
        """Calls `resume` when there is a place again, which another may take before it."""
        self._waiting[resume] = None

    def release(self, count: int = 1) -> None:
        self._free += count
        while self._free > 0 and self._waiting:
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()


class ClientFrames:
    """Parses what a client sends, from its preface on."""

    def __init__(self, limits: FrontLimitsConfig, calls: StrangerCalls) -> None:
        self.is_known = False
        self._limits = limits
        self._calls = calls
        self._open: set[int] = set()
        self._last_stream = 0
        self._skip = len(PREFACE)
        self._partial = b""
        self._head_bytes = 0
        self._continuations = 0
        self._resets = 0
        self._tokens = float(limits.max_control_frames) / STRANGERS_SHARE
        self._counted_at = time.monotonic()

    @property
    def held_bytes(self) -> int:
        """Returns how many bytes are held until the rest of their frame or head has arrived."""
        return len(self._partial)

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns the bytes to forward, and those that wait. Raises FrameLimitError for a flood."""
        if self._partial:
            data = self._partial + data
            self._partial = b""
        is_known = self.is_known
        size = len(data)
        at = self._skip
        while at + HEAD <= size:
            kind = data[at + 3]
            length = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if kind == DATA:
                if length == 0 and not data[at + 4] & END_STREAM:
                    self._count_control()
            elif is_known:
                if kind not in UNLIMITED_IF_KNOWN:
                    self._check_known(kind, data[at + 4], length)
            elif kind == HEADERS and not self._is_head_whole(data, at):
                break
            elif not self._check(kind, data[at + 4], length, data[at + 5 : at + HEAD]):
                self._skip = 0
                return data[:at], data[at:]
            at += HEAD + length
        if at >= size:
            self._skip = at - size
            return data, b""
        self._skip = 0
        self._partial = data[at:]
        return data[:at], b""

    def close_stream(self, stream: int) -> None:
        """Gives back the place of a stranger's call that has ended."""
        if stream in self._open:
            self._open.discard(stream)
            self._calls.release()

    def identify(self) -> None:
        """Marks the caller as known: its calls no longer wait for a place."""
        self.is_known = True
        self.leave()

    def leave(self) -> None:
        """Gives back all places of this connection."""
        count = len(self._open)
        self._open.clear()
        if count:
            self._calls.release(count)

    def is_full(self) -> bool:
        """Returns whether this connection has as many calls as a stranger's may have."""
        return len(self._open) >= self._limits.max_stranger_calls_per_connection

    def _check_known(self, kind: int, flags: int, length: int) -> None:
        """Counts a frame that is no DATA. Raises FrameLimitError for one too many."""
        if kind == HEADERS:
            self._head_bytes, self._continuations = 0, 0
            self._count_head(length)
        elif kind == CONTINUATION:
            self._continuations += 1
            self._count_head(length)
        elif not (kind in {SETTINGS, PING} and flags & ACK):
            self._count_control()

    def _check(self, kind: int, flags: int, length: int, stream: bytes) -> bool:
        """Returns whether a stranger's frame may pass now."""
        if kind == HEADERS and not self._may_open(int.from_bytes(stream, "big") & 0x7FFFFFFF):
            return False
        self._check_known(kind, flags, length)
        if kind == RST_STREAM:
            self._count_reset(int.from_bytes(stream, "big") & 0x7FFFFFFF)
        return True

    def _is_head_whole(self, data: bytes, at: int) -> bool:
        """Returns whether the head of a call is complete. Raises FrameLimitError if too large."""
        self._head_bytes, self._continuations = 0, 0
        while at + HEAD <= len(data):
            length = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            self._count_head(length)
            flags, next_at = data[at + 4], at + HEAD + length
            if flags & END_HEADERS:
                return next_at <= len(data)
            if next_at + HEAD <= len(data) and data[next_at + 3] != CONTINUATION:
                return True  # nothing else may follow: gRPC ends such a connection
            self._continuations += 1
            at = next_at
        return False

    def _may_open(self, stream: int) -> bool:
        if stream % 2 == 0:
            raise FrameLimitError("a head of no call")
        if stream <= self._last_stream:  # gRPC ignores it unless the call is open
            self._count_control()
            return True
        if self.is_full() or not self._calls.take():
            return False
        self._last_stream = stream
        self._open.add(stream)
        return True

    def _count_reset(self, stream: int) -> None:
        """Gives back the place of a call that was reset. Raises FrameLimitError for too many.

        Resets are limited because such a call may still cost as much as any other.
        """
        self._resets += 1
        if self._resets > self._limits.max_stranger_calls_per_connection:
            raise FrameLimitError("too many calls that were reset")
        self.close_stream(stream)

    def _count_head(self, length: int) -> None:
        self._head_bytes += length
        if (
            self._head_bytes > self._limits.max_header_bytes
            or self._continuations > MOST_CONTINUATIONS
        ):
            raise FrameLimitError("too large a head")

    def _count_control(self) -> None:
        """Takes a token of a bucket for one second. Raises FrameLimitError when it is empty."""
        rate = self._limits.max_control_frames / (1 if self.is_known else STRANGERS_SHARE)
        now = time.monotonic()
        self._tokens = min(rate, self._tokens + (now - self._counted_at) * rate)
        self._counted_at = now
        if self._tokens < 1:
            raise FrameLimitError("too many frames without data")
        self._tokens -= 1


class ServerFrames:
    """Parses what the gRPC server sends to a stranger, to see which calls have ended."""

    def __init__(self, ended: Callable[[int], None]) -> None:
        self._ended = ended
        self._skip = 0
        self._partial = b""

    def feed(self, data: bytes) -> None:
        if self._partial:
            data = self._partial + data
            self._partial = b""
        size = len(data)
        at = self._skip
        while at + HEAD <= size:
            kind = data[at + 3]
            if kind == RST_STREAM or (kind in {DATA, HEADERS} and data[at + 4] & END_STREAM):
                self._ended(int.from_bytes(data[at + 5 : at + HEAD], "big") & 0x7FFFFFFF)
            at += HEAD + (data[at] << 16 | data[at + 1] << 8 | data[at + 2])
        self._skip = max(at - size, 0)
        self._partial = data[at:] if at < size else b""

    def is_between_frames(self) -> bool:
        return not self._skip and not self._partial


def goaway(error: int) -> bytes:
    """Returns a GOAWAY frame: no new call is accepted on this connection."""
    payload = (2**31 - 1).to_bytes(4, "big") + error.to_bytes(4, "big")
    return len(payload).to_bytes(3, "big") + bytes([GOAWAY, 0, 0, 0, 0, 0]) + payload
