# SPDX-License-Identifier: Apache-2.0
"""A program's output on its way to the stage log: bytes as they come, whole lines as they go."""

import asyncio
import codecs
from typing import Final

from pipecd_sdk import StageLog

CHUNK: Final = 64 * 1024
LONGEST_PART: Final = 64 * 1024
"""Characters of a line without an end that are held back."""
PART_AFTER: Final = 0.2
"""Seconds after which a line without an end is shown all the same: it may be a question."""


class Lines:
    """Cuts a stream of bytes at the ends of its lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._part = ""
        self._is_cut = False

    @property
    def has_part(self) -> bool:
        """Is there the beginning of a line?"""
        return bool(self._part)

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """The lines that are whole by now, each with its end; may be empty."""
        text = self._part + self._decoder.decode(data, final)
        if self._is_cut and text:
            # What was shown as a line of its own has its end now: that is no empty line.
            self._is_cut = False
            text = text.removeprefix("\r").removeprefix("\n") if text[0] in "\r\n" else text
        whole, newline, self._part = text.rpartition("\n")
        if final or len(self._part) > LONGEST_PART:
            self._part, rest = "", self._part
            return whole + newline + rest
        return whole + newline

    def take_part(self) -> str:
        """The beginning of a line, shown before its end has come."""
        self._part, part = "", self._part
        self._is_cut = True
        return part


async def relay(reader: asyncio.StreamReader, log: StageLog) -> None:
    """Write everything that is read to the stage log, until there is no more."""
    lines = Lines()
    while True:
        try:
            async with asyncio.timeout(PART_AFTER if lines.has_part else None):
                data = await reader.read(CHUNK)
        except TimeoutError:
            await log.write(lines.take_part())
            continue
        if text := lines.feed(data, final=not data):
            await log.write(text)
        if not data:
            return
