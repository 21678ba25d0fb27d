# SPDX-License-Identifier: Apache-2.0
"""What people choose for a deployment whose stage has failed (`onFailure: wait`).

The control plane repeats a command until its outcome is reported. A retry names its attempt, so
that it is begun once however often the command comes; it is reported as done only after the begin
of that attempt, and a roll-back only after the begin of the rollback.
"""

import asyncio

from pipecd_piped.report.commands import SUCCEEDED, CommandOutcome
from pipecd_piped.schedule.services import RunServices
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage
from pipecd_wire.pipecd.push import push_pb2 as push

TOO_LATE = CommandOutcome.fail("the deployment does not wait for a person any more")


class Choices:
    """The commands by which people decide about the failed stages of one deployment."""

    def __init__(self, deployment: Deployment, services: RunServices) -> None:
        self._deployment = deployment
        self._services = services
        self._chosen: push.Command | None = None

    async def wait(self, stage: PipelineStage, deadline: float) -> push.Command | None:
        """Returns what a person chooses for a failed stage; None when the deadline has passed."""
        changes = self._services.state.changes()
        while True:
            self._chosen = self._find(stage)
            left = deadline - self._services.clock()
            if self._chosen is not None or left <= 0:
                return self._chosen
            try:
                async with asyncio.timeout(left):
                    await anext(changes)
            except TimeoutError:
                continue

    def finish_begun(self) -> None:
        """Report those choices as done that have begun, also under an earlier piped."""
        for command in self._list_open():
            if self._has_begun(command):
                self._services.commands.finish(command, SUCCEEDED)

    def finish_all(self) -> None:
        """Report all open choices, because the deployment is completed."""
        for command in self._list_open():
            chosen = self._chosen is not None and self._chosen.id == command.id
            is_done = chosen or self._has_begun(command)
            self._services.commands.finish(command, SUCCEEDED if is_done else TOO_LATE)

    def _find(self, stage: PipelineStage) -> push.Command | None:
        self.finish_begun()
        for command in self._list_open():
            if command.type == push.Command.ROLL_BACK:
                return command
            wanted = (push.Command.RETRY_STAGE, stage.id, stage.retried_count + 1)
            if (command.type, command.stage_id, command.attempt) == wanted:
                return command
            self._services.commands.finish(command, TOO_LATE)
        return None

    def _has_begun(self, command: push.Command) -> bool:
        if command.type == push.Command.ROLL_BACK:
            return self._deployment.status == pb.DEPLOYMENT_ROLLING_BACK
        return any(
            stage.id == command.stage_id
            and stage.retried_count >= command.attempt
            and stage.status != pb.STAGE_NOT_STARTED_YET
            for stage in self._deployment.stages
        )

    def _list_open(self) -> list[push.Command]:
        found = [
            command
            for command in self._services.state.own_commands.values()
            if command.deployment_id == self._deployment.id
        ]
        return sorted(found, key=lambda each: (each.created_at.seconds, each.id))
