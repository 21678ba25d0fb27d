# SPDX-License-Identifier: Apache-2.0
"""The push of changes to agents, so that nothing waits for a poll."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from pipecd_controlplane.auth.caller import Agent
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.agent_watch import AgentWatch
from pipecd_controlplane.usecases.leases import Instance, Leases
from pipecd_wire.pipecd.push import push_pb2 as pb
from pipecd_wire.rpc import rpc


class PushApi:
    """The watch of an agent, its lease, and its reports on plugins and push commands."""

    def __init__(self, stores: Stores, agents: AgentWatch, leases: Leases) -> None:
        self._stores = stores
        self._agents = agents
        self._leases = leases

    @rpc("Watch")
    async def watch(
        self, caller: Agent, request: pb.WatchRequest
    ) -> AsyncIterator[pb.WatchResponse]:
        instance = Instance(
            agent=caller, instance_id=request.instance_id, data_folder_id=request.data_folder_id
        )
        async with aclosing(self._agents.watch(instance)) as messages:
            async for message in messages:
                yield message

    @rpc("RenewLease")
    async def renew_lease(
        self, caller: Agent, request: pb.RenewLeaseRequest
    ) -> pb.RenewLeaseResponse:
        lease = await self._leases.renew(caller, request.instance_id, request.epoch)
        return pb.RenewLeaseResponse(lease=lease)

    @rpc("ReleaseLease")
    async def release_lease(
        self, caller: Agent, request: pb.ReleaseLeaseRequest
    ) -> pb.ReleaseLeaseResponse:
        await self._leases.release(caller, request.instance_id, request.epoch)
        return pb.ReleaseLeaseResponse()

    @rpc("ReportCommandHandled")
    async def report_command_handled(
        self, caller: Agent, request: pb.ReportCommandHandledRequest
    ) -> pb.ReportCommandHandledResponse:
        await self._stores.push_commands.record_outcome(
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
