# SPDX-License-Identifier: Apache-2.0
"""The door that stage logs pass: secrets are taken out before lines are kept or sent anywhere.

A value may be cut by the border between two lines, or between two reports of a plugin. So the end
of what was said is remembered, and a line whose end looks like the beginning of a value waits for a
moment for what follows. A net, not a promise: what comes later than that moment is masked, but its
beginning has been shown.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from pipecd_model.errors import PipecdError
from pipecd_model.secrets import Masker
from pipecd_model.secrets.mask import LONGEST, MASK
from pipecd_wire.model.logblock_pb2 import LogBlock
from piped.oplog import logger
from piped.report.logs import StageKey, StageLogs
from piped.secrets import KnownSecrets

log = logger(__name__)

WAIT: Final = 1.0
"""Seconds that a line waits for what may follow it."""

TELLING: Final = 4
"""Characters of a value that are worth the wait; any line ends with one or two of them."""


class Logs(Protocol):
    """Takes the lines of stages."""

    async def report(self, key: StageKey, blocks: Iterable[LogBlock], /) -> None:
        """Take lines."""

    async def checkpoint(
        self, key: StageKey, blocks: Iterable[LogBlock], /, *, completed: bool
    ) -> None:
        """Take all lines since the last checkpoint."""


class Stream:
    """The lines of one stage."""

    __slots__ = ("held", "reporting", "tail")

    def __init__(self) -> None:
        self.tail = ""
        """The end of what has been passed on, as it was."""
        self.held: list[LogBlock] = []
        self.reporting = asyncio.Lock()


class MaskedLogs:
    """The same logs, without secrets."""

    def __init__(self, logs: StageLogs, known: KnownSecrets, *, wait: float = WAIT) -> None:
        self._logs = logs
        self._known = known
        self._wait = wait
        self._streams: dict[StageKey, Stream] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def open(self, *, drain: float = 10) -> AsyncIterator["MaskedLogs"]:
        """Pass lines on while the block runs; see `StageLogs.open`."""
        async with self._logs.open(drain=drain):
            tasks = asyncio.TaskGroup()
            self._tasks = await tasks.__aenter__()
            try:
                yield self
            finally:
                self._tasks = None
                # Not given the block's own error: the group would wrap it.
                await tasks.__aexit__(None, None, None)

    async def report(self, key: StageKey, blocks: Iterable[LogBlock]) -> None:
        """Take lines; the last of them may wait here for a moment."""
        masker = self._known.masker(key.deployment_id)
        if not masker and key not in self._streams:
            await self._logs.report(key, blocks)
            return
        stream = self._stream(key)
        async with stream.reporting:
            waiting = [*stream.held, *blocks]
            ready, held = _ready(stream.tail, waiting, masker)
            if ready:
                await self._logs.report(key, masked(stream.tail, ready, masker))
            # Only now: lines that were not taken come again.
            stream.held = held
            stream.tail = _end(stream.tail, ready)
        if held and self._tasks is not None:
            self._tasks.create_task(self._let_go(key, stream, held[-1].index))

    async def checkpoint(
        self, key: StageKey, blocks: Iterable[LogBlock], *, completed: bool
    ) -> None:
        """Take all lines since the last checkpoint, and those that wait here."""
        masker = self._known.masker(key.deployment_id)
        if not masker and key not in self._streams:
            await self._logs.checkpoint(key, blocks, completed=completed)
            return
        stream = self._stream(key)
        async with stream.reporting:
            given = list(blocks)
            repeated = {block.index for block in given}
            waiting = [block for block in stream.held if block.index not in repeated]
            whole = [*waiting, *given]
            shown = masked(stream.tail, whole, masker)
            await self._logs.checkpoint(key, shown, completed=completed)
            stream.held = []
            stream.tail = _end(stream.tail, whole)
        if completed:
            self._streams.pop(key, None)

    def _stream(self, key: StageKey) -> Stream:
        if key not in self._streams:
            for each in [each for each in self._streams if not self._known.masker(each[0])]:
                del self._streams[each]  # of a deployment that ended without their end
            self._streams[key] = Stream()
        return self._streams[key]

    async def _let_go(self, key: StageKey, stream: Stream, index: int) -> None:
        """Pass on what waits, if nothing has followed."""
        await asyncio.sleep(self._wait)
        async with stream.reporting:
            if not stream.held or stream.held[-1].index != index:
                return
            masker = self._known.masker(key.deployment_id)
            try:
                await self._logs.report(key, masked(stream.tail, stream.held, masker))
            except PipecdError as error:
                log.warning("stage_log.held_too_long", **key._asdict(), reason=str(error))
                return
            stream.tail = _end(stream.tail, stream.held)
            stream.held = []


def masked(tail: str, blocks: list[LogBlock], masker: Masker) -> list[LogBlock]:
    """The same lines with every value in them replaced; `tail` is what was said before them."""
    text = tail + "".join(block.log for block in blocks)
    places = masker.places(text)
    if not places:
        return blocks
    shown = []
    begin = len(tail)
    for block in blocks:
        end = begin + len(block.log)
        shown.append(_with_log(block, _cut(text, begin, end, places)))
        begin = end
    return shown


def _cut(text: str, begin: int, end: int, places: list[tuple[int, int]]) -> str:
    """A part of a text without the values in it; one that began before it leaves a mark as well."""
    shown = []
    at = begin
    for start, stop in places:
        if stop <= begin or start >= end:
            continue
        shown += [text[at : max(start, at)], MASK]
        at = min(stop, end)
    shown.append(text[at:end])
    return "".join(shown)


def _with_log(block: LogBlock, text: str) -> LogBlock:
    if text == block.log:
        return block
    changed = LogBlock()
    changed.CopyFrom(block)
    changed.log = text
    return changed


def _ready(
    tail: str, blocks: list[LogBlock], masker: Masker
) -> tuple[list[LogBlock], list[LogBlock]]:
    """Which lines can be passed on, and which wait: those that a value may have begun in."""
    open_end = masker.unfinished(tail + "".join(block.log for block in blocks))
    if open_end < TELLING:
        return blocks, []
    number = len(blocks)
    while number and open_end > 0:
        number -= 1
        open_end -= len(blocks[number].log)
    return blocks[:number], blocks[number:]


def _end(tail: str, blocks: list[LogBlock]) -> str:
    return (tail + "".join(block.log for block in blocks))[-LONGEST:]
