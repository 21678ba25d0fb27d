# SPDX-License-Identifier: Apache-2.0
"""Reports to the control plane what each deployment of this piped waits for.

A report is the whole queue, so that the newest one is always right; changes that come while one is
on its way, or shortly after it, go into the next.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from pipecd_model.errors import PipecdError
from pipecd_model.gate import Blocker
from pipecd_piped.controlplane.client import ControlPlane, UnknownRpcError
from pipecd_piped.schedule.controller import Controller
from pipecd_piped.schedule.queue import ApplicationQueue
from pipecd_piped.schedule.turns import StageTurns
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment
from pipecd_wire.pipecd.push import push_pb2 as push

log = logger(__name__)

PAUSE_SECONDS: Final = 0.1
"""The shortest pause between two reports: a burst of changes becomes few of them."""

PAUSE_EACH_SECONDS: Final = 0.005
"""What each deployment in a report adds to the pause after it: a long queue changes with each end
of a deployment, and is long to write."""

MOST_REPORTED: Final = 5000
"""Deployments in one report: more would not fit into a message."""


class QueueReporter:
    """Reports the queue whenever it has changed."""

    def __init__(self, control: ControlPlane, controller: Controller, turns: StageTurns) -> None:
        self._control = control
        self._controller = controller
        self._turns = turns
        self._changed = asyncio.Event()
        controller.on_change = turns.on_change = self._changed.set

    async def run(self) -> None:
        """Report each change for ever; stops reporting when the control plane lacks the RPC."""
        told: push.ReportQueueRequest | None = None  # another instance may have reported its own
        while True:
            request = push.ReportQueueRequest(queued=self.list_queued()[:MOST_REPORTED])
            if request != told:
                try:
                    await self._control.call_until_accepted(self._control.push.ReportQueue, request)
                except UnknownRpcError:
                    await asyncio.Event().wait()
                except PipecdError as error:
                    log.warning("queue.not_delivered", reason=str(error))
                told = request
                await asyncio.sleep(PAUSE_SECONDS + PAUSE_EACH_SECONDS * len(request.queued))
            await self._changed.wait()
            self._changed.clear()

    def list_queued(self) -> list[QueuedDeployment]:
        """Returns what each deployment that waits waits for, in the order of the queues."""
        return [
            entry for queue in self._controller.queues() for entry in self._describe_queue(queue)
        ]

    def _describe_queue(self, queue: ApplicationQueue) -> Iterator[QueuedDeployment]:
        ahead = 0
        first = queue.waiting[0].id if queue.waiting else ""
        if queue.running is not None:
            first = queue.running.deployment.id
            ahead = 1
            blocker = self._turns.find_blocker(first)
            if blocker is not None:
                yield to_queued(first, blocker)
        for deployment in queue.waiting:
            if ahead:
                yield to_queued(deployment.id, _describe_behind(first, ahead))
            else:
                blocker = self._controller.find_blocker(queue)
                if blocker is not None:
                    yield to_queued(deployment.id, blocker)
            ahead += 1


def to_queued(deployment_id: str, blocker: Blocker) -> QueuedDeployment:
    """Returns what a deployment waits for as it is reported."""
    entry = QueuedDeployment(
        deployment_id=deployment_id,
        position=blocker.position,
        cause=blocker.cause,
        sentence=blocker.sentence,
        hint=blocker.hint,
        other_deployment_id=blocker.other_deployment_id,
        lock=blocker.lock,
    )
    if blocker.until is not None:
        entry.until.FromDatetime(blocker.until)
    return entry


def _describe_behind(first: str, ahead: int) -> Blocker:
    more = f", and {ahead - 1} more" if ahead > 1 else ""
    return Blocker(
        cause=QueuedDeployment.OTHER_DEPLOYMENT,
        sentence=f"the deployment {first} of the same application comes first{more}",
        hint="it begins when that one is completed; cancel that one if it is not wanted",
        other_deployment_id=first,
        position=ahead,
    )
