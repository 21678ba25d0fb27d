# SPDX-License-Identifier: Apache-2.0
"""Decides which deployment runs when: one worker per application, the oldest deployment first.

Before a deployment begins it passes the gate (what people and rules say), then gets its locks and a
place to run in, all at once; until then it holds neither. What a newer deployment does to older
ones of its application is found out in `superseding`.

The trigger adds a deployment as soon as it is created (`on_created`); deployments that an earlier
piped has left come with the state that the control plane sends. Nothing here is polled. Everything
waits for the lease: while another instance of this piped holds it, that instance runs the
deployments.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Final

from pipecd_model.deployment import is_begun, is_completed
from pipecd_model.errors import NotFoundError, PipecdError
from pipecd_model.gate import Blocker
from pipecd_model.queueing import read_settings
from pipecd_piped.controlplane.state import ControlPlaneState, StateChange
from pipecd_piped.report.commands import CommandInbox
from pipecd_piped.report.statuses import StatusReporter
from pipecd_piped.schedule.admission import Admission, Precedence, Ticket, Want
from pipecd_piped.schedule.early_cancels import EarlyCancels
from pipecd_piped.schedule.gate import DeploymentGate
from pipecd_piped.schedule.queue import ApplicationQueue
from pipecd_piped.schedule.run import DeploymentRun
from pipecd_piped.schedule.services import Permit
from pipecd_piped.schedule.stop import Refused
from pipecd_piped.schedule.superseding import Superseding
from pipecd_runtime.logs import logger
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment

log = logger(__name__)

DONE_MEMORY_SECONDS: Final = 600.0
"""How long a finished deployment is remembered: a state that is under way may still list it."""

DONE_KEPT: Final = 1000
"""How many of the last finished deployments are remembered for longer, until a snapshot comes.

