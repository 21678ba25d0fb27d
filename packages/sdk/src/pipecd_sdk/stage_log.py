# SPDX-License-Identifier: Apache-2.0
"""The stage log: prose for the person who deploys. What operators need goes to `logging`.

Texts become blocks of one line each, short enough for every message on their way. Where they go is
the sink's part: to piped (`_glue.stage_log`) or to a list (`testing`).
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, Protocol

LONGEST_LINE: Final = 64 * 1024
"""Bytes of one block; a longer line is cut into several."""

LINES_AT_ONCE: Final = 64
"""How many lines of a program's output go on before it is looked whether there is room."""


class Severity(IntEnum):
    """The severity of a line, with the numbers of the wire.

    Example:
        assert harness.log[-1].severity is Severity.ERROR
    """

    INFO = 0
    SUCCESS = 1
    ERROR = 2


class LogSink(Protocol):
    """The destination of the lines of one stage."""

    def append(self, severity: Severity, line: str) -> None:
        """Adds a line that is not empty and not too long."""

    def set_next_index(self, index: int, at: float | None) -> None:
        """Sets the index of the next line; the lines after it count up from there."""

    async def drain(self) -> None:
        """Waits while more lines are queued than memory should hold."""


class StageLog:
    """The log of one stage, which people read.

    Example:
        ctx.log.info("waiting for %d pods", missing)
        ctx.log.success("all pods are ready")
    """

    def __init__(self, sink: LogSink, *, prefix: str = "") -> None:
        self._sink = sink
        self._prefix = prefix

    def copy_with_prefix(self, prefix: str) -> "StageLog":
        """Returns the same log with these words in front of every line."""
        return StageLog(self._sink, prefix=self._prefix + prefix)

    def info(self, message: str, *args: object) -> None:
        """Logs progress. Arguments are put in as `logging` does it."""
        self._add(Severity.INFO, message % args if args else message)

    def success(self, message: str, *args: object) -> None:
        """Logs what succeeded."""
        self._add(Severity.SUCCESS, message % args if args else message)

    def error(self, message: str, *args: object) -> None:
        """Logs what went wrong. For the reason of a failure raise StageFailedError instead."""
        self._add(Severity.ERROR, message % args if args else message)

    def set_next_index(self, index: int, *, at: float | None = None) -> None:
        """Sets the index of the next line; the lines after it follow. It must be above all before.

        The log takes each index once. So a stage that is continued by another process can say again
        what it may have said before, with the same indexes: nothing is lost and nothing doubled.
        Count in microseconds of Unix time, as the lines of other runs of the stage do. `at` is the
        time that is shown with the next line, in Unix seconds; now, if it is not given.
        """
        self._sink.set_next_index(index, at)

    async def write(self, text: str) -> None:
        """Logs a program's output, line by line; waits while it comes faster than it is sent."""
        for number, line in enumerate(lines_of(text)):
            self._sink.append(Severity.INFO, self._prefix + line)
            if number % LINES_AT_ONCE == LINES_AT_ONCE - 1:
                await self._sink.drain()
        await self._sink.drain()

    def _add(self, severity: Severity, text: str) -> None:
        for line in lines_of(text):
            self._sink.append(severity, self._prefix + line)


def lines_of(text: str) -> Iterator[str]:
    """Yields the blocks of a text: its lines, cut where they are too long, an empty one as a blank.

    A generator, so that a large text is not held in memory a second time.
    """
    start, end = 0, len(text) - text.endswith("\n")
    while True:
        newline = text.find("\n", start, end)
        stop = end if newline < 0 else newline
        yield from _pieces(text, start, stop - text.endswith("\r", start, stop))
        if newline < 0:
            return
        start = newline + 1


def _pieces(text: str, start: int, end: int) -> Iterator[str]:
    if start == end:
        yield " "
    while start < end:
        encoded = text[start : min(start + LONGEST_LINE, end)].encode(errors="replace")
        cut = min(len(encoded), LONGEST_LINE)
        while cut < len(encoded) and encoded[cut] & 0xC0 == 0x80:
            cut -= 1  # not in the middle of a character
        piece = encoded[:cut].decode()
        yield piece
        start += len(piece)
