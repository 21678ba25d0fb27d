# SPDX-License-Identifier: Apache-2.0
"""Delivers stage logs from plugins to the control plane: in order, without loss, non-blocking.

A plugin's call returns when its lines are on disk (`spool`); one task per stage sends them and
retries each request until the control plane accepts it, and the next piped on the same data folder
delivers the backlog of this one. Memory holds only the requests in flight.

The spools on disk are bounded, for a stage and in total: beyond that a plugin's call waits for a
while and then fails as unavailable, and the plugin, which still has its lines, sends them again.
The end of a log is always accepted. When the disk fails or is full, a call returns only when the
control plane has its lines, or fails in the same way. The control plane recognizes repeated lines
by their index.

A stage that is shown as finished has its last line: the end of a log is delivered before the end of
its stage (`joined`). The next stage waits for neither, nor does either for a control plane that is
away.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from pipecd_model.errors import PipecdError, StateError, UnauthenticatedError, UnavailableError
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.report.lines import LARGEST_REQUEST, records_of
from pipecd_piped.report.spool import ChunkKind, Spool, StageKey, find_spools, probe
from pipecd_runtime.logs import logger
from pipecd_runtime.tasks import UnwrappedTaskGroup
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import Retry

__all__ = ["SpooledStageLogs", "StageKey"]

log = logger(__name__)

MOST_OF_STAGE: Final = 64 * 1024 * 1024
"""The most bytes of one stage's lines that are spooled on disk."""

MOST: Final = 1024 * 1024 * 1024
"""The most bytes of all stages' lines that are spooled on disk."""

AT_ONCE: Final = 8
"""Requests in flight: all of them together use about twice as many megabytes of memory."""

SYNC_AFTER_SECONDS: Final = 1.0
"""How long lines may be on disk unsynced, and the pause between two tries of a disk that failed.
Most lines are delivered before, and are never synced."""

LEAST_ROOM: Final = 64 * 1024
"""Bytes that must be written to a disk after a fault before it is used again."""

AGAIN: Final = Retry(attempts=None, base_seconds=0.2, cap_seconds=1)
"""Short pauses: a control plane that is back is noticed at once, and few requests run at a time."""


class Waiting:
    """A stage with undelivered lines."""

    __slots__ = ("empty", "over", "sending", "spool")

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.empty = asyncio.Event()
        self.over = asyncio.Event()
        """Set when its end need not be waited for: all is delivered, or a try has failed."""
        self.sending: asyncio.Task[None] | None = None


