# SPDX-License-Identifier: Apache-2.0
"""The push to agents, so that nothing waits for a poll."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from controlplane.auth.caller import Agent
from controlplane.store.stores import Stores
from controlplane.usecases.agent_watch import AgentWatch
from pipecd_wire.pipecd.push import push_pb2 as pb
from pipecd_wire.rpc import rpc


class PushApi:
    """What an agent hears, and says about its plugins and our own commands."""

    def __init__(self, stores: Stores, agents: AgentWatch) -> None:
        self._stores = stores
        self._agents = agents

    @rpc("Watch")
    async def watch(
        self, caller: Agent, request: pb.WatchRequest
    ) -> AsyncIterator[pb.WatchResponse]:
        async with aclosing(self._agents.watch(caller)) as messages:
            async for message in messages:
                yield message

    @rpc("ReportCommandHandled")
    async def report_command_handled(
        self, caller: Agent, request: pb.ReportCommandHandledRequest
    ) -> pb.ReportCommandHandledResponse:
        await self._stores.own_commands.handled(
            caller.project_id,
            caller.piped_id,
            request.command_id,
            succeeded=request.succeeded,
            reason=request.reason,
        )
        return pb.ReportCommandHandledResponse()

    @rpc("ReportPlugins")
    async def report_plugins(
        self, caller: Agent, request: pb.ReportPluginsRequest
    ) -> pb.ReportPluginsResponse:
        await self._stores.plugin_states.put(caller.project_id, caller.piped_id, request)
        return pb.ReportPluginsResponse()
