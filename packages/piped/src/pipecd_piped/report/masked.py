# SPDX-License-Identifier: Apache-2.0
"""Masks secrets in stage logs before lines are stored or sent.

A secret may be split between two lines, or between two reports of a plugin. So the end of the
reported text is remembered, and a line whose end looks like the beginning of a secret loses that
end: no line is held back here, since acknowledged lines must not be lost. This is a safety net, not
a guarantee.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from pipecd_model.secrets import Masker
from pipecd_model.secrets.mask import LONGEST, MASK
from pipecd_piped.report.logs import SpooledStageLogs, StageKey
from pipecd_piped.secrets import KnownSecrets
from pipecd_wire.model.logblock_pb2 import LogBlock

TELLING: Final = 4
"""Characters of a secret that reveal something of it; any line may end with one or two of them."""

THREAD_COST: Final = 2_000_000
"""The masker's cost from which on it runs in a thread, so that the event loop is not blocked."""


class Logs(Protocol):
    """Accepts the log lines of stages."""

    async def report(self, key: StageKey, blocks: Iterable[LogBlock], /) -> None:
        """Pass on lines of a stage; returns when they are acknowledged or durable."""

    async def checkpoint(
        self, key: StageKey, blocks: Iterable[LogBlock], /, *, completed: bool
    ) -> None:
        """Pass on all lines of a stage since its last checkpoint."""


class Stream:
    """The lines of one stage."""

    __slots__ = ("reporting", "tail")

    def __init__(self) -> None:
        self.tail = ""
        """The end of the text that has been passed on, unmasked."""
        self.reporting = asyncio.Lock()


class MaskedLogs:
    """Passes on logs with masked secrets."""

    def __init__(self, logs: SpooledStageLogs, known: KnownSecrets) -> None:
        self._logs = logs
        self._known = known
        self._streams: dict[StageKey, Stream] = {}

    @asynccontextmanager
    async def open(self, *, drain: float = 10) -> AsyncIterator["MaskedLogs"]:
        """Deliver lines while the block runs; see `SpooledStageLogs.open`."""
        async with self._logs.open(drain=drain):
            yield self

    async def report(self, key: StageKey, blocks: Iterable[LogBlock]) -> None:
        """Pass on lines of a stage; returns when they are acknowledged or durable."""
        masker = self._known.masker(key.deployment_id)
        if not masker and key not in self._streams:
            await self._logs.report(key, blocks)
            return
        stream = self._stream(key)
        async with stream.reporting:
            given = list(blocks)
            shown = await _mask_maybe_in_thread(stream.tail, given, masker, goes_on=True)
            await self._logs.report(key, shown)
            stream.tail = _end(stream.tail, given)  # only now: refused lines are sent again

    async def checkpoint(
        self, key: StageKey, blocks: Iterable[LogBlock], *, completed: bool
    ) -> None:
        """Pass on all lines of a stage since its last checkpoint."""
        masker = self._known.masker(key.deployment_id)
        if not masker and key not in self._streams:
            await self._logs.checkpoint(key, blocks, completed=completed)
            return
        stream = self._stream(key)
        async with stream.reporting:
            given = list(blocks)
            shown = await _mask_maybe_in_thread(stream.tail, given, masker, goes_on=not completed)
            await self._logs.checkpoint(key, shown, completed=completed)
            stream.tail = _end(stream.tail, given)
        if completed:
            self._streams.pop(key, None)

    def _stream(self, key: StageKey) -> Stream:
        if key not in self._streams:
            for each in [each for each in self._streams if not self._known.masker(each[0])]:
                del self._streams[each]  # of a deployment that ended without an end of this log
            self._streams[key] = Stream()
        return self._streams[key]


async def _mask_maybe_in_thread(
    tail: str, blocks: list[LogBlock], masker: Masker, *, goes_on: bool
) -> list[LogBlock]:
    """Runs `mask_blocks`, in a thread if it would block the event loop for long."""
    size = len(tail) + sum(len(block.log) for block in blocks)
    if masker.effort(size) < THREAD_COST:
        return mask_blocks(tail, blocks, masker, goes_on=goes_on)
    return await asyncio.to_thread(mask_blocks, tail, blocks, masker, goes_on=goes_on)


def mask_blocks(
    tail: str, blocks: list[LogBlock], masker: Masker, *, goes_on: bool
) -> list[LogBlock]:
    """Returns the lines with every secret replaced; `tail` is the end of the text before them.

    `goes_on`: more lines may follow, with the rest of a secret that begins at the end.
    """
    text = tail + "".join(block.log for block in blocks)
    places = masker.places(text)
    begun = masker.count_unfinished(text) if goes_on else 0
    if begun >= TELLING:
        places = [each for each in places if each[0] < len(text) - begun]
        places.append((len(text) - begun, len(text)))
    if not places:
        return blocks
    shown = []
    begin = len(tail)
    for block in blocks:
        end = begin + len(block.log)
        shown.append(_replace_log(block, _cut(text, begin, end, places)))
        begin = end
    return shown


def _cut(text: str, begin: int, end: int, places: list[tuple[int, int]]) -> str:
    """Returns a part of a text with a mask for every secret that overlaps it."""
    shown = []
    at = begin
    for start, stop in places:
        if stop <= begin or start >= end:
            continue
        shown += [text[at : max(start, at)], MASK]
        at = min(stop, end)
    shown.append(text[at:end])
    return "".join(shown)


def _replace_log(block: LogBlock, text: str) -> LogBlock:
    if text == block.log:
        return block
    changed = LogBlock()
    changed.CopyFrom(block)
    changed.log = text
    return changed


def _end(tail: str, blocks: list[LogBlock]) -> str:
    return (tail + "".join(block.log for block in blocks))[-LONGEST:]
