# SPDX-License-Identifier: Apache-2.0
"""The outbox: reports to the control plane, in order, each retried until it is delivered.

A report is queued by `put`, durable once it survives a power cut, delivered once the control plane
has acknowledged it. The caller does not wait: the next stage starts while the last one's end is
still queued. Reports of one lane (an application) keep their order; lanes do not wait for each
other. With a journal they are in a file before `put` returns, and the next piped on the same data
folder delivers this one's backlog; memory then holds little more than their number. What the
control plane refuses for good is logged for the operator and dropped.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from google.protobuf.message import Message

from pipecd_model.errors import PipecdError, UnauthenticatedError
from pipecd_piped.controlplane.epoch import lease_epoch
from pipecd_piped.report.journal import Journal
from pipecd_runtime.logs import logger
from pipecd_runtime.tasks import UnwrappedTaskGroup

log = logger(__name__)

MOST_JOINED: Final = 16
"""Reports in one call."""

DISK_RETRY_SECONDS: Final = 1.0
"""Seconds between two tries of a disk that failed."""

RETRY_SECONDS: Final = 5.0
"""Seconds until a report is retried that a reachable control plane did not accept."""

BACKLOG_LIMIT_SECONDS: Final = 30.0
"""How long the start of piped waits for the backlog of an earlier one."""


class Deliver(Protocol):
    """Delivers one report: returns when it is accepted, raises PipecdError when it is refused."""

    async def __call__(self, method: str, request: Message) -> None:
        """Deliver a request by the name of its RPC."""


class Joined(Protocol):
    """Says when a report may be delivered, and delivers several of a lane in one call."""

    async def wait_ready(self, request: Message) -> None:
        """Wait until a report may be delivered."""

    def can_begin(self, request: Message) -> bool:
        """Returns whether others may be delivered in the call of this report, behind it."""

    def can_follow(self, first: Message, request: Message) -> bool:
        """Returns whether a report may be delivered in the call of an earlier one."""

    async def deliver(self, requests: Sequence[Message]) -> bool:
        """Deliver all or none; returns False when each has to be delivered by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedReport:
    """One report that is not delivered yet."""

    content: tuple[str, Message] | None = None
    """The name of the RPC in `deliverable_rpcs`, and its request. None when both are in the
    journal."""
    number: int = 0
    """The report's number in the journal."""
    epoch: int | None = None
    """The lease's epoch when the report was put: it is sent with this one."""


class Lane:
    """The reports of one application that are not delivered yet, the oldest first."""

    __slots__ = ("empty", "reports", "sending")

    def __init__(self) -> None:
        self.reports: deque[QueuedReport] = deque()
        self.sending: asyncio.Task[None] | None = None
        self.empty = asyncio.Event()


