# SPDX-License-Identifier: Apache-2.0
"""Decides which deployment runs when: one worker per application, the oldest deployment first.

The trigger adds a deployment as soon as it is created (`on_created`); deployments that an earlier
piped has left come with the state that the control plane sends. Nothing here is polled. Everything
waits for the lease: while another instance of this piped holds it, that instance runs the
deployments.
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
"""How long a finished deployment is remembered: a state that is under way may still list it."""

READ_AGAIN_SECONDS: Final = 1.0
"""Seconds between two attempts to read a deployment from the control plane again."""

AT_ONCE: Final = 100
"""The limit of deployments that run at the same time, including those that wait in a stage."""


@dataclass(slots=True)
class ApplicationQueue:
    """The deployments of one application: those that are queued, and the one that runs."""

    waiting: list[Deployment] = field(default_factory=list)
    epoch: int = 0
    """The epoch of the lease under which the queued deployments were received."""
    running: DeploymentRun | None = None


class Controller:
    """Runs one worker for each application that has deployments."""

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
        """`on_handed_over` is called once another instance has taken over the deployments.

        It ends what outlives piped, such as scripts.
        """
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
        """By deployment: when it was finished here, and the epoch of the lease at that time."""
        self._early_cancels: dict[str, list[Command]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    async def run(self) -> None:
        """Apply each change of the state until cancelled; the workers are then cancelled too."""
        changes = self._state.changes()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._hand_over(), name="hand over")
            for application_id in self._queues:
                self._work(application_id)
            async for change in changes:
                # The instance that gets the lease gets a snapshot with it.
                if self._permit.held and not self._stopping:
                    self._take(change)

    def on_created(self, deployment: Deployment) -> None:
        """Queue a deployment that was just created."""
        self._add(deployment)

    @property
    def queue(self) -> dict[str, list[str]]:
        """Returns the ids of the queued deployments by application, the next one first."""
        return {
            application_id: [deployment.id for deployment in queue.waiting]
            for application_id, queue in self._queues.items()
            if queue.waiting
        }

    @property
    def running(self) -> list[str]:
        """Returns the ids of the deployments that run now."""
        return [queue.running.deployment.id for queue in self._queues.values() if queue.running]

    def stop(self) -> None:
        """Start no further deployment or stage; those that run come to an end or are left."""
        self._stopping = True
        for application_id, queue in self._queues.items():
            if queue.running is not None:
                queue.running.terminate()
            elif application_id in self._workers:
                self._workers[application_id].cancel()  # it has no running deployment

    async def wait_settled(self) -> None:
        """Wait until no worker runs any more; to be called after `stop`."""
        while self._workers:
            await asyncio.wait(self._workers.values())

    async def _hand_over(self) -> None:
        """Stop all that runs here each time another instance has taken over the deployments.

        That includes what an earlier process of this piped has left running.
        """
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
        """Drop deployments queued under an older lease; the next snapshot lists them again."""
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
        """Handle a cancel command for a deployment that is completed, or not known here yet.

        The command is kept until the deployment arrives, and refused when it is completed.
        """
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
            # An earlier piped has begun it: it has to be rolled back when its turn comes. Or it is
            # being read again from the control plane.
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
        """Take the next deployment off the queue.

        Returns None when, after the wait for a slot, the queue is empty or none may begin.
        """
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
        """Wait until the reports of an earlier piped are delivered, then read the queue again."""
        await self._reports.wait_backlog_delivered(application_id)
        waiting, queue.waiting = queue.waiting, []
        for deployment in waiting:
            await self._read_again(deployment.id)

    async def _read_again(self, deployment_id: str) -> None:
        """Queue a deployment as the control plane has it now, if this instance holds the lease."""
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
    """Returns whether the deployment has been begun, perhaps by another instance."""
    return deployment.status != pb.DEPLOYMENT_PENDING


def _precedence(deployment: Deployment) -> tuple[int, int, int]:
    """Returns the sort key of a queue: running, then planned deployments, then by commit age."""
    begun = deployment.status in {pb.DEPLOYMENT_RUNNING, pb.DEPLOYMENT_ROLLING_BACK}
    rank = 0 if begun else 1 if deployment.status == pb.DEPLOYMENT_PLANNED else 2
    return rank, deployment.trigger.commit.created_at, deployment.trigger.timestamp
