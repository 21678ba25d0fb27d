# SPDX-License-Identifier: Apache-2.0
"""Reports the live state and the sync state of applications.

The live state of an application is read when it appears, as soon as a deployment of it has ended,
and every minute in between, because platforms change without notice. It is not read during a
deployment. Only changes are reported.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from pipecd_model.errors import PipecdError
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_live_state_pb2 import (
    ApplicationLiveState,
    ApplicationLiveStateSnapshot,
    ApplicationLiveStateVersion,
)
from pipecd_wire.model.application_pb2 import (
    DEPLOYING,
    Application,
    ApplicationDeploymentReference,
    ApplicationSyncState,
)
from piped.controlplane.state import ControlPlaneState, StateChange
from piped.livestate.merge import LiveStateView
from piped.livestate.reader import LiveStateReader

log = logger(__name__)

INTERVAL_SECONDS: Final = 60.0
"""Seconds between two reads of an application that does not change."""

AT_ONCE: Final = 2
"""Concurrent reads in one lane: each costs a checkout."""

ONLY_LANE: Final = ""


ReportLiveState = Callable[[ApplicationLiveStateSnapshot], Awaitable[None]]
"""Reports a live state; raises PipecdError when it was not accepted."""

ReportSyncState = Callable[[str, ApplicationSyncState], None]
"""Queues a report of the sync state of an application."""


class LastDeployments(Protocol):
    """Looks up the last successful deployments of applications."""

    async def get(self, application_id: str) -> ApplicationDeploymentReference | None:
        """Returns the last successful deployment of an application, None when there is none."""


@dataclass(slots=True)
class _Reported:
    view: LiveStateView | None = None
    sync: ApplicationSyncState | None = None


class LiveStateReporter:
    """Reads live states when they are due, and reports what has changed."""

    def __init__(
        self,
        *,
        state: ControlPlaneState,
        reader: LiveStateReader,
        successes: LastDeployments,
        report_live_state: ReportLiveState,
        report_sync_state: ReportSyncState,
        is_in_trouble: Callable[[str], bool],
        lanes: Iterable[str] = (ONLY_LANE,),
        lane_of: Callable[[Application], str] = lambda _: ONLY_LANE,
        interval_seconds: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`is_in_trouble`: whether an application has a worse state to report, e.g. a broken file.

        `lanes` are processed concurrently, so that a plugin that does not respond delays only its
        own applications; `lane_of` returns the lane of an application.
        """
        self._state = state
        self._reader = reader
        self._successes = successes
        self._report_live_state = report_live_state
        self._report_sync_state = report_sync_state
        self._is_in_trouble = is_in_trouble
        self._lanes = tuple(dict.fromkeys(lanes))
        self._lane_of = lane_of
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._due: dict[str, float] = {}
        self._reported: dict[str, _Reported] = {}
        self._wanted = {lane: asyncio.Event() for lane in self._lanes}
        self._looking: set[str] = set()

    @property
    def applications(self) -> Mapping[str, Application]:
        return self._state.applications

    def look_at(self, application_id: str) -> None:
        """Read the live state of an application as soon as possible."""
        self._due[application_id] = self._now()
        self._wake()

    async def run(self) -> None:
        """Read and report live states until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="live state changes")
            for lane in self._lanes:
                for number in range(AT_ONCE):
                    tasks.create_task(self._work(lane), name=f"live state {lane} {number}")

    async def _follow(self) -> None:
        async for change in self._state.changes():
            self._take(change)

    def _take(self, change: StateChange) -> None:
        for application in change.applications:
            self._due.setdefault(application.id, self._now())
        for gone in change.removed_applications:
            self._due.pop(gone, None)
            self._reported.pop(gone, None)
        for deployment in change.deployments:
            self._due[deployment.application_id] = self._now()
        self._wake()

    def _wake(self) -> None:
        for wanted in self._wanted.values():
            wanted.set()

    async def _work(self, lane: str) -> None:
        while True:
            application_id = await self._next(lane)
            self._looking.add(application_id)
            self._due[application_id] = self._now() + self._interval_seconds
            try:
                await self._look(application_id)
            except PipecdError as error:
                log.info("livestate.not_seen", application_id=application_id, reason=str(error))
            except Exception:  # noqa: BLE001 - a bug of ours, met by one application: the others go on
                log.bug("livestate.bug", application_id=application_id)
            finally:
                self._looking.discard(application_id)

    async def _next(self, lane: str) -> str:
        """Waits until an application of a lane is due; returns the one that is due longest."""
        while True:
            self._wanted[lane].clear()
            waiting = {
                each: due
                for each, due in self._due.items()
                if each in self.applications
                and each not in self._looking
                and self._lane_of(self.applications[each]) == lane
            }
            first = min(waiting, key=waiting.__getitem__, default=None)
            if first is not None and waiting[first] <= self._now():
                return first
            pause = self._interval_seconds if first is None else waiting[first] - self._now()
            try:
                async with asyncio.timeout(pause):
                    await self._wanted[lane].wait()
            except TimeoutError:
                continue

    async def _look(self, application_id: str) -> None:
        application = self.applications[application_id]
        reported = self._reported.setdefault(application_id, _Reported())
        if self._state.is_deploying(application_id):
            self._report_deploying(application, reported)
            return
        deployed = await self._successes.get(application_id)
        if deployed is None:
            return
        view = await self._reader.view(application, deployed)
        if view is None or self._state.is_deploying(application_id):
            return  # what was seen is a mixture of before and after
        if not view.same_as(reported.view):
            await self._report_live_state(self._snapshot(application, view))
            reported.view = view
        self._report_sync(application, reported, view.sync, deployed.deployment_id)

    def _report_deploying(self, application: Application, reported: _Reported) -> None:
        if reported.view is not None:  # an application without live state is not reported here
            self._report_sync(application, reported, ApplicationSyncState(status=DEPLOYING), "")

    def _report_sync(
        self,
        application: Application,
        reported: _Reported,
        state: ApplicationSyncState,
        deployed: str,
    ) -> None:
        if self._is_in_trouble(application.id):
            reported.sync = None  # the trigger reports that; report ours again afterwards
        elif reported.sync != state:
            reported.sync = state
            self._report_sync_state(application.id, self._add_time(state, deployed))

    def _snapshot(
        self, application: Application, view: LiveStateView
    ) -> ApplicationLiveStateSnapshot:
        return ApplicationLiveStateSnapshot(
            application_id=application.id,
            piped_id=application.piped_id,
            project_id=application.project_id,
            kind=application.kind,
            health_status=view.health,
            version=ApplicationLiveStateVersion(timestamp=max(1, int(self._clock()))),
            application_live_state=ApplicationLiveState(resources=view.resources),
        )

    def _add_time(self, state: ApplicationSyncState, deployment_id: str) -> ApplicationSyncState:
        return ApplicationSyncState(
            status=state.status,
            short_reason=state.short_reason,
            reason=state.reason,
            head_deployment_id=deployment_id,
            timestamp=max(1, int(self._clock())),
        )

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