class Outbox:
    """Queues reports at once and delivers them in the background, while it is open."""

    def __init__(
        self,
        deliver: Deliver,
        journal: Journal | None = None,
        epoch: Callable[[], int | None] = lambda: None,
        *,
        joined: Joined | None = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Without a journal, queued reports are lost when this process ends.

        `epoch` returns the lease's current epoch. `retry_seconds`: the pause before a report that
        was not accepted is retried.
        """
        self._retry_seconds = retry_seconds
        self._epoch = epoch
        self._deliver = deliver
        self._joined = joined
        self._journal = journal
        self._lanes: dict[str, Lane] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._backlog: dict[str, Lane] = {}
        self._backlog_size = 0

    @asynccontextmanager
    async def open(self, *, drain: float = 10) -> AsyncIterator["Outbox"]:
        """Deliver reports while the block runs; then drain for at most `drain` seconds."""
        self._find_backlog()
        try:
            async with UnwrappedTaskGroup() as tasks:
                self._tasks = tasks
                for name in self._lanes:
                    self._start(name)
                mending = tasks.create_task(self._mend(), name="outbox disk")
                try:
                    yield self
                finally:
                    await self._drain(drain)
                    self._tasks = None
                    mending.cancel()
                    for lane in self._lanes.values():
                        if lane.sending is not None:
                            lane.sending.cancel()
        finally:
            if self._journal is not None:
                self._journal.close()

    @property
    def fault(self) -> str:
        """Why reports cannot be kept on disk, empty when they can."""
        return "" if self._journal is None else self._journal.fault

    @property
    def waiting(self) -> int:
        """How many reports are not delivered yet."""
        return sum(len(lane.reports) for lane in self._lanes.values())

    def put(self, lane: str, method: str, request: Message) -> None:
        """Queue a report behind everything that this lane was given before."""
        if self._journal is not None and self._tasks is not None:
            report = QueuedReport(number=self._journal.put(lane, method, request))
        else:
            report = QueuedReport(content=(method, request))
        self._add(lane, report)
        self._start(lane)

    async def wait_durable(self, lane: str) -> None:
        """Wait until no report of the lane can be lost: all are delivered, or durable on disk."""
        if self._journal is None or lane not in self._lanes:
            return
        await self._journal.sync()
        while self._journal.fault and lane in self._lanes:
            # Neither delivered nor durable: what comes next must not happen twice.
            with suppress(TimeoutError):
                async with asyncio.timeout(DISK_RETRY_SECONDS):
                    await self.wait_delivered(lane)

    async def wait_backlog_delivered(self, limit: float = BACKLOG_LIMIT_SECONDS) -> None:
        """Wait until the backlog of an earlier piped has been delivered or refused.

        At most `limit` seconds: one report that the control plane fails on must not stop all
        others. `has_backlog` says which lanes are still affected.
        """
        if self._backlog:
            log.info("outbox.catching_up", reports=self._backlog_size)
        try:
            async with asyncio.timeout(limit):
                for lane in list(self._backlog):
                    await self.wait_lane_backlog_delivered(lane)
        except TimeoutError:
            log.warning("outbox.left_behind", lanes=[*self._backlog])

    def has_backlog(self, lane: str) -> bool:
        """Returns whether a lane has undelivered reports of an earlier piped."""
        return lane in self._backlog

    async def wait_lane_backlog_delivered(self, lane: str) -> None:
        """Wait until a lane has no backlog."""
        if lane in self._backlog:
            await self._backlog[lane].empty.wait()

    async def wait_delivered(self, lane: str) -> None:
        """Wait until the lane is empty: all it was given has been delivered or refused."""
        if lane in self._lanes:
            await self._lanes[lane].empty.wait()

    def _find_backlog(self) -> None:
        if self._journal is None:
            return
        early = self._lanes
        self._lanes = {}
        for found in self._journal.open():
            self._add(found.lane, QueuedReport(number=found.number))
            self._backlog_size += 1
        self._backlog = dict(self._lanes)
        for name, lane in early.items():
            for report in lane.reports:
                if report.content is not None:
                    number = self._journal.put(name, *report.content)
                    self._add(name, replace(report, content=None, number=number))

    def _add(self, name: str, report: QueuedReport) -> None:
        if name not in self._lanes:
            self._lanes[name] = Lane()
        self._lanes[name].reports.append(replace(report, epoch=self._epoch()))

    async def _mend(self) -> None:
        """Retry the disk after a fault, until cancelled."""
        while self._journal is not None:
            await asyncio.sleep(DISK_RETRY_SECONDS)
            self._journal.recover()

    def _start(self, name: str) -> None:
        lane = self._lanes[name]
        if self._tasks is not None and lane.sending is None:
            lane.sending = self._tasks.create_task(self._send(name), name=f"outbox {name}")

    async def _send(self, name: str) -> None:
        lane = self._lanes[name]
        while lane.reports:
            count = await self._settle(name, lane)
            if not count:
                await asyncio.sleep(self._retry_seconds)
                continue
            for _ in range(count):
                report = lane.reports.popleft()
                if self._journal is not None:
                    self._journal.mark_delivered(report.number)
        del self._lanes[name]
        self._backlog.pop(name, None)
        lane.empty.set()

    async def _settle(self, name: str, lane: Lane) -> int:
        """Deliver the first reports of a lane; returns how many are accepted or refused for good.

        0 when the first one has to be retried.
        """
        report = lane.reports[0]
        try:
            content = self._read(report)
            if content is None:
                return 1
            with lease_epoch(report.epoch):
                joined = await self._deliver_joined(lane, content[1])
        except OSError as error:
            log.error("outbox.unreadable", lane=name, reason=error.strerror)  # noqa: TRY400
            return 0
        return joined or int(await self._is_settled(name, report, *content))

    async def _deliver_joined(self, lane: Lane, first: Message) -> int:
        """Deliver the first reports of a lane in one call; returns how many, 0 if there is one."""
        if self._joined is None:
            return 0
        await self._joined.wait_ready(first)
        if not self._joined.can_begin(first):
            return 0
        requests = [first]
        for report in itertools.islice(lane.reports, 1, MOST_JOINED):
            content = self._read(report) if report.epoch == lane.reports[0].epoch else None
            if content is None or not self._joined.can_follow(first, content[1]):
                break
            requests.append(content[1])
        if len(requests) == 1 or not await self._joined.deliver(requests):
            return 0
        return len(requests)

    async def _is_settled(
        self, name: str, report: QueuedReport, method: str, request: Message
    ) -> bool:
        """Deliver a report; returns True when accepted or refused for good, False to retry."""
        try:
            with lease_epoch(report.epoch):
                await self._deliver(method, request)
        except UnauthenticatedError as error:
            # The piped key is refused, not the report.
            log.warning("report.not_delivered", lane=name, method=method, reason=str(error))
            return False
        except PipecdError as error:
            log.error("report.refused", lane=name, method=method, reason=str(error))  # noqa: TRY400 - raised on purpose
        return True

    def _read(self, report: QueuedReport) -> tuple[str, Message] | None:
        if report.content is not None or self._journal is None:
            return report.content
        return self._journal.read(report.number)

    async def _drain(self, limit: float) -> None:
        try:
            async with asyncio.timeout(limit):
                while self._lanes:
                    await next(iter(self._lanes.values())).empty.wait()
        except TimeoutError:
            log.warning("report.undelivered", reports=self.waiting)
