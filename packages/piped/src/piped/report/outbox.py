# SPDX-License-Identifier: Apache-2.0
"""The outbox: reports to the control plane, in order, each repeated until it is taken.

Whoever reports does not wait: the next stage starts while the last one's end is still on its way.
Reports of one lane (an application) keep their order; lanes do not wait for each other. With a
journal they are on disk before `put` returns, and the next piped on the same data folder delivers
what this one could not; memory then holds little more than their number. What the control plane
refuses for good is told to the operator and dropped.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from google.protobuf.message import Message

from pipecd_model.errors import PipecdError, UnauthenticatedError
from pipecd_runtime.logs import logger
from pipecd_runtime.tasks import UnwrappedTaskGroup
from piped.controlplane.epoch import under
from piped.report.journal import Journal

log = logger(__name__)

TRY_DISK: Final = 1.0
"""Seconds between two tries of a disk that took nothing."""

TRY_AGAIN: Final = 5.0
"""Seconds until a report is tried again that was not heard although the control plane answers."""

LEFT_LIMIT: Final = 30.0
"""Seconds that all of piped waits for what an earlier one has left."""


class Deliver(Protocol):
    """Hands one report over; returns when it is taken, raises PipecdError when it is refused."""

    async def __call__(self, method: str, request: Message) -> None:
        """Deliver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One thing to tell the control plane."""

    told: tuple[str, Message] | None = None
    """The name of the RPC in `grpc.service.pipedservice.PipedService`, and its request. None when
    both are in the journal."""
    number: int = 0
    """In the journal."""
    epoch: int | None = None
    """Of the lease when it was put: it is sent under no other."""


class Lane:
    """The reports of one application that are not taken yet, the oldest first."""

    __slots__ = ("empty", "reports", "sending")

    def __init__(self) -> None:
        self.reports: deque[Report] = deque()
        self.sending: asyncio.Task[None] | None = None
        self.empty = asyncio.Event()


class Outbox:
    """Takes reports at once and delivers them in the background, while it is open."""

    def __init__(
        self,
        deliver: Deliver,
        journal: Journal | None = None,
        epoch: Callable[[], int | None] = lambda: None,
        *,
        pause: float = TRY_AGAIN,
    ) -> None:
        """Without a journal reports end with this process. `epoch`: that of the lease now.

        `pause`: seconds until one that was not heard is tried again.
        """
        self._pause = pause
        self._epoch = epoch
        self._deliver = deliver
        self._journal = journal
        self._lanes: dict[str, Lane] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._left: dict[str, Lane] = {}
        self._found = 0

    @asynccontextmanager
    async def open(self, *, drain: float = 10) -> AsyncIterator["Outbox"]:
        """Deliver while the block runs; at its end what is left gets `drain` seconds more."""
        self._find_left()
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
        """How many reports are not taken yet."""
        return sum(len(lane.reports) for lane in self._lanes.values())

    def put(self, lane: str, method: str, request: Message) -> None:
        """Report behind everything that this lane was given before."""
        if self._journal is not None and self._tasks is not None:
            report = Report(number=self._journal.put(lane, method, request))
        else:
            report = Report(told=(method, request))
        self._add(lane, report)
        self._start(lane)

    async def kept(self, lane: str) -> None:
        """Wait until nothing of the lane can be lost: it has been taken, or is safely on disk."""
        if self._journal is None or lane not in self._lanes:
            return
        await self._journal.sync()
        while self._journal.fault and lane in self._lanes:
            # Neither told nor kept: what comes next must not happen twice.
            with suppress(TimeoutError):
                async with asyncio.timeout(TRY_DISK):
                    await self.taken(lane)

    async def left_taken(self, limit: float = LEFT_LIMIT) -> None:
        """Wait until all that an earlier piped has left has been taken or refused.

        Not for ever: one report that the control plane stumbles over must not stop all others. See
        `is_behind` for whom it concerns.
        """
        if self._left:
            log.info("outbox.catching_up", reports=self._found)
        try:
            async with asyncio.timeout(limit):
                for lane in list(self._left):
                    await self.caught_up(lane)
        except TimeoutError:
            log.warning("outbox.left_behind", lanes=[*self._left])

    def is_behind(self, lane: str) -> bool:
        """Does the control plane lack something that an earlier piped has left of a lane?"""
        return lane in self._left

    async def caught_up(self, lane: str) -> None:
        """Wait until it does not."""
        if lane in self._left:
            await self._left[lane].empty.wait()

    async def taken(self, lane: str) -> None:
        """Wait until the lane is empty: all it was given has been taken or refused."""
        if lane in self._lanes:
            await self._lanes[lane].empty.wait()

    def _find_left(self) -> None:
        if self._journal is None:
            return
        early = self._lanes
        self._lanes = {}
        for kept in self._journal.open():
            self._add(kept.lane, Report(number=kept.number))
            self._found += 1
        self._left = dict(self._lanes)
        for name, lane in early.items():
            for report in lane.reports:
                if report.told is not None:
                    number = self._journal.put(name, *report.told)
                    self._add(name, replace(report, told=None, number=number))

    def _add(self, name: str, report: Report) -> None:
        if name not in self._lanes:
            self._lanes[name] = Lane()
        self._lanes[name].reports.append(replace(report, epoch=self._epoch()))

    async def _mend(self) -> None:
        """Try a disk that took nothing until it does."""
        while self._journal is not None:
            await asyncio.sleep(TRY_DISK)
            self._journal.recover()

    def _start(self, name: str) -> None:
        lane = self._lanes[name]
        if self._tasks is not None and lane.sending is None:
            lane.sending = self._tasks.create_task(self._send(name), name=f"outbox {name}")

    async def _send(self, name: str) -> None:
        lane = self._lanes[name]
        while lane.reports:
            report = lane.reports[0]
            if not await self._is_settled(name, report):
                await asyncio.sleep(self._pause)
                continue
            lane.reports.popleft()
            if self._journal is not None:
                self._journal.taken(report.number)
        del self._lanes[name]
        self._left.pop(name, None)
        lane.empty.set()

    async def _is_settled(self, name: str, report: Report) -> bool:
        """Has the control plane taken a report, or said that it never will?"""
        try:
            told = self._told(report)
        except OSError as error:
            log.error("outbox.unreadable", lane=name, reason=error.strerror)  # noqa: TRY400
            return False
        if told is None:
            return True
        method, request = told
        try:
            with under(report.epoch):
                await self._deliver(method, request)
        except UnauthenticatedError as error:
            # The key is refused, not what was said with it.
            log.warning("report.not_heard", lane=name, method=method, reason=str(error))
            return False
        except PipecdError as error:
            log.error("report.refused", lane=name, method=method, reason=str(error))  # noqa: TRY400 - raised on purpose
        return True

    def _told(self, report: Report) -> tuple[str, Message] | None:
        if report.told is not None or self._journal is None:
            return report.told
        return self._journal.read(report.number)

    async def _drain(self, limit: float) -> None:
        try:
            async with asyncio.timeout(limit):
                while self._lanes:
                    await next(iter(self._lanes.values())).empty.wait()
        except TimeoutError:
            log.warning("report.undelivered", reports=self.waiting)
