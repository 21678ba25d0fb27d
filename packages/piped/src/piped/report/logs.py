# SPDX-License-Identifier: Apache-2.0
"""Stage logs on their way from plugins to the control plane: in order, none lost, nobody blocked.

A plugin's call is answered as soon as its lines are held here; one task per stage passes them on
and repeats each request until the control plane takes it. What is held is bounded: when the control
plane stays away and the memory is full, a plugin's call waits for a while and is then refused as
unavailable, and the plugin, which still has its lines, sends them again. The control plane tells
repeated lines by their index. The end of a log is the one thing that is waited for, so that a
stage that is shown as finished has its last line.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from pipecd_model.errors import PipecdError, StateError, UnavailableError
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipedservice import service_pb2 as pb
from piped.mirror.controlplane import ControlPlane
from piped.oplog import logger

log = logger(__name__)

LARGEST_REQUEST: Final = 1024 * 1024
"""Bytes of lines that are put into one request when they have gathered."""

BLOCK_COST: Final = 128
"""Bytes that a block takes in memory beside its content, roughly."""


class StageKey(NamedTuple):
    """Whose log it is."""

    deployment_id: str
    stage_id: str
    retried_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Lines that arrived together."""

    blocks: tuple[LogBlock, ...]
    size: int
    checkpoint: bool = False
    completed: bool = False


class Waiting:
    """The lines of one stage that the control plane has not taken yet."""

    __slots__ = ("batches", "empty", "sending")

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.empty = asyncio.Event()
        self.sending: asyncio.Task[None] | None = None

    def next_batches(self) -> list[Batch]:
        """What goes into the next request: one checkpoint, or as many others as fit."""
        taken = [self.batches[0]]
        size = taken[0].size
        if not taken[0].checkpoint:
            for batch in islice(self.batches, 1, None):
                size += batch.size
                if batch.checkpoint or size > LARGEST_REQUEST:
                    break
                taken.append(batch)
        return taken


class StageLogs:
    """Takes the lines of plugins, and passes them on while it is open."""

    def __init__(
        self,
        control: ControlPlane,
        *,
        largest: int = 32 * 1024 * 1024,
        patience: float = 10,
        flush: float = 10,
    ) -> None:
        """`largest`: bytes held at most. `patience`: seconds a call waits when there are as many.

        `flush`: seconds that the end of a log is waited for.
        """
        self._control = control
        self._largest = largest
        self._patience = patience
        self._flush = flush
        self._held = 0
        self._room = asyncio.Condition()
        self._waiting: dict[StageKey, Waiting] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def open(self, *, drain: float = 10) -> AsyncIterator["StageLogs"]:
        """Pass lines on while the block runs; at its end what is left gets `drain` seconds more."""
        tasks = asyncio.TaskGroup()
        await tasks.__aenter__()
        self._tasks = tasks
        for key in self._waiting:
            self._start(key)
        try:
            yield self
        finally:
            await self._drain(drain)
            self._tasks = None
            for waiting in self._waiting.values():
                if waiting.sending is not None:
                    waiting.sending.cancel()
            # Not given the block's own error: the group would wrap it.
            await tasks.__aexit__(None, None, None)

    @property
    def lines_waiting(self) -> int:
        """How many lines are held."""
        return sum(len(batch.blocks) for w in self._waiting.values() for batch in w.batches)

    async def report(self, key: StageKey, blocks: Iterable[LogBlock]) -> None:
        """Take lines; UnavailableError when there is no room for them in time."""
        await self._add(key, blocks, checkpoint=False, completed=False)

    async def checkpoint(
        self, key: StageKey, blocks: Iterable[LogBlock], *, completed: bool
    ) -> None:
        """Take all lines since the last checkpoint; the end of the log is waited for."""
        waiting = await self._add(key, blocks, checkpoint=True, completed=completed)
        if completed:
            try:
                async with asyncio.timeout(self._flush):
                    await waiting.empty.wait()
            except TimeoutError:
                # The stage goes on without: its lines are held and arrive when they can.
                log.warning("stage_log.late", **key._asdict(), lines=self.lines_waiting)

    async def _add(
        self, key: StageKey, blocks: Iterable[LogBlock], *, checkpoint: bool, completed: bool
    ) -> Waiting:
        held = tuple(blocks)
        size = sum(block.ByteSize() + BLOCK_COST for block in held)
        batch = Batch(blocks=held, size=size, checkpoint=checkpoint, completed=completed)
        try:
            async with asyncio.timeout(self._patience), self._room:
                await self._room.wait_for(lambda: self._fits(size))
                self._held += size
        except TimeoutError:
            raise UnavailableError(
                "piped holds as many log lines as it can", hint="the control plane takes none"
            ) from None
        if key not in self._waiting:
            self._waiting[key] = Waiting()
        waiting = self._waiting[key]
        waiting.batches.append(batch)
        self._start(key)
        return waiting

    def _fits(self, size: int) -> bool:
        return self._held == 0 or self._held + size <= self._largest

    def _start(self, key: StageKey) -> None:
        waiting = self._waiting[key]
        if self._tasks is not None and waiting.sending is None:
            waiting.sending = self._tasks.create_task(self._send(key), name=f"log {key.stage_id}")

    async def _send(self, key: StageKey) -> None:
        waiting = self._waiting[key]
        while waiting.batches:
            batches = waiting.next_batches()
            try:
                await self._pass_on(key, batches)
            except StateError as refused:
                # The log is closed: a plugin that was continued repeats what is there already.
                log.debug("stage_log.closed", **key._asdict(), reason=str(refused))
            except PipecdError as refused:
                log.warning("stage_log.refused", **key._asdict(), reason=str(refused))
            for batch in batches:
                waiting.batches.popleft()
                self._held -= batch.size
            async with self._room:
                self._room.notify_all()
        del self._waiting[key]
        waiting.empty.set()

    async def _pass_on(self, key: StageKey, batches: list[Batch]) -> None:
        control = self._control
        if batches[0].checkpoint:
            await control.tell(
                control.service.ReportStageLogsFromLastCheckpoint,
                pb.ReportStageLogsFromLastCheckpointRequest(
                    **key._asdict(), blocks=batches[0].blocks, completed=batches[0].completed
                ),
            )
        else:
            blocks = (block for batch in batches for block in batch.blocks)
            await control.tell(
                control.service.ReportStageLogs,
                pb.ReportStageLogsRequest(**key._asdict(), blocks=blocks),
            )

    async def _drain(self, limit: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while self._waiting:
                    await next(iter(self._waiting.values())).empty.wait()
        if self._waiting:
            log.error("stage_log.lost", lines=self.lines_waiting)
