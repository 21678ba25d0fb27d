# SPDX-License-Identifier: Apache-2.0
"""When the next forward stage of a running deployment may begin: emergency stop, and script places.

A stage that waits here has not begun, and the time does not count: neither against its timeout nor
against that of its deployment.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pipecd_model.gate import Blocker
from pipecd_model.stage import SCRIPT_RUN
from pipecd_piped.schedule.admission import Admission, Precedence, Ticket, Want
from pipecd_piped.schedule.gate import DeploymentGate
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage


class StageTurns:
    """Has forward stages wait for their turn, and knows what they wait for."""

    def __init__(self, gate: DeploymentGate, *, scripts: int = 0) -> None:
        """`scripts`: how many SCRIPT_RUN stages may run at once, 0 for no limit."""
        self._gate = gate
        self._scripts = Admission(scripts, "scripts")
        self._waiting: dict[str, Callable[[], Blocker | None]] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when what a deployment waits for has changed."""

    def find_blocker(self, deployment_id: str) -> Blocker | None:
        """Returns what the next stage of a running deployment waits for; None when it does not."""
        find = self._waiting.get(deployment_id)
        return find() if find is not None else None

    def is_roll_back(self, deployment: Deployment) -> bool:
        """Returns whether a person brings the application back with this deployment."""
        return self._gate.is_roll_back(deployment)

    def is_paused(self, deployment: Deployment) -> bool:
        """Returns whether an emergency stop holds the next stage of a deployment."""
        return self._gate.find_pause(deployment) is not None

    async def wait_unpaused(self, deployment: Deployment) -> None:
        """Wait until no emergency stop holds the next stage of a deployment."""
        if not self.is_paused(deployment):
            return
        changes = self._gate.state.changes()
        with self._showing(deployment, lambda: self._gate.find_pause(deployment)):
            while self.is_paused(deployment):
                await anext(changes)

    async def take_place(self, deployment: Deployment, stage: PipelineStage) -> Ticket | None:
        """Wait until a script may run; returns what `give_back` takes, None for other stages."""
        if stage.name != SCRIPT_RUN:
            return None
        granted = asyncio.Event()
        ticket = self._scripts.ask(self._want(deployment, Precedence.ORDINARY), granted.set)
        if ticket.is_granted:
            return ticket
        try:
            with self._showing(deployment, lambda: self._scripts.describe(ticket)):
                await granted.wait()
        except BaseException:
            self._scripts.give_back(ticket)
            raise
        return ticket

    def resume_place(self, deployment: Deployment, stage: PipelineStage) -> Ticket | None:
        """Take the place of a stage that was running before a restart, free or not."""
        if stage.name != SCRIPT_RUN:
            return None
        return self._scripts.ask(self._want(deployment, Precedence.BEGUN))

    def give_back(self, ticket: Ticket | None) -> None:
        """Let the next script run."""
        if ticket is not None:
            self._scripts.give_back(ticket)

    def _want(self, deployment: Deployment, precedence: Precedence) -> Want:
        return Want(
            deployment_id=deployment.id,
            application_name=deployment.application_name,
            since=self._scripts.next_number(),
            precedence=precedence,
        )

    @contextmanager
    def _showing(
        self, deployment: Deployment, find: Callable[[], Blocker | None]
    ) -> Iterator[None]:
        self._waiting[deployment.id] = find
        self.on_change()
        try:
            yield
        finally:
            del self._waiting[deployment.id]
            self.on_change()