class SpooledStageLogs:
    """Spools the lines of plugins, and delivers them while it is open."""

    def __init__(
        self,
        control: ControlPlane,
        folder: Path | None = None,
        *,
        most_of_stage: int = MOST_OF_STAGE,
        most: int = MOST,
        patience_seconds: float = 10,
        flush: float = 10,
    ) -> None:
        """`folder`: where lines are spooled; without one, calls wait for the control plane.

        `patience_seconds`: how long a call waits for room. `flush`: how many seconds
        `wait_delivered` waits.
        """
        self.fault = ""
        """Why lines cannot be kept on disk, empty when they can."""
        self._control = control
        self._folder = folder
        self._most_of_stage = most_of_stage
        self._most = most
        self._patience_seconds = patience_seconds
        self._flush = flush
        self._room = asyncio.Condition()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._waiting: dict[StageKey, Waiting] = {}
        self._turns: WeakValueDictionary[StageKey, asyncio.Lock] = WeakValueDictionary()
        self._tasks: asyncio.TaskGroup | None = None
        self._too_large = 0

    @asynccontextmanager
    async def open(self, *, drain: float = 10) -> AsyncIterator["SpooledStageLogs"]:
        """Deliver lines while the block runs; then drain for at most `drain` seconds."""
        self._find_left()
        try:
            async with UnwrappedTaskGroup() as tasks:
                self._tasks = tasks
                for key in self._waiting:
                    self._start(key)
                syncing = tasks.create_task(self._sync(), name="stage logs disk")
                try:
                    yield self
                finally:
                    await self._drain(drain)
                    self._tasks = None
                    syncing.cancel()
                    for waiting in self._waiting.values():
                        waiting.over.set()
                        if waiting.sending is not None:
                            waiting.sending.cancel()
        finally:
            for waiting in self._waiting.values():
                waiting.spool.close()

    @property
    def spools(self) -> dict[StageKey, Spool]:
        """The undelivered lines, by stage."""
        return {key: waiting.spool for key, waiting in self._waiting.items()}

    @property
    def bytes_waiting(self) -> int:
        """The bytes of lines that are not delivered yet."""
        return sum(waiting.spool.size for waiting in self._waiting.values())

    async def report(self, key: StageKey, blocks: Iterable[LogBlock]) -> None:
        """Spool lines of a stage; raises UnavailableError when there is no room in time."""
        await self._add(key, ChunkKind.LINES, blocks)

    async def checkpoint(
        self, key: StageKey, blocks: Iterable[LogBlock], *, completed: bool
    ) -> None:
        """Spool all lines since the last checkpoint; `completed` marks the end of the log."""
        await self._add(key, ChunkKind.END if completed else ChunkKind.CHECKPOINT, blocks)

    async def wait_delivered(self, key: StageKey) -> None:
        """Wait until all lines of a stage so far are delivered, or until a try has failed."""
        if key not in self._waiting:
            return
        waiting = self._waiting[key]
        with suppress(TimeoutError):
            async with asyncio.timeout(self._flush):
                await waiting.over.wait()
        if not waiting.empty.is_set():
            # The end of the stage is shown before its last lines, which are delivered later.
            log.warning("stage_log.late", **key._asdict(), bytes=waiting.spool.size)

    async def _add(self, key: StageKey, kind: ChunkKind, blocks: Iterable[LogBlock]) -> None:
        records = records_of(kind, blocks)
        turn = self._turns.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(self._patience_seconds), turn:
                if kind is not ChunkKind.END:
                    size = sum(len(payload) for _, payload in records)
                    async with self._room:
                        await self._room.wait_for(lambda: self._fits(key, size))
                if not self._keep(key, records):
                    await self._pass_on_now(key, records)
        except TimeoutError:
            raise UnavailableError(
                "piped can take no more log lines",
                hint=self.fault or "the control plane takes none, and as many wait as may",
            ) from None

    def _fits(self, key: StageKey, size: int) -> bool:
        if key in self._waiting:
            held = self._waiting[key].spool.size
            return held + size <= self._most_of_stage and self._all_fit(size)
        return not self._waiting or self._all_fit(size)

    def _all_fit(self, size: int) -> bool:
        return self.bytes_waiting + size <= self._most

    def _keep(self, key: StageKey, records: list[tuple[ChunkKind, bytes]]) -> bool:
        """Spool lines on disk; returns False when the disk fails or there is no folder."""
        if self._folder is None or self.fault:
            return False
        known = self._waiting.get(key)
        waiting = known or Waiting(Spool(self._folder, key))
        try:
            waiting.spool.append(records)
        except OSError as error:
            self._too_large = sum(len(payload) for _, payload in records)
            self._fail(error)
            return False
        if known is None:
            self._waiting[key] = waiting
            self._start(key)
        return True

    def _fail(self, error: OSError) -> None:
        if not self.fault:
            self.fault = f"log lines cannot be kept in {str(self._folder)!r}: {error.strerror}"
            log.error(
                "stage_log.disk_fault",
                folder=str(self._folder),
                reason=error.strerror,
                hint="free or repair the disk; until then plugins keep lines that the control"
                " plane does not take",
            )

    async def _pass_on_now(self, key: StageKey, records: list[tuple[ChunkKind, bytes]]) -> None:
        """Deliver lines without the disk, after all spooled ones; retry until settled."""
        if key in self._waiting:
            await self._waiting[key].empty.wait()
        for kind, payload in records:
            attempt = 0
            while not await self._is_settled(key, kind, payload):
                attempt += 1
                await asyncio.sleep(AGAIN.pause(attempt))

    def _start(self, key: StageKey) -> None:
        waiting = self._waiting[key]
        if self._tasks is not None and waiting.sending is None:
            waiting.sending = self._tasks.create_task(self._send(key), name=f"log {key.stage_id}")

    async def _send(self, key: StageKey) -> None:
        waiting = self._waiting[key]
        attempt = 0
        while True:
            async with self._slots:
                try:
                    more = await self._send_next(key, waiting.spool)
                except OSError as error:
                    self._fail(error)
                    more = False
                if more is None:
                    break
                attempt = 0 if more else attempt + 1
                if more:
                    waiting.over.clear()
                else:
                    waiting.over.set()
                    # While holding the slot, so that a control plane that is away does not get more
                    # requests when more stages wait.
                    await asyncio.sleep(AGAIN.pause(attempt))
        del self._waiting[key]
        waiting.empty.set()
        waiting.over.set()
        await self._tell_room()

    async def _send_next(self, key: StageKey, spool: Spool) -> bool | None:
        """Send the next chunk; returns whether it was settled, None when nothing is left."""
        chunk = spool.next(LARGEST_REQUEST)
        if spool.is_broken:
            spool.is_broken = False
            log.error("stage_log.damaged", **key._asdict(), hint="the disk has lost lines")
        if chunk is None:
            return None
        if not await self._is_settled(key, chunk.kind, chunk.payload):
            return False
        spool.mark_delivered(chunk)
        await self._tell_room()
        return True

    async def _is_settled(self, key: StageKey, kind: ChunkKind, payload: bytes) -> bool:
        """Send lines; returns True when they are accepted or refused for good, False to retry."""
        try:
            await self._pass_on(key, kind, payload)
        except (UnavailableError, UnauthenticatedError) as error:
            log.debug("stage_log.not_delivered", **key._asdict(), reason=str(error))
            return False
        except StateError as refused:
            # The log is closed: a resumed plugin repeats lines that are stored already.
            log.info("stage_log.closed", **key._asdict(), reason=str(refused))
        except PipecdError as refused:
            log.warning("stage_log.refused", **key._asdict(), reason=str(refused))
        return True

    async def _pass_on(self, key: StageKey, kind: ChunkKind, payload: bytes) -> None:
        control = self._control
        request = pb.ReportStageLogsRequest.FromString(payload)
        if kind is ChunkKind.LINES:
            request.MergeFrom(pb.ReportStageLogsRequest(**key._asdict()))
            await control.call(control.service.ReportStageLogs, request)
        else:
            await control.call(
                control.service.ReportStageLogsFromLastCheckpoint,
                pb.ReportStageLogsFromLastCheckpointRequest(
                    **key._asdict(), blocks=request.blocks, completed=kind is ChunkKind.END
                ),
            )

    async def _tell_room(self) -> None:
        async with self._room:
            self._room.notify_all()

    def _find_left(self) -> None:
        """Load the backlog that an earlier piped could not deliver."""
        if self._folder is None:
            return
        try:
            found = find_spools(self._folder)
        except OSError as error:
            raise StateError(
                f"cannot read {str(self._folder)!r}: {error.strerror}",
                hint="it holds log lines that the control plane does not have yet; repair the disk",
            ) from error
        self._waiting |= {spool.key: Waiting(spool) for spool in found}
        if found:
            log.info("stage_log.catching_up", stages=len(found), bytes=self.bytes_waiting)

    async def _sync(self) -> None:
        while True:
            before = self.spools
            await asyncio.sleep(SYNC_AFTER_SECONDS)
            for key, spool in before.items():
                if key in self._waiting and not spool.is_synced:
                    try:
                        await asyncio.to_thread(spool.sync)
                    except OSError as error:
                        self._fail(error)
            if self.fault and self._folder is not None:
                await self._try_disk(self._folder)

    async def _try_disk(self, folder: Path) -> None:
        """Probe a disk after a fault, and clear the fault when it works again."""
        try:
            await asyncio.to_thread(probe, folder, max(self._too_large, LEAST_ROOM))
        except OSError as error:
            self._fail(error)
        else:
            self.fault = ""
            log.info("stage_log.disk_back", folder=str(folder))

    async def _drain(self, limit: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while self._waiting:
                    await next(iter(self._waiting.values())).empty.wait()
        if self._waiting:
            log.warning("stage_log.undelivered", bytes=self.bytes_waiting)
