# SPDX-License-Identifier: Apache-2.0
"""Sends the log lines of one stage to piped: in batches, in order, with retries.

Lines carry a growing index, and the control plane stores each index once; so a batch whose response
was lost is simply sent again. What our agent has acknowledged is durable. Upstream's control plane
makes lines durable only with a checkpoint, so under a Go agent all lines since the last checkpoint
are held here and sent once more, now and then and at the end.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec

from pipecd_sdk.stage_log import Severity
from pipecd_wire.model import logblock_pb2
from pipecd_wire.pluginservice import service_pb2, service_pb2_grpc
from pipecd_wire.rpc import CallError, Retry, call

log = logging.getLogger(__name__)

BATCH_BLOCKS: Final = 500
BATCH_TEXT: Final = 512 * 1024
"""Characters in one message, of up to four bytes each: Go peers take 4 MiB and not more."""
MOST_WAITING: Final = 5_000
"""Queued blocks before `drain` waits."""
MOST_WAITING_TEXT: Final = 16 * BATCH_TEXT
LAST_FLUSH_SECONDS: Final = 60.0
"""Seconds that the last lines may take; then the stage ends without them."""
STOPPING_FLUSH_SECONDS: Final = 5.0
"""The same while the process stops under a Go agent, which is stopping as well and has closed its
port already."""


class SendingPace(msgspec.Struct, frozen=True, kw_only=True):
    """How often lines are sent."""

    flush: float
    """Seconds that a line waits for others, and that are between two messages."""
    gather: float
    """The same for a line that comes when nothing was sent for that long: a person waits for it."""
    checkpoint: float | None
    """Seconds between checkpoints; None where an acknowledged line is durable."""


OURS: Final = SendingPace(flush=0.1, gather=0.01, checkpoint=None)
# Upstream's control plane rewrites the whole log at each call: fewer of them.
UPSTREAMS: Final = SendingPace(flush=1.0, gather=1.0, checkpoint=120.0)

_BACK_OFF: Final = Retry(attempts=None, base_seconds=0.1, cap_seconds=2.0)


class StageLogSender:
    """Sends the lines of one stage; `run` is its task, `finish` its end."""

    def __init__(
        self,
        service: service_pb2_grpc.PluginServiceStub,
        *,
        deployment_id: str,
        stage_id: str,
        retried_count: int,
        pace: SendingPace,
    ) -> None:
        self._service = service
        self._ids: dict[str, Any] = {
            "deployment_id": deployment_id,
            "stage_id": stage_id,
            "retried_count": retried_count,
        }
        self._pace = pace
        # Microseconds: a second run of the stage starts above every index of the first.
        self._next = time.time_ns() // 1000
        self._at: float | None = None
        self._waiting: deque[logblock_pb2.LogBlock] = deque()
        self._waiting_text = 0
        self._kept: list[logblock_pb2.LogBlock] = []
        self._kept_text = 0
        self._checkpoint_at = time.monotonic()
        self._flushed_at = -self._pace.flush
        self._left_out = 0
        self._sealed = False
        self._seal = False
        self._give_up_at: float | None = None
        self._stop_at: float | None = None
        self._lost = 0
        self._sending: asyncio.Timeout | None = None
        self._some = asyncio.Event()
        self._enough = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def set_next_index(self, index: int, at: float | None) -> None:
        """Sets the index, and the time, of the next line."""
        self._next, self._at = index, at

    def append(self, severity: Severity, line: str) -> None:
        """Queues a line. Never waits: `drain` does."""
        block = logblock_pb2.LogBlock(
            index=self._next,
            log=line,
            severity=logblock_pb2.LogSeverity.ValueType(severity),
            created_at=int(time.time() if self._at is None else self._at),
        )
        self._at = None
        self._next += 1
        self._waiting.append(block)
        self._waiting_text += len(line)
        self._some.set()
        if len(self._waiting) >= BATCH_BLOCKS or self._waiting_text >= BATCH_TEXT:
            self._enough.set()
        if len(self._waiting) >= MOST_WAITING or self._waiting_text >= MOST_WAITING_TEXT:
            self._room.clear()

    async def drain(self) -> None:
        """Waits until few enough lines are queued to add more."""
        await self._room.wait()

    async def run(self) -> None:
        """Sends queued lines until `finish` is called, then the rest."""
        while self._give_up_at is None:
            await self._some.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._find_wait()):
                    await self._enough.wait()
            await self._flush()
            self._flushed_at = time.monotonic()
        await self._flush()
        if self._pace.checkpoint is not None or self._seal:
            await self._finish()
        if self._lost:
            fields = {"error": "the plugin stops", "blocks": self._lost, **self._ids}
            log.warning("stage_log.lost", extra={"fields": fields})

    def _find_wait(self) -> float:
        """Returns for how many seconds a line waits for others now."""
        since = time.monotonic() - self._flushed_at
        return max(self._pace.flush - since, self._pace.gather)

    def hurry(self, until: float) -> None:
        """Sets the time at which the process stops sending: lines not sent by then are lost."""
        self._stop_at = until
        self._limit_sending()

    def finish(self, *, completed: bool) -> None:
        """Lets `run` send the rest and end; `completed` seals the log: it accepts no more lines."""
        self._seal = completed
        self._give_up_at = time.monotonic() + LAST_FLUSH_SECONDS
        self._limit_sending()
        self._some.set()
        self._enough.set()

    async def _flush(self) -> None:
        while self._waiting:
            if self._seal and len(self._waiting) <= BATCH_BLOCKS:
                return  # the last ones travel with the seal
            batch = _first(self._waiting)
            request = service_pb2.ReportStageLogsRequest(**self._ids, blocks=batch)
            taken = await self._send(self._service.ReportStageLogs, request)
            if not taken and self._pace.checkpoint is None:
                self._left_out += len(batch)
                self._note_lost(batch)
            self._drop_acknowledged(batch)
            if self._is_checkpoint_due():
                if not await self._checkpoint(self._kept):
                    self._note_lost(self._kept)
                self._kept, self._kept_text = [], 0
        if self._give_up_at is None:
            self._some.clear()
            self._enough.clear()

    async def _finish(self) -> None:
        if self._left_out and not self._sealed:
            # Never silently: an agent of ours takes the end of a log even when it takes no more.
            self.append(Severity.ERROR, f"{self._left_out} lines of this log were not taken")
        rest = deque((*self._kept, *self._waiting))
        while True:
            batch = _first(rest)
            for _ in batch:
                rest.popleft()
            if not await self._checkpoint(batch, completed=self._seal and not rest):
                self._note_lost(batch)
            if not rest:
                return

    def _note_lost(self, batch: list[logblock_pb2.LogBlock]) -> None:
        """Counts lines that were not sent because the process stops; refused ones were logged."""
        if self._is_stopped() and not self._sealed:
            self._lost += len(batch)

    async def _checkpoint(
        self, blocks: Iterable[logblock_pb2.LogBlock], *, completed: bool = False
    ) -> bool:
        self._checkpoint_at = time.monotonic()
        request = service_pb2.ReportStageLogsFromLastCheckpointRequest(
            **self._ids, blocks=blocks, completed=completed
        )
        return await self._send(self._service.ReportStageLogsFromLastCheckpoint, request)

    def _drop_acknowledged(self, batch: list[logblock_pb2.LogBlock]) -> None:
        for block in batch:
            self._waiting.popleft()
            self._waiting_text -= len(block.log)
            if self._pace.checkpoint is not None:
                self._kept.append(block)
                self._kept_text += len(block.log)
        if len(self._waiting) < MOST_WAITING and self._waiting_text < MOST_WAITING_TEXT:
            self._room.set()

    def _is_checkpoint_due(self) -> bool:
        if self._pace.checkpoint is None:
            return False
        full = len(self._kept) >= BATCH_BLOCKS or self._kept_text >= BATCH_TEXT
        return full or time.monotonic() - self._checkpoint_at >= self._pace.checkpoint

    async def _send(self, method: Any, request: Any) -> bool:
        """Retries with backoff until it is acknowledged; returns whether it was.

        Ends early when it is refused for good, the log is sealed, or the time is over.
        """
        attempt = 0
        while not self._sealed and not self._is_stopped():
            attempt += 1
            try:
                async with asyncio.timeout_at(self._stop_at) as self._sending:
                    await call(method, request)
                    return True
            except TimeoutError:
                break
            except CallError as error:
                if error.status == "FAILED_PRECONDITION":
                    # Sealed by an earlier run: the log of this stage accepts no more lines.
                    self._sealed = True
                if not error.transient or self._is_over():
                    fields = {"error": str(error), "blocks": len(request.blocks), **self._ids}
                    log.warning("stage_log.lost", extra={"fields": fields})
                    return False
            finally:
                self._sending = None
            await self._rest(_BACK_OFF.pause(attempt))
        return False

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._stop_at) as self._sending:
                await asyncio.sleep(seconds)
        self._sending = None

    def _limit_sending(self) -> None:
        """Applies the deadline of a stopping process to the call or pause that is under way."""
        if self._stop_at is None or self._give_up_at is None:
            return
        if self._pace.checkpoint is not None:
            self._stop_at = min(self._stop_at, time.monotonic() + STOPPING_FLUSH_SECONDS)
        if self._sending is not None and not self._sending.expired():
            self._sending.reschedule(self._stop_at)

    def _is_stopped(self) -> bool:
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    def _is_over(self) -> bool:
        return self._give_up_at is not None and time.monotonic() >= self._give_up_at


def _first(blocks: deque[logblock_pb2.LogBlock]) -> list[logblock_pb2.LogBlock]:
    """Returns as many of the first blocks as fit into one message, at least one if there is any."""
    batch: list[logblock_pb2.LogBlock] = []
    size = 0
    for block in blocks:
        size += len(block.log)
        if batch and (len(batch) >= BATCH_BLOCKS or size > BATCH_TEXT):
            break
        batch.append(block)
    return batch
