# SPDX-License-Identifier: Apache-2.0
"""Reads a script's output for the stage log: frames from the file, cut into lines.

Every reader, however often it reads the file, gets the same lines at the same positions.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pipecd_runtime.shim import frames

CHUNK: Final = 256 * 1024
LONGEST_BLOCK: Final = 60 * 1024
"""Bytes of a line after which it is cut."""


class OutputBlock(NamedTuple):
    """A line, or a piece of a long one."""

    position: int
    """Where it begins in the file."""
    text: str
    at: float
    """Unix seconds."""
    is_note: bool = False
    """A sentence of the shim."""


class Lines:
    """Cuts what was written at the ends of lines."""

    def __init__(self) -> None:
        self._part = bytearray()
        self._part_at = 0
        self._is_cut = False

    def feed(self, position: int, data: bytes) -> Iterator[tuple[int, str]]:
        """Yields the lines that are complete by now, each with its position."""
        start = 0
        if self._is_cut and data:
            # What was shown as a line of its own has its end now: that is no empty line.
            self._is_cut = False
            start = 2 if data.startswith(b"\r\n") else int(data.startswith(b"\n"))
        while start < len(data):
            if not self._part:
                self._part_at = position + start
            room = LONGEST_BLOCK - len(self._part)
            newline = data.find(b"\n", start, start + room + 1)
            if newline >= 0:
                self._part += data[start:newline]
                start = newline + 1
                yield self._take()
                continue
            end = _end_of_piece(data, start, start + room)
            self._part += data[start:end]
            start = end
            if end < len(data) or len(self._part) >= LONGEST_BLOCK:
                yield self._take()
                self._is_cut = start == len(data)

    def cut(self) -> Iterator[tuple[int, str]]:
        """Yields the beginning of a line whose end has not come yet, if there is one."""
        if self._part:
            yield self._take()
            self._is_cut = True

    def _take(self) -> tuple[int, str]:
        text = self._part.decode(errors="replace").removesuffix("\r")
        self._part.clear()
        return self._part_at, text


def _end_of_piece(data: bytes, start: int, end: int) -> int:
    """Returns where to cut, not in the middle of a UTF-8 character if possible."""
    if end >= len(data):
        return len(data)
    for back in range(4):
        if end - back >= start and data[end - back] & 0xC0 != 0x80:
            return end - back
    return end


class OutputFile:
    """Reads the file of a script's output as it grows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._number: int | None = None
        self._position = 0
        self._lines = Lines()
        self._at = 0.0
        self.shell_has_ended = False

    @property
    def position(self) -> int:
        """Returns the position in the file up to which it was read."""
        return self._position

    def close(self) -> None:
        if self._number is not None:
            os.close(self._number)

    def read(self) -> list[OutputBlock] | None:
        """Returns the next blocks, maybe none; None when no new frame is complete."""
        if self._number is None:
            try:
                self._number = os.open(self._file, os.O_RDONLY)
            except FileNotFoundError:
                return None
        data = os.pread(self._number, CHUNK, self._position)
        blocks: list[OutputBlock] = []
        start = 0
        while len(data) - start >= frames.HEADER:
            kind, micros, size = frames.header_of(data, start)
            if len(data) - start - frames.HEADER < size:
                break  # not whole yet
            begin = start + frames.HEADER
            blocks += self._blocks(kind, micros / 1e6, begin, data[begin : begin + size])
            start = begin + size
        self._position += start
        return blocks if start else None

    def rest(self) -> list[OutputBlock]:
        """Returns the last line, if it has no newline."""
        return [OutputBlock(position, text, self._at) for position, text in self._lines.cut()]

    def _blocks(self, kind: bytes, at: float, begin: int, data: bytes) -> Iterator[OutputBlock]:
        position = self._position + begin
        self._at = at
        if kind == frames.OUTPUT:
            for place, text in self._lines.feed(position, data):
                yield OutputBlock(place, text, at)
            return
        if kind == frames.SHELL_ENDED:
            self.shell_has_ended = True
            return
        for place, text in self._lines.cut():
            yield OutputBlock(place, text, at)
        if kind == frames.NOTE:
            yield OutputBlock(position, data.decode(errors="replace"), at, is_note=True)
