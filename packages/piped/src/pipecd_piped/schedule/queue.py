# SPDX-License-Identifier: Apache-2.0
"""The queue of one application: what waits, what runs, and why the first one may not begin.

Only the controller and what orders a queue change it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pipecd_model.deployment import is_begun
from pipecd_model.gate import Blocker
from pipecd_piped.schedule.admission import Ticket
from pipecd_piped.schedule.gate import DeploymentGate
from pipecd_piped.schedule.run import DeploymentRun
from pipecd_wire.model.deployment_pb2 import Deployment

ALARM_SECONDS: Final = 30.0
SHORTEST_ALARM_SECONDS: Final = 0.01
"""How long a queue sleeps at most, and at least, before a rule's end is looked at again."""


@dataclass(slots=True)
class ApplicationQueue:
    """The deployments of one application: those that are queued, and the one that runs."""

    waiting: list[Deployment] = field(default_factory=list)
    epoch: int = 0
    """The epoch of the lease under which the queued deployments were received."""
    running: DeploymentRun | None = None
    since: int | None = None
    """Its place in the line of all applications; kept until one of its deployments begins."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the worker must look again at what the first deployment waits for."""
    blocker: Blocker | None = None
    """Why the first deployment may not begin."""
    ticket: Ticket | None = None
    """What the first deployment waits for once it may begin: a place, locks."""
    alarm: asyncio.TimerHandle | None = None

    def set_alarm(self, gate: DeploymentGate, review: "Callable[[ApplicationQueue], None]") -> None:
        """Look again at the queue when the first rule ends that one of its deployments waits for.

        `review` is called then.
        """
        self.cancel_alarm()
        found = [gate.find_blocker(each) for each in self.waiting if not is_begun(each)]
        ends = [each.until.timestamp() for each in found if each is not None and each.until]
        if ends:
            # A clock that is set meanwhile must not make it sleep for long.
            seconds = min(max(min(ends) - gate.clock(), SHORTEST_ALARM_SECONDS), ALARM_SECONDS)
            self.alarm = asyncio.get_running_loop().call_later(seconds, review, self)

    def cancel_alarm(self) -> None:
        """Look at the queue no more by itself."""
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
