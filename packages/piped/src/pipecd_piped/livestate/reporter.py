# SPDX-License-Identifier: Apache-2.0
"""Reports the live state and the sync state of applications.

The live state of an application is read when it appears, as soon as a deployment of it has ended,
when its plugin announces a change, and every minute in between, because most platforms change
without notice. During a deployment it is read only when it is announced: its resources are
reported, and whether they match is not, because they are a mixture. Only changes are reported.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pipecd_model.errors import PipecdError
from pipecd_piped.controlplane.state import ControlPlaneState, StateChange
from pipecd_piped.livestate.due import DueTimes
from pipecd_piped.livestate.merge import LiveStateView
from pipecd_piped.livestate.reader import LiveStateReader
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_live_state_pb2 import (
    ApplicationLiveState,
    ApplicationLiveStateSnapshot,
    ApplicationLiveStateVersion,
    ResourceState,
)
from pipecd_wire.model.application_pb2 import (
    DEPLOYING,
    Application,
    ApplicationDeploymentReference,
    ApplicationSyncState,
)

log = logger(__name__)

INTERVAL_SECONDS: Final = 60.0
"""Seconds between two reads of an application that does not change."""

ANNOUNCED_GAP_SECONDS: Final = 0.5
"""The least seconds between the beginnings of two reads that a plugin asks for by announcements."""

DEPLOYING_GAP_SECONDS: Final = 5.0
"""Seconds after which an announcement during a deployment is followed.

It changes its application all the time, and most are over before: the end of it is read anyway.
"""

AT_ONCE: Final = 2
"""Concurrent reads in one lane: each has a worktree of its own."""

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
        has_plugin: Callable[[Application, str], bool] = lambda _application, _plugin: True,
        interval_seconds: float = INTERVAL_SECONDS,
        deploying_gap_seconds: float = DEPLOYING_GAP_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`is_in_trouble`: whether an application has a worse state to report, e.g. a broken file.

        `lanes` are processed concurrently, so that a plugin that does not respond delays only its
        own applications; `lane_of` returns the lane of an application. `has_plugin`: whether a
        plugin may announce changes of an application.
        """
        self._state = state
        self._reader = reader
        self._successes = successes
        self._report_live_state = report_live_state
        self._report_sync_state = report_sync_state
        self._is_in_trouble = is_in_trouble
        self._lanes = tuple(dict.fromkeys(lanes))
        self._lane_of = lane_of
        self._has_plugin = has_plugin
        self._interval_seconds = interval_seconds
        self._deploying_gap_seconds = deploying_gap_seconds
        self._clock = clock
        self._due = DueTimes()
        self._reported: dict[str, _Reported] = {}
        self._wanted = {lane: asyncio.Event() for lane in self._lanes}
        self._looking: set[str] = set()
        self._begun: dict[str, float] = {}
        self._announced: dict[str, float] = {}
        """Since when an announcement may be followed, by application."""

    @property
    def applications(self) -> Mapping[str, Application]:
        return self._state.applications

    def list_resources(self, application_id: str) -> Sequence[ResourceState]:
        """Returns the resources of an application as they were reported last."""
        reported = self._reported.get(application_id)
        return reported.view.resources if reported is not None and reported.view else ()

    def look_at(self, application_id: str) -> None:
        """Read the live state of an application as soon as possible."""
        self._set_due(application_id, self._now())

    def take_announced(self, plugin: str, application_ids: Iterable[str]) -> None:
        """Read the live states of those among the applications that are ours and the plugin's."""
        for application_id in application_ids:
            application = self.applications.get(application_id)
            if application is None or not self._has_plugin(application, plugin):
                continue
            due = max(self._now(), self._begun.get(application_id, 0.0) + ANNOUNCED_GAP_SECONDS)
            if self._state.is_deploying(application_id):
                due = self._now() + self._deploying_gap_seconds
            due = self._announced.setdefault(application_id, due)
            self._set_due_by(application_id, due)

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
            known = self._due.get(application.id)
            # Its lane may be another one now.
            self._set_due(application.id, self._now() if known is None else known)
        for gone in change.removed_applications:
            self._due.remove(gone)
            self._reported.pop(gone, None)
            self._begun.pop(gone, None)
            self._announced.pop(gone, None)
        for deployment in change.deployments:
            self._set_due(deployment.application_id, self._now())

    def _set_due(self, application_id: str, due: float) -> None:
        """Make an application due; one that is not ours is due when it appears."""
        application = self.applications.get(application_id)
        if application is not None:
            lane = self._lane_of(application)
            self._due.set(application_id, lane, due)
            self._wanted[lane].set()

    def _set_due_by(self, application_id: str, due: float) -> None:
        """Make an application due at a time, unless it is due before."""
        known = self._due.get(application_id)
        self._set_due(application_id, due if known is None else min(known, due))

    async def _work(self, lane: str) -> None:
        while True:
            application_id = await self._next(lane)
            self._looking.add(application_id)
            self._begun[application_id] = self._now()
            self._set_due(application_id, self._now() + self._interval_seconds)
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
            first = self._due.find_next(lane, is_open=self._is_open)
            if first is not None and first[1] <= self._now():
                return first[0]
            pause = self._interval_seconds if first is None else first[1] - self._now()
            try:
                async with asyncio.timeout(pause):
                    await self._wanted[lane].wait()
            except TimeoutError:
                continue

    def _is_open(self, application_id: str) -> bool:
        return application_id in self.applications and application_id not in self._looking

    async def _look(self, application_id: str) -> None:
        application = self.applications[application_id]
        reported = self._reported.setdefault(application_id, _Reported())
        is_deploying = self._state.is_deploying(application_id)
        if is_deploying:
            self._report_deploying(application, reported)
            if self._announced.get(application_id, math.inf) > self._now():
                self._remind(application_id)
                return
        is_announced = self._announced.pop(application_id, None) is not None
        deployed = await self._successes.get(application_id)
        if deployed is None:
            return
        view = await self._reader.view(application, deployed)
        # What was seen during a deployment is a mixture of before and after: it cannot be compared.
        is_mixed = is_deploying or self._state.is_deploying(application_id)
        if view is None or (is_mixed and not is_announced):
            return
        if not view.same_as(reported.view):
            await self._report_live_state(self._snapshot(application, view))
            reported.view = view
        if not is_mixed:
            self._report_sync(application, reported, view.sync, deployed.deployment_id)

    def _remind(self, application_id: str) -> None:
        """An announcement that may not be followed yet stays due."""
        if (due := self._announced.get(application_id)) is not None:
            self._set_due_by(application_id, due)

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
