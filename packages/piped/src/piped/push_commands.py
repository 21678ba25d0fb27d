# SPDX-License-Identifier: Apache-2.0
"""Commands that only our control plane gives, and that are for piped itself: restart a plugin.

They come with the watch, perhaps more than once; each is carried out once by this process, and its
outcome is told until it is taken. Of one that was carried out but not told, nobody knows after
piped's death: it is carried out again, which does no harm.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from pipecd_model.errors import NotFoundError, PipecdError
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.push import push_pb2 as push
from piped.controlplane.client import ControlPlane

log = logger(__name__)


class PushCommandRunner:
    """Takes commands, and carries them out in the order in which they came."""

    def __init__(self, control: ControlPlane, restart: Callable[[str, str], None]) -> None:
        """`restart` is given the name of a plugin and who wants it; raises NotFoundError."""
        self._control = control
        self._restart = restart
        self._seen: set[str] = set()
        self._waiting: deque[push.Command] = deque()
        self._came = asyncio.Event()

    def take(self, commands: Iterable[push.Command]) -> None:
        """Take those that are for piped itself and were not taken before."""
        for command in commands:
            if command.type == push.Command.RESTART_PLUGIN and command.id not in self._seen:
                self._seen.add(command.id)
                self._waiting.append(command)
                self._came.set()

    async def run(self) -> None:
        """Carry them out for ever."""
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
                log.warning("command.outcome_not_told", command=command.id, reason=str(error))
            self._waiting.popleft()
