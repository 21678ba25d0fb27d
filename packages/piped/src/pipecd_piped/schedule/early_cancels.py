# SPDX-License-Identifier: Apache-2.0
"""Cancel commands that come before their deployment can heed them.

Of a deployment that is not known here, or that an earlier piped has begun and whose turn has not
come. Each is kept until then, and refused when the deployment turns out to be over.
"""

from collections.abc import Awaitable, Callable

from pipecd_model.deployment import is_completed
from pipecd_model.errors import NotFoundError, PipecdError
from pipecd_piped.report.commands import CommandInbox, CommandOutcome
from pipecd_runtime.logs import logger
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment

log = logger(__name__)


class EarlyCancels:
    """Keeps cancel commands by deployment."""

    def __init__(
        self, commands: CommandInbox, read_deployment: Callable[[str], Awaitable[Deployment]]
    ) -> None:
        self._commands = commands
        self._read_deployment = read_deployment
        self._kept: dict[str, list[Command]] = {}

    def keep(self, deployment_id: str, command: Command) -> bool:
        """Keep a command until its deployment can heed it; returns False when it was kept before.

        A command is listed again with every snapshot.
        """
        kept = self._kept.setdefault(deployment_id, [])
        if command in kept:
            return False
        kept.append(command)
        return True

    def take(self, deployment_id: str) -> list[Command]:
        """Returns the commands for a deployment, and keeps them no longer."""
        return self._kept.pop(deployment_id, [])

    def refuse(self, command: Command) -> None:
        """Finish a command whose deployment is completed."""
        self._commands.finish(command, CommandOutcome.fail("the deployment is over"))

    async def refuse_if_over(self, deployment_id: str) -> None:
        """Refuse the commands for a deployment that the control plane says is over, or unknown."""
        try:
            over = is_completed((await self._read_deployment(deployment_id)).status)
        except NotFoundError:
            over = True
        except PipecdError as error:
            log.debug("deployment.not_looked_up", deployment=deployment_id, reason=str(error))
            over = False
        if over:
            for command in self.take(deployment_id):
                self.refuse(command)
