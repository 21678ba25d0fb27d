# SPDX-License-Identifier: Apache-2.0
"""Commands for piped itself that only our control plane sends: restart a plugin.

The watch delivers them, perhaps more than once. This process runs each once, and retries the report
of its outcome until the control plane accepts it. When piped crashes before the report, the command
is run again by the next process, which is harmless.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from pipecd_model.errors import NotFoundError, PipecdError
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.push import push_pb2 as push

log = logger(__name__)


class PushCommandRunner:
    """Queues commands, and runs them in order."""

    def __init__(self, control: ControlPlane, restart: Callable[[str, str], None]) -> None:
        """`restart` gets the name of a plugin and of the user who asked; raises NotFoundError."""
        self._control = control
        self._restart = restart
        self._seen: set[str] = set()
        self._waiting: deque[push.Command] = deque()
        self._came = asyncio.Event()

    def take(self, commands: Iterable[push.Command]) -> None:
        """Queue the commands that are for piped itself and were not queued before."""
        for command in commands:
            if command.type == push.Command.RESTART_PLUGIN and command.id not in self._seen:
                self._seen.add(command.id)
                self._waiting.append(command)
                self._came.set()

    async def run(self) -> None:
        """Run queued commands and report their outcomes, for ever."""
        while True:
            if not self._waiting:
                self._came.clear()
                await self._came.wait()
            command = self._waiting[0]
            report = push.ReportCommandHandledRequest(command_id=command.id, succeeded=True)
            try:
                self._restart(command.plugin_name, command.commander or "a person")
            except NotFoundError as error:
                report.succeeded, report.reason = False, error.with_hint()
            try:
                await self._control.call_until_accepted(
                    self._control.push.ReportCommandHandled, report
                )
            except PipecdError as error:
                log.warning("command.outcome_not_delivered", command=command.id, reason=str(error))
            self._waiting.popleft()
