# SPDX-License-Identifier: Apache-2.0
"""Which deployment runs when: one worker per application, the oldest deployment first.

Deployments come from the trigger at the moment they are created (`on_created`), and from the state
those that an earlier piped has left. Nothing here waits for a tick, but everything for the lease:
while another instance of this piped is at work, what the state says is that one's business.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from pipecd_model.deployment import is_completed
from pipecd_model.errors import NotFoundError, PipecdError
from pipecd_runtime.logs import logger
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment
from piped.controlplane.state import ControlPlaneState, StateChange
from piped.report.commands import CommandInbox, CommandOutcome
from piped.report.statuses import StatusReporter
from piped.schedule.run import DeploymentRun
from piped.schedule.services import Permit

log = logger(__name__)

DONE_MEMORY_SECONDS: Final = 600.0
"""How long a finished deployment is remembered at least: a listing under way still has it."""

READ_AGAIN_SECONDS: Final = 1.0
"""Between two tries to read a deployment that was given out of hand."""

AT_ONCE: Final = 100
"""Deployments that run at the same time, those that only wait included."""


@dataclass(slots=True)
class ApplicationQueue:
    """The deployments of one application: those that wait, and the one that runs."""

    waiting: list[Deployment] = field(default_factory=list)
    epoch: int = 0
    """The lease under which those that wait were told."""
    running: DeploymentRun | None = None


class Controller:
    """Gives every application a worker while it has deployments."""

    def __init__(
        self,
        state: ControlPlaneState,
        reports: StatusReporter,
        commands: CommandInbox,
        start: Callable[[Deployment], DeploymentRun],
        read_deployment: Callable[[str], Awaitable[Deployment]],
        permit: Permit,
        *,
        at_once: int = AT_ONCE,
        on_handed_over: Callable[[], Awaitable[object]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_handed_over` ends what outlives piped, once another instance goes on with it."""
        self._state = state
        self._reports = reports
        self._commands = commands
        self._start = start
        self._read_deployment = read_deployment
        self._permit = permit
        self._on_handed_over = on_handed_over
        self._clock = clock
        self._slots = asyncio.Semaphore(at_once)
        self._queues: dict[str, ApplicationQueue] = {}
        self._where: dict[str, str] = {}
        self._done: dict[str, tuple[float, int]] = {}
        """When a deployment was finished here, and under which lease."""
        self._early_cancels: dict[str, list[Command]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    async def run(self) -> None:
        """Take what the state says until cancelled; the workers are then cancelled too."""
        changes = self._state.changes()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._hand_over(), name="hand over")
            for application_id in self._queues:
                self._work(application_id)
            async for change in changes:
                # Whoever gets the lease gets a snapshot with it.
                if self._permit.held and not self._stopping:
                    self._take(change)

    def on_created(self, deployment: Deployment) -> None:
        """Take a deployment that was created a moment ago."""
        self._add(deployment)

    @property
    def queue(self) -> dict[str, list[str]]:
        """The deployments that wait, by application, the next one first."""
        return {
            application_id: [deployment.id for deployment in queue.waiting]
            for application_id, queue in self._queues.items()
            if queue.waiting
        }

    @property
    def running(self) -> list[str]:
        """The deployments that run now."""
        return [queue.running.deployment.id for queue in self._queues.values() if queue.running]

    def stop(self) -> None:
        """Begin nothing new: no deployment, no stage. What runs settles."""
        self._stopping = True
        for application_id, queue in self._queues.items():
            if queue.running is not None:
                queue.running.terminate()
            elif application_id in self._workers:
                self._workers[application_id].cancel()  # it only waits

    async def wait_settled(self) -> None:
        """After `stop`: wait until nothing runs any more."""
        while self._workers:
            await asyncio.wait(self._workers.values())

    async def _hand_over(self) -> None:
        """Stop what runs when another instance is at work on it, also what an earlier piped ran."""
        while True:
            await self._permit.wait_until_lost()
            for queue in self._queues.values():
                if queue.running is not None:
                    queue.running.hand_over()
            if self._on_handed_over is not None:
                await self._on_handed_over()
            await self._permit.wait_for_deployment(begun=False)

    def _take(self, change: StateChange) -> None:
        for queue in self._queues.values():
            self._refresh(queue)
        for deployment in change.deployments:
            self._add(deployment)
        if change.snapshot:
            self._forget_done()
        # After the deployments: a cancel is for one of them.
        for command in change.commands:
            if command.type == Command.CANCEL_DEPLOYMENT and command.id in self._state.commands:
                self._cancel(command)

    def _add(self, deployment: Deployment) -> None:
        application_id = deployment.application_id
        queue = self._queues.get(application_id) or ApplicationQueue(epoch=self._permit.epoch)
        self._refresh(queue)
        if self._stopping or self._is_known(deployment.id) or is_completed(deployment.status):
            return
        self._queues[application_id] = queue
        queue.waiting.append(deployment)
        queue.waiting.sort(key=_precedence)
        self._where[deployment.id] = application_id
        self._work(application_id)

    def _is_known(self, deployment_id: str) -> bool:
        _, epoch = self._done.get(deployment_id, (0.0, -1))
        return deployment_id in self._where or epoch == self._permit.epoch

    def _refresh(self, queue: ApplicationQueue) -> None:
        """Forget what waits since before another instance was at work; the snapshot has it anew."""
        if queue.epoch != self._permit.epoch:
            queue.epoch = self._permit.epoch
            for deployment in queue.waiting:
                del self._where[deployment.id]
                self._early_cancels.pop(deployment.id, None)
            queue.waiting.clear()

    def _forget_done(self) -> None:
        now = self._clock()
        self._done = {
            deployment_id: (at, epoch)
            for deployment_id, (at, epoch) in self._done.items()
            if deployment_id in self._state.deployments or now - at < DONE_MEMORY_SECONDS
        }

    def _cancel(self, command: Command) -> None:
        deployment_id = command.cancel_deployment.deployment_id
        queue = self._queues.get(self._where.get(deployment_id, ""))
        if queue is None:
            self._cancel_unknown(deployment_id, command)
        elif queue.running is not None and queue.running.deployment.id == deployment_id:
            queue.running.cancel(command)
        else:
            self._cancel_waiting(queue, deployment_id, command)

    def _cancel_unknown(self, deployment_id: str, command: Command) -> None:
        """A deployment that is over, or one that we have not been told of yet."""
        if deployment_id in self._done or self._tasks is None:
            self._refuse(command)
        elif command not in self._early_cancels.setdefault(deployment_id, []):
            self._early_cancels[deployment_id].append(command)
            self._tasks.create_task(self._look_up(deployment_id))

    async def _look_up(self, deployment_id: str) -> None:
        try:
            over = is_completed((await self._read_deployment(deployment_id)).status)
        except NotFoundError:
            over = True
        except PipecdError as error:
            log.debug("deployment.not_looked_up", deployment=deployment_id, reason=str(error))
            over = False
        if over:
            for command in self._early_cancels.pop(deployment_id, ()):
                self._refuse(command)

    def _refuse(self, command: Command) -> None:
        self._commands.finish(command, CommandOutcome.fail("the deployment is over"))

    def _cancel_waiting(
        self, queue: ApplicationQueue, deployment_id: str, command: Command
    ) -> None:
        deployment = next((each for each in queue.waiting if each.id == deployment_id), None)
        is_new = deployment is not None and deployment.status == pb.DEPLOYMENT_PENDING
        if deployment is None or not is_new or self._tasks is None:
            # It has been begun by an earlier piped: what was done has to be undone, in its turn.
            # Or it is being read anew.
            self._early_cancels.setdefault(deployment_id, []).append(command)
            return
        queue.waiting.remove(deployment)
        run = self._start(deployment)
        run.cancel(command)
        self._tasks.create_task(self._run(run))

    def _work(self, application_id: str) -> None:
        if self._tasks is not None and application_id not in self._workers:
            worker = self._tasks.create_task(self._worker(application_id), name=application_id)
            self._workers[application_id] = worker

    async def _worker(self, application_id: str) -> None:
        queue = self._queues[application_id]
        try:
            while queue.waiting and not self._stopping:
                await self._permit.wait_for_deployment(begun=_is_begun(queue.waiting[0]))
                if self._reports.has_backlog(application_id):
                    await self._catch_up(application_id, queue)
                    continue
                async with self._slots:
                    deployment = self._next(queue)
                    if deployment is None:
                        continue
                    run = queue.running = self._start(deployment)
                    for command in self._early_cancels.pop(deployment.id, ()):
                        run.cancel(command)
                    await self._run(run)
                    queue.running = None
                if not run.is_completed and not self._stopping:
                    await self._read_again(deployment.id)
        finally:
            del self._workers[application_id]
            if not queue.waiting:
                del self._queues[application_id]

    def _next(self, queue: ApplicationQueue) -> Deployment | None:
        """The one to begin with; None when that is not so any more after the waiting."""
        self._refresh(queue)
        if not queue.waiting or self._stopping:
            return None
        begun = _is_begun(queue.waiting[0])
        return queue.waiting.pop(0) if self._permit.may_begin(begun=begun) else None

    async def _run(self, run: DeploymentRun) -> None:
        await run.run()
        if run.is_completed:
            del self._where[run.deployment.id]
            self._done[run.deployment.id] = (self._clock(), run.epoch)
            self._state.forget_deployment(run.deployment.id)

    async def _catch_up(self, application_id: str, queue: ApplicationQueue) -> None:
        """Wait until all is known that an earlier piped has done, and take what waits anew."""
        await self._reports.wait_backlog_delivered(application_id)
        waiting, queue.waiting = queue.waiting, []
        for deployment in waiting:
            await self._read_again(deployment.id)

    async def _read_again(self, deployment_id: str) -> None:
        """Take a deployment as it is now, if this is (still, or again) the instance that works."""
        await self._reports.wait_delivered(deployment_id)
        found = None
        while self._permit.held and found is None:
            try:
                found = await self._read_deployment(deployment_id)
            except NotFoundError:
                break
            except PipecdError as error:
                log.info("deployment.not_read", deployment=deployment_id, reason=str(error))
                await asyncio.sleep(READ_AGAIN_SECONDS)
        del self._where[deployment_id]
        if found is not None and not is_completed(found.status):
            self._add(found)
        else:
            for command in self._early_cancels.pop(deployment_id, ()):
                self._cancel_unknown(deployment_id, command)


def _is_begun(deployment: Deployment) -> bool:
    """May another instance be at work on it?"""
    return deployment.status != pb.DEPLOYMENT_PENDING


def _precedence(deployment: Deployment) -> tuple[int, int, int]:
    """What was begun comes first, then what was planned, then the oldest commit."""
    begun = deployment.status in {pb.DEPLOYMENT_RUNNING, pb.DEPLOYMENT_ROLLING_BACK}
    rank = 0 if begun else 1 if deployment.status == pb.DEPLOYMENT_PLANNED else 2
    return rank, deployment.trigger.commit.created_at, deployment.trigger.timestamp
