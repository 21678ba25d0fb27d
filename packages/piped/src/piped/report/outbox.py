# SPDX-License-Identifier: Apache-2.0
"""The outbox: reports to the control plane, in order, each repeated until it is taken.

Whoever reports does not wait: the next stage starts while the last one's end is still on its way.
Reports of one lane (an application) keep their order; lanes do not wait for each other. A report is
a method's name and a message, so that it can be kept anywhere; here it is kept in memory. What the
control plane refuses for good is told to the operator and dropped.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import Message

from pipecd_model.errors import PipecdError
from piped.oplog import logger

log = logger(__name__)


class Deliver(Protocol):
    """Hands one report over; returns when it is taken, raises PipecdError when it is refused."""

    async def __call__(self, method: str, request: Message) -> None:
        """Deliver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One thing to tell the control plane."""

    method: str
    """The name of the RPC in `grpc.service.pipedservice.PipedService`."""
    request: Message


class Lane:
    """The reports of one application that are not taken yet, the oldest first."""

    __slots__ = ("empty", "reports", "sending")

    def __init__(self) -> None:
        self.reports: deque[Report] = deque()
        self.sending: asyncio.Task[None] | None = None
        self.empty = asyncio.Event()


class Outbox:
    """Takes reports at once and delivers them in the background, while it is open."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._lanes: dict[str, Lane] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def open(self, *, drain: float = 10) -> AsyncIterator["Outbox"]:
        """Deliver while the block runs; at its end what is left gets `drain` seconds more."""
        tasks = asyncio.TaskGroup()
        await tasks.__aenter__()
        self._tasks = tasks
        for name in self._lanes:
            self._start(name)
        try:
            yield self
        finally:
            await self._drain(drain)
            self._tasks = None
            for lane in self._lanes.values():
                if lane.sending is not None:
                    lane.sending.cancel()
            # Not given the block's own error: the group would wrap it.
            await tasks.__aexit__(None, None, None)

    @property
    def waiting(self) -> int:
        """How many reports are not taken yet."""
        return sum(len(lane.reports) for lane in self._lanes.values())

    def put(self, lane: str, method: str, request: Message) -> None:
        """Report behind everything that this lane was given before."""
        if lane not in self._lanes:
            self._lanes[lane] = Lane()
        self._lanes[lane].reports.append(Report(method=method, request=request))
        self._start(lane)

    async def taken(self, lane: str) -> None:
        """Wait until the lane is empty: all it was given has been taken or refused."""
        if lane in self._lanes:
            await self._lanes[lane].empty.wait()

    def _start(self, name: str) -> None:
        lane = self._lanes[name]
        if self._tasks is not None and lane.sending is None:
            lane.sending = self._tasks.create_task(self._send(name), name=f"outbox {name}")

    async def _send(self, name: str) -> None:
        lane = self._lanes[name]
        while lane.reports:
            report = lane.reports[0]
            try:
                await self._deliver(report.method, report.request)
            except PipecdError as error:
                log.error("report.refused", lane=name, method=report.method, reason=str(error))  # noqa: TRY400 - raised on purpose
            lane.reports.popleft()
        del self._lanes[name]
        lane.empty.set()

    async def _drain(self, limit: float) -> None:
        try:
            async with asyncio.timeout(limit):
                while self._lanes:
                    await next(iter(self._lanes.values())).empty.wait()
        except TimeoutError:
            log.warning("report.undelivered", reports=self.waiting)