While the control plane is away nothing new begins: these are all whose end it may not know yet.
"""

READ_AGAIN_SECONDS: Final = 1.0
"""Seconds between two attempts to read a deployment from the control plane again."""


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
        gate: DeploymentGate | None = None,
        at_once: int = 100,
        done_kept: int = DONE_KEPT,
        on_handed_over: Callable[[], Awaitable[object]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_handed_over` is called once another instance has taken over the deployments.

        It ends what outlives piped, such as scripts.
        """
        self._state = state
        self._reports = reports
        self._start = start
        self._read_deployment = read_deployment
        self._permit = permit
        self._on_handed_over = on_handed_over
        self._clock = clock
        self.gate = gate or DeploymentGate(state)
        self._admission = Admission(at_once)
        self._superseding = Superseding(self.gate)
        self._done_kept = done_kept
        self.on_change: Callable[[], None] = lambda: None
        """Called when what a deployment waits for may have changed."""
        self.on_closed: Callable[[str], None] = lambda application_id: None
        """Called with an application of which a deployment is not open any more."""
        self._queues: dict[str, ApplicationQueue] = {}
        self._where: dict[str, str] = {}
        self._closing: dict[str, str] = {}
        """By deployment that is completed here: its application, until that is reported."""
        self._done: dict[str, tuple[float, int]] = {}
        """By deployment: when it was finished here, and the epoch of the lease at that time."""
        self._early_cancels = EarlyCancels(commands, read_deployment)
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
        self._add(deployment, in_order=True)

    def find_open(self, application_id: str) -> list[str]:
        """Returns the deployments of an application that are not completed, the next one first."""
        queue = self._queues.get(application_id) or ApplicationQueue()
        closing = [each for each, where in self._closing.items() if where == application_id]
        running = [queue.running.deployment.id] if queue.running is not None else []
        waiting = [deployment.id for deployment in queue.waiting]
        known = [each for each, where in self._where.items() if where == application_id]
        # The state may have told of one, and we have not listened yet.
        told = [
            each.id
            for each in self._state.deployments.values()
            if each.application_id == application_id and not self._is_known(each.id)
        ]
        open_ids = dict.fromkeys((*running, *waiting, *known, *told))
        still = [each for each in open_ids if each in self._where or each in told]
        return list(dict.fromkeys((*closing, *still)))

    def queues(self) -> list[ApplicationQueue]:
        """Returns the queues of all applications that have deployments."""
        return list(self._queues.values())

    def find_blocker(self, queue: ApplicationQueue) -> Blocker | None:
        """Returns what the first deployment of a queue waits for; None when it is about to run."""
        if queue.blocker is not None:
            return queue.blocker
        if queue.ticket is not None:
            return self._admission.describe(queue.ticket)
        if queue.waiting and not self._permit.may_begin(begun=is_begun(queue.waiting[0])):
            return Blocker(
                cause=QueuedDeployment.CONTROL_PLANE,
                sentence="its piped has no lease: the control plane did not answer, or another"
                " instance of it is at work",
                hint="its log says why",
            )
        return None

    def wake(self, application_id: str) -> None:
        """Look again at what the deployments of an application wait for."""
        queue = self._queues.get(application_id)
        if queue is not None:
            self._review(queue)

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
        for deployment in sorted(change.deployments, key=is_begun, reverse=True):
            self._add(deployment, in_order=not change.snapshot)
        if change.snapshot:
            self._forget_done()
        self._heed_rules(change)
        # After the deployments: a cancel is for one of them.
        for command in change.commands:
            if command.type == Command.CANCEL_DEPLOYMENT and command.id in self._state.commands:
                self._cancel(command)

    def _heed_rules(self, change: StateChange) -> None:
        """Look again at the queues about which people or rules have decided something."""
        if change.snapshot or change.rules is not None:
            touched = set(self._queues)
        else:
            touched = {control.application_id for control in change.controls}
            touched |= {self._where.get(record.deployment_id, "") for record in change.records}
        for application_id in touched:
            self.wake(application_id)

    def _add(self, deployment: Deployment, *, in_order: bool = False) -> None:
        """Queue a deployment; `in_order`: after all that were created before it."""
        application_id = deployment.application_id
        queue = self._queues.get(application_id) or ApplicationQueue(epoch=self._permit.epoch)
        self._refresh(queue)
        if self._stopping or self._is_known(deployment.id) or is_completed(deployment.status):
            return
        self._queues[application_id] = queue
        queue.waiting.append(deployment)
        self._where[deployment.id] = application_id
        if in_order:
            self._superseding.note_arrival(deployment.id)
        if is_begun(deployment):
            locks = read_settings(deployment).locks
            self._admission.owe(deployment.id, deployment.application_name, locks)
        self._review(queue)
        if deployment in queue.waiting:
            self._log_queued(queue, deployment)
        self._work(application_id)

    def _review(self, queue: ApplicationQueue) -> None:
        """Bring a queue into order, and have newer deployments do what their mode says."""
        self._superseding.sort(queue)
        if self._tasks is not None:
            for deployment, reason in self._superseding.take_superseded(queue):
                run = self._start(deployment)
                run.supersede(reason)
                self._end_unbegun(run)
        queue.set_alarm(self.gate, self._review)
        queue.changed.set()
        self.on_change()

    def _log_queued(self, queue: ApplicationQueue, deployment: Deployment) -> None:
        """Log what a deployment waits for, unless its turn is now."""
        place = queue.waiting.index(deployment)
        running = queue.running.deployment if queue.running is not None else None
        first = running or (queue.waiting[0] if place else None)
        if first is not None:
            log.info(
                "deployment.queued",
                deployment=deployment.id,
                application=deployment.application_name,
                behind=first.id,
                ahead=place + (running is not None),
            )

    def _is_known(self, deployment_id: str) -> bool:
        _, epoch = self._done.get(deployment_id, (0.0, -1))
        return deployment_id in self._where or epoch == self._permit.epoch

    def _refresh(self, queue: ApplicationQueue) -> None:
        """Drop deployments queued under an older lease; the next snapshot lists them again."""
        if queue.epoch != self._permit.epoch:
            queue.epoch = self._permit.epoch
            for deployment in queue.waiting:
                del self._where[deployment.id]
                self._early_cancels.take(deployment.id)
                self._admission.forgive(deployment.id)
            queue.waiting.clear()
            queue.changed.set()
            self.on_change()

    def _forget_done(self, but_newest: int = 0) -> None:
        """Forget finished deployments that no state can list any more."""
        now = self._clock()
        oldest = list(itertools.islice(self._done.items(), max(0, len(self._done) - but_newest)))
        for deployment_id, (at, _) in oldest:
            if deployment_id not in self._state.deployments and now - at >= DONE_MEMORY_SECONDS:
                del self._done[deployment_id]

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
            self._early_cancels.refuse(command)
        elif self._early_cancels.keep(deployment_id, command):
            self._tasks.create_task(self._early_cancels.refuse_if_over(deployment_id))

    def _cancel_waiting(
        self, queue: ApplicationQueue, deployment_id: str, command: Command
    ) -> None:
        deployment = next((each for each in queue.waiting if each.id == deployment_id), None)
        is_new = deployment is not None and deployment.status == pb.DEPLOYMENT_PENDING
        if deployment is None or not is_new or self._tasks is None:
            # An earlier piped has begun it: it has to be rolled back when its turn comes. Or it is
            # being read again from the control plane.
            self._early_cancels.keep(deployment_id, command)
            return
        queue.waiting.remove(deployment)
        run = self._start(deployment)
        run.cancel(command)
        self._end_unbegun(run)
        self._review(queue)

    def refuse_waiting(self, deployment_id: str, sentence: str) -> None:
        """Cancel a deployment that has not begun, and never may."""
        queue = self._queues.get(self._where.get(deployment_id, ""))
        waiting = queue.waiting if queue is not None else []
        deployment = next((each for each in waiting if each.id == deployment_id), None)
        if queue is None or deployment is None or is_begun(deployment):
            return
        queue.waiting.remove(deployment)
        run = self._start(deployment)
        run.refuse(Refused(sentence=sentence))
        self._end_unbegun(run)
        self._review(queue)

    def _end_unbegun(self, run: DeploymentRun) -> None:
        """End a deployment that is stopped before it begins; it needs no place for that."""
        if self._tasks is not None:
            self._tasks.create_task(self._run(run))

    def _work(self, application_id: str) -> None:
        if self._tasks is not None and application_id not in self._workers:
            worker = self._tasks.create_task(self._worker(application_id), name=application_id)
            self._workers[application_id] = worker

    async def _worker(self, application_id: str) -> None:
        queue = self._queues[application_id]
        try:
            while queue.waiting and not self._stopping:
                await self._permit.wait_for_deployment(begun=is_begun(queue.waiting[0]))
                if self._reports.has_backlog(application_id):
                    await self._catch_up(application_id, queue)
                    continue
                ticket = await self._wait_turn(queue)
                if ticket is None:
                    continue
                try:
                    run = await self._run_next(queue, ticket)
                finally:
                    self._admission.give_back(ticket)
                if run is not None and not run.is_completed and not self._stopping:
                    await self._read_again(run.deployment.id)
        finally:
            del self._workers[application_id]
            queue.cancel_alarm()
            if not queue.waiting:
                del self._queues[application_id]
            self.on_change()

    async def _wait_turn(self, queue: ApplicationQueue) -> Ticket | None:
        """Wait until the first deployment may begin and has its place and its locks.

        Returns None when it still has to wait, or another one has become the first.
        """
        queue.changed.clear()
        if not queue.waiting or self._stopping:
            return None
        first = queue.waiting[0]
        queue.blocker = None if is_begun(first) else self.gate.find_blocker(first)
        if queue.since is None:
            queue.since = self._admission.next_number()
        self.on_change()
        if queue.blocker is not None:
            await queue.changed.wait()  # the alarm sets it, too
            return None
        queue.ticket = ticket = self._admission.ask(
            self._want(first, queue.since), queue.changed.set
        )
        try:
            if not ticket.is_granted:
                await queue.changed.wait()
        except BaseException:
            self._admission.give_back(ticket)
            raise
        finally:
            queue.ticket = None
        if not ticket.is_granted:
            self._admission.give_back(ticket)
            return None
        return ticket

    def _want(self, deployment: Deployment, since: int) -> Want:
        if is_begun(deployment):
            precedence = Precedence.BEGUN
        elif self.gate.is_roll_back(deployment):
            precedence = Precedence.ROLL_BACK
        else:
            precedence = Precedence.ORDINARY
        return Want(
            deployment_id=deployment.id,
            application_name=deployment.application_name,
            since=since,
            precedence=precedence,
            locks=read_settings(deployment).locks,
        )

    async def _run_next(self, queue: ApplicationQueue, ticket: Ticket) -> DeploymentRun | None:
        """Run the deployment that a ticket was granted to; None when it is not its turn now."""
        deployment = self._next(queue, ticket)
        if deployment is None:
            return None
        queue.since = queue.blocker = None
        run = queue.running = self._start(deployment)
        for command in self._early_cancels.take(deployment.id):
            run.cancel(command)
        self._review(queue)
        try:
            await self._run(run)
        finally:
            queue.running = None
        return run

    def _next(self, queue: ApplicationQueue, ticket: Ticket) -> Deployment | None:
        """Take the deployment of a ticket off the queue.

        Returns None when, after the wait, it is not the first any more, or may not begin.
        """
        self._refresh(queue)
        if not queue.waiting or self._stopping:
            return None
        first = queue.waiting[0]
        if first.id != ticket.want.deployment_id or not self._permit.may_begin(
            begun=is_begun(first)
        ):
            return None
        if not is_begun(first) and self.gate.find_blocker(first) is not None:
            return None
        return queue.waiting.pop(0)

    async def _run(self, run: DeploymentRun) -> None:
        await run.run()
        if run.is_completed:
            del self._where[run.deployment.id]
            self._done[run.deployment.id] = (self._clock(), run.epoch)
            self._forget_done(but_newest=self._done_kept)
            self._state.forget_deployment(run.deployment.id)
            self._admission.forgive(run.deployment.id)
            self._superseding.forget(run.deployment.id)
            if self._tasks is not None:
                self._closing[run.deployment.id] = run.deployment.application_id
                self._tasks.create_task(self._close(run.deployment))

    async def _close(self, deployment: Deployment) -> None:
        """Wait until the control plane has heard of a deployment's end, then it is not open.

        What is created overtakes what is reported: a commit that waits for the end would be seen
        beside the open one.
        """
        await self._reports.wait_application_delivered(deployment.application_id)
        del self._closing[deployment.id]
        self.on_closed(deployment.application_id)

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
        application_id = self._where.pop(deployment_id)
        if found is not None and not is_completed(found.status):
            self._add(found)
        else:
            for command in self._early_cancels.take(deployment_id):
                self._cancel_unknown(deployment_id, command)
            self._admission.forgive(deployment_id)
            self.on_closed(application_id)
