# SPDX-License-Identifier: Apache-2.0
"""The form of a sealed log: an object of segments, and the directory that finds them.

A segment is some chunks, one after the other, each after a header with its number, its first line
and its length. The directory stays in the row that refers to the object: with it a reader fetches
only the segments that hold what it wants, and sees by their checksums whether they are whole.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.store.log_chunks import ABOVE_ALL, BELOW_ALL, LogChunk

SEGMENT_BYTES: Final = 256 * 1024
"""From which on a segment is full: what a reader of a single line fetches."""

_CHUNK: Final = struct.Struct(">QQI")
_ENTRY: Final = struct.Struct(">QQQqqQI32s")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegment:
    """Where some chunks are in an object."""

    object_key: str
    first_number: int
    last_number: int
    first_line: int
    lowest_index: int
    highest_index: int
    offset: int
    length: int
    sha256: bytes

    def read_chunks(self, data: bytes) -> list[LogChunk]:
        """Returns its chunks. Raises ValueError when the data is not what was written."""
        if hashlib.sha256(data).digest() != self.sha256:
            raise ValueError(f"the checksum of bytes {self.offset} and following is another one")
        return list(_iterate_chunks(data))


def _iterate_chunks(data: bytes) -> Iterator[LogChunk]:
    position = 0
    while position < len(data):
        number, first_line, length = _CHUNK.unpack_from(data, position)
        position += _CHUNK.size
        yield LogChunk(
            number=number, first_line=first_line, data=data[position : position + length]
        )
        position += length


class SegmentWriter:
    """Makes segments of chunks, and their directory."""

    def __init__(self, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._segment_bytes = segment_bytes
        self._directory: list[bytes] = []
        self._total = hashlib.sha256()
        self._frames: list[bytes] = []
        self._pending = 0
        self._numbers = [0, 0]
        self._first_line = 0
        self._indexes = [ABOVE_ALL, BELOW_ALL]
        self.size = 0
        self.first_line, self.last_number = 0, 0
        self.lowest_index, self.highest_index = ABOVE_ALL, BELOW_ALL

    def add(self, chunk: LogChunk, *, lowest_index: int, highest_index: int) -> bytes:
        """Returns a full segment to be written, or nothing yet."""
        if not self._frames:
            self._numbers[0], self._first_line = chunk.number, chunk.first_line
            self._indexes = [lowest_index, highest_index]
        self._numbers[1] = chunk.number
        self._indexes = [
            min(self._indexes[0], lowest_index),
            max(self._indexes[1], highest_index),
        ]
        header = _CHUNK.pack(chunk.number, chunk.first_line, len(chunk.data))
        self._frames += [header, chunk.data]
        self._pending += len(header) + len(chunk.data)
        return self.finish() if self._pending >= self._segment_bytes else b""

    def finish(self) -> bytes:
        """Returns the last segment, which need not be full."""
        if not self._frames:
            return b""
        data = b"".join(self._frames)
        self._directory.append(
            _ENTRY.pack(
                *self._numbers,
                self._first_line,
                *self._indexes,
                self.size,
                len(data),
                hashlib.sha256(data).digest(),
            )
        )
        self._total.update(data)
        self.size += len(data)
        self.first_line = self.first_line or self._first_line
        self.last_number = self._numbers[1]
        self.lowest_index = min(self.lowest_index, self._indexes[0])
        self.highest_index = max(self.highest_index, self._indexes[1])
        self._frames, self._pending = [], 0
        return data

    @property
    def directory(self) -> bytes:
        return b"".join(self._directory)

    @property
    def sha256(self) -> str:
        """Returns the checksum of the whole object."""
        return self._total.hexdigest()


def read_directory(object_key: str, directory: bytes) -> list[LogSegment]:
    """Returns the segments of an object, in their order."""
    return [
        LogSegment(
            object_key=object_key,
            first_number=first,
            last_number=last,
            first_line=line,
            lowest_index=lowest,
            highest_index=highest,
            offset=offset,
            length=length,
            sha256=digest,
        )
        for first, last, line, lowest, highest, offset, length, digest in _ENTRY.iter_unpack(
            directory
        )
    ]
