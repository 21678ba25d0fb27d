# SPDX-License-Identifier: Apache-2.0
"""Orders the queue of an application, and finds which of its deployments a newer one replaces.

The rules are pure functions of `pipecd_model.queueing`; here is what they are asked with: which
deployment is newer than which, and what the gate says of each. Who is replaced is taken off the
queue here, and ended by the controller.
"""

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace

from pipecd_model.deployment import is_begun, rank_in_queue
from pipecd_model.queueing import (
    Interruption,
    QueueMode,
    WaitingView,
    decide,
    describe_supersession,
    find_left_behind,
    find_passed,
    read_settings,
)
from pipecd_piped.schedule.gate import DeploymentGate
from pipecd_piped.schedule.queue import ApplicationQueue
from pipecd_piped.schedule.stop import Superseded
from pipecd_wire.model.deployment_pb2 import Deployment


class Superseding:
    """Knows which deployments are newer, and what that means for the others."""

    def __init__(self, gate: DeploymentGate) -> None:
        self._gate = gate
        self._arrivals: dict[str, int] = {}
        """By deployment, in which order they came, because clocks count seconds. Of those that a
        snapshot lists nobody knows the order."""
        self._next_arrival = itertools.count().__next__

    def note_arrival(self, deployment_id: str) -> None:
        """Remember that a deployment was created after all that came before it."""
        if deployment_id not in self._arrivals:
            self._arrivals[deployment_id] = self._next_arrival()

    def forget(self, deployment_id: str) -> None:
        """Forget when a deployment came."""
        self._arrivals.pop(deployment_id, None)

    def sort(self, queue: ApplicationQueue) -> None:
        """Bring a queue into order, the next deployment first."""
        passed = self._find_passed([each for each in queue.waiting if not is_begun(each)])
        queue.waiting.sort(
            key=lambda each: rank_in_queue(
                each, is_roll_back=self._gate.is_roll_back(each), is_passed=each.id in passed
            )
        )

    def take_superseded(self, queue: ApplicationQueue) -> Iterator[tuple[Deployment, Superseded]]:
        """Take off a queue what has not begun and never will, each with the reason.

        The one that runs is told to make way where the rules say so.
        """
        pending = [each for each in queue.waiting if not is_begun(each)]
        for newer in sorted(pending, key=self._age):
            yield from self._take_replaced(queue, newer)
        yield from self._take_left_behind(queue)

    def _age(self, deployment: Deployment) -> tuple[int, int, int]:
        """Returns the sort key by which a deployment is newer than another."""
        arrival = self._arrivals.get(deployment.id, -1)
        return deployment.created_at, deployment.trigger.timestamp, arrival

    def _take_replaced(
        self, queue: ApplicationQueue, newer: Deployment
    ) -> Iterator[tuple[Deployment, Superseded]]:
        """Have a deployment take the place of older ones of its application, if it is to."""
        mode = read_settings(newer).mode
        if mode is not QueueMode.SUPERSEDE and not self._gate.is_roll_back(newer):
            return
        age = self._age(newer)
        older = [each for each in queue.waiting if not is_begun(each) and self._age(each) < age]
        run = queue.running if queue.running and self._age(queue.running.deployment) < age else None
        verdict = decide(
            mode,
            run.view(is_roll_back=self._gate.is_roll_back(run.deployment)) if run else None,
            [self._view(each) for each in older],
            self._view(newer),
            may_begin=self._gate.find_blocker(newer) is None,
        )
        reason = Superseded(
            by=newer.id, sentence=describe_supersession(newer.id, newer.trigger.commit.hash)
        )
        if run is not None and verdict.running is not Interruption.NONE:
            run.supersede(reason)
        yield from _take(queue, verdict.superseded, reason)

    def _find_passed(self, pending: list[Deployment]) -> frozenset[str]:
        """Returns those of a queue that one with an override passes."""
        if not any(self._gate.find_override(each) for each in pending):
            return frozenset()  # the rules need not be asked about each of them
        return find_passed(
            [
                replace(self._view(each), is_blocked=self._gate.find_blocker(each) is not None)
                for each in pending
            ]
        )

    def _take_left_behind(self, queue: ApplicationQueue) -> Iterator[tuple[Deployment, Superseded]]:
        """End those that wait and are older than one that has begun by an override.

        Also after a restart: the predecessor may have begun that one, and died. Of two that were
        made in one second nobody knows the order then, and neither is lost.
        """
        begun = [each for each in queue.waiting if is_begun(each)]
        if queue.running is not None:
            begun.append(queue.running.deployment)
        for first in begun:
            override = self._gate.find_override(first)
            if override is None:
                continue
            older = [
                self._view(each)
                for each in queue.waiting
                if not is_begun(each) and self._age(each) < self._age(first)
            ]
            sentence = describe_supersession(
                first.id,
                first.trigger.commit.hash,
                overrider=override.by,
                reason=override.reason,
            )
            reason = Superseded(by=first.id, sentence=sentence)
            yield from _take(queue, find_left_behind(self._view(first), older), reason)

    def _view(self, deployment: Deployment) -> WaitingView:
        return WaitingView(
            deployment_id=deployment.id,
            is_roll_back=self._gate.is_roll_back(deployment),
            is_overridden=self._gate.find_override(deployment) is not None,
        )


def _take(
    queue: ApplicationQueue, deployment_ids: Collection[str], reason: Superseded
) -> Iterator[tuple[Deployment, Superseded]]:
    for deployment in [each for each in queue.waiting if each.id in deployment_ids]:
        queue.waiting.remove(deployment)
        yield deployment, reason
