# SPDX-License-Identifier: Apache-2.0
"""Calls to one process of a plugin, and the mapping of their failures to PluginError."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from pipecd_piped.plugins.errors import PluginError, PluginLostError, PluginStoppingError
from pipecd_piped.plugins.state import PluginLimits
from pipecd_piped.programs.cancel_group import CancelGroup, GroupEndedError
from pipecd_runtime.logs import logger
from pipecd_runtime.orphans import Search, StuckError, end_orphans
from pipecd_wire.pipecd.plugin.plugin_pb2 import WaitStageRequest
from pipecd_wire.pipecd.plugin.plugin_pb2_grpc import (
    PluginConfigServiceStub,
    PluginDetailsServiceStub,
    PluginStageServiceStub,
)
from pipecd_wire.plugin.deploymentapi.api_pb2_grpc import DeploymentServiceStub
from pipecd_wire.plugin.livestateapi.api_pb2_grpc import LivestateServiceStub
from pipecd_wire.plugin.planpreviewapi.api_pb2_grpc import PlanPreviewServiceStub
from pipecd_wire.refusals import is_stopping
from pipecd_wire.rpc import MAX_MESSAGE, CallError, Channel, call

if TYPE_CHECKING:
    from pipecd_wire.pipecd.plugin.plugin_pb2_grpc import (
        PluginConfigServiceAsyncStub,
        PluginDetailsServiceAsyncStub,
        PluginStageServiceAsyncStub,
    )
    from pipecd_wire.plugin.deploymentapi.api_pb2_grpc import DeploymentServiceAsyncStub
    from pipecd_wire.plugin.livestateapi.api_pb2_grpc import LivestateServiceAsyncStub
    from pipecd_wire.plugin.planpreviewapi.api_pb2_grpc import PlanPreviewServiceAsyncStub

log = logger(__name__)

Response = TypeVar("Response")

REASON_SECONDS: Final = 1.0
"""Seconds to wait for the exit of a process after its channel broke."""

ASK_AGAIN_SECONDS: Final = 0.1
"""Seconds between two calls to a plugin that does not listen any more but still runs."""

TOO_LARGE: Final = "larger than max"
"""Part of the gRPC error for a message that is too large."""

GIVE_UP_SECONDS: Final = 5.0
"""Seconds to wait for the end of a process that was given up."""

ORPHANS_END_SECONDS: Final = 30.0
"""Seconds to wait for the end of all that a process has started."""

# Statuses of a call whose peer process has died.
BROKEN: Final = frozenset({"UNAVAILABLE", "CANCELLED", "UNKNOWN"})


class PluginConnection:
    """The connection to a plugin process, from the moment it is ready to its end."""

    def __init__(
        self, plugin: str, channel: Channel, limits: PluginLimits, processes: Search | None = None
    ) -> None:
        """`processes` finds all that the process has started."""
        self._plugin = plugin
        self._limits = limits
        self.processes = processes or Search()
        """Finds the process and all its descendants."""
        self.calls = CancelGroup()
        """The running calls, which end with the process."""
        self.is_managed = False
        """Whether the process has sent Ready to plugin management."""
        self.is_stopping = False
        """Whether the process got the signal to stop."""
        self.is_ending = False
        """Whether the process is being ended, with all that it has started."""
        self.end_reason = ""
        """Why the process has ended."""
        self.unrecoverable: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with the reason, when a call has found that the process must be replaced."""
        self.deployment: DeploymentServiceAsyncStub = DeploymentServiceStub(channel)
        self.livestate: LivestateServiceAsyncStub = LivestateServiceStub(channel)
        self.planpreview: PlanPreviewServiceAsyncStub = PlanPreviewServiceStub(channel)
        self.config: PluginConfigServiceAsyncStub = PluginConfigServiceStub(channel)
        self.details: PluginDetailsServiceAsyncStub = PluginDetailsServiceStub(channel)
        self._stages: PluginStageServiceAsyncStub = PluginStageServiceStub(channel)

    async def ask(self, rpc: str, attempt: Callable[[], Awaitable[Response]]) -> Response:
        """Make a call that ends with the process at the latest. Raises PluginError."""
        try:
            async with self.calls.scope():
                return await attempt()
        except GroupEndedError:
            raise self.make_lost_error() from None
        except CallError as error:
            raise await self._to_plugin_error(rpc, error) from None

    async def ask_if_offered(
        self, rpc: str, attempt: Callable[[], Awaitable[Response]]
    ) -> Response | None:
        """As `ask`; returns None when the plugin does not implement the call."""

        async def unless_unknown() -> Response | None:
            try:
                return await attempt()
            except CallError as error:
                if error.status == "UNIMPLEMENTED":
                    return None
                raise

        return await self.ask(rpc, unless_unknown)

    async def wait_handler_end(self, deployment_id: str, stage_id: str) -> bool:
        """Wait until the handler of a cancelled stage has ended, at the latest with its process.

        Returns False when the plugin cannot report it.

        Nothing else may touch what the stage works on before that, so a further cancellation does
        not shorten the wait. A handler that does not end within the limit hangs: the process is
        given up, and the next process continues its other stages.
        """
        clock = asyncio.get_running_loop().time
        request = WaitStageRequest(deployment_id=deployment_id, stage_id=stage_id)
        end = clock() + self._limits.handler_end_seconds
        while (left := end - clock()) > 0:
            try:
                async with self.calls.scope():
                    await call(self._stages.WaitStage, request, deadline=left)
            except asyncio.CancelledError:
                continue
            except GroupEndedError:
                return True
            except CallError as error:
                if error.status == "UNIMPLEMENTED":
                    end = min(end, clock() + self._limits.silent_end_seconds)
                    await self._sleep_until(end)
                    return False
                await self._sleep_until(clock() + ASK_AGAIN_SECONDS)
            else:
                return True
        limit = self._limits.handler_end_seconds
        log.warning(
            "plugin.stage_hangs",
            plugin=self._plugin,
            deployment_id=deployment_id,
            stage_id=stage_id,
            limit=limit,
        )
        self._give_up(f"did not end a stage within {limit:g}s after it was cancelled")
        await self._sleep_until(clock() + GIVE_UP_SECONDS)
        return True

    async def end_abandoned(self, search: Search) -> None:
        """End the processes that a cancelled stage has left; a further cancel does not stop this.

        When some cannot be ended, the process of the plugin is given up too, and the next one does
        not start while they run.
        """
        ending = asyncio.ensure_future(end_orphans(search))
        while not ending.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({ending})
        try:
            count = ending.result()
        except StuckError as error:
            self._give_up(f"has left processes of a cancelled stage: {error}")
            await self._sleep_until(asyncio.get_running_loop().time() + ORPHANS_END_SECONDS)
            return
        if count:
            log.warning("plugin.stage_left_processes", plugin=self._plugin, processes=count)

    async def wait_stage_lost(self) -> None:
        """Wait until nothing is left of a stage whose call was lost.

        A process that is not managed may still run and have lost only the call: a retry would start
        the stage a second time beside the first. So the process is given up.
        """
        if not (self.is_managed or self.is_ending or self.is_stopping):
            self._give_up("has lost the call of a stage")
        if self.is_ending or self.unrecoverable.done():
            await self._wait_ended(ORPHANS_END_SECONDS)

    def make_lost_error(self) -> PluginLostError:
        """Returns the error of a call whose process has ended or is stopping."""
        if self.is_stopping:
            return PluginStoppingError(f"the plugin {self._plugin!r} was stopped")
        why = self.end_reason or "its channel broke"
        return PluginLostError(f"the plugin {self._plugin!r} was lost: {why}")

    async def _to_plugin_error(self, rpc: str, error: CallError) -> PluginError:
        if is_stopping(error):
            return PluginStoppingError(f"the plugin {self._plugin!r} is stopping")
        if error.status in BROKEN:
            await self._wait_ended(REASON_SECONDS)
            if self.calls.ended or self.is_stopping or error.status == "UNAVAILABLE":
                return self.make_lost_error()
        if error.status == "RESOURCE_EXHAUSTED" and TOO_LARGE in error.message:
            return PluginError(
                f"the plugin {self._plugin!r} answered {rpc} with more than "
                f"{MAX_MESSAGE // 2**20} MiB",
                hint="nobody takes so much at once; the plugin has to answer with less",
            )
        if error.status == "DEADLINE_EXCEEDED":
            return PluginError(f"the plugin {self._plugin!r} did not answer {rpc} in time")
        return PluginError(f"the plugin {self._plugin!r} failed at {rpc}: {error}")

    def _give_up(self, why: str) -> None:
        if not self.unrecoverable.done():
            self.unrecoverable.set_result(why)

    async def _wait_ended(self, limit: float) -> None:
        """Wait for the end of the process, `limit` seconds at most."""
        try:
            async with asyncio.timeout(limit), self.calls.scope():
                await asyncio.get_running_loop().create_future()
        except (TimeoutError, GroupEndedError):
            return

    async def _sleep_until(self, end: float) -> None:
        while (left := end - asyncio.get_running_loop().time()) > 0 and not self.calls.ended:
            try:
                await self._wait_ended(left)
            except asyncio.CancelledError:
                continue
