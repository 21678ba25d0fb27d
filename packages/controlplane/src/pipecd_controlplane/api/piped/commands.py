# SPDX-License-Identifier: Apache-2.0
"""Commands of a piped: listed to it, and reported handled by it."""

from pipecd_controlplane.auth.caller import Agent
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import chains
from pipecd_model.errors import ConfigError
from pipecd_wire.model import command_pb2
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import rpc


class AgentCommandsApi:
    """The unhandled commands of a piped, and its reports of their outcomes."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("ListUnhandledCommands")
    async def list_unhandled(
        self, caller: Agent, request: pb.ListUnhandledCommandsRequest
    ) -> pb.ListUnhandledCommandsResponse:
        listed = await self._stores.commands.list_unhandled(caller.project_id, caller.piped_id)
        return pb.ListUnhandledCommandsResponse(commands=listed)

    @rpc("ReportCommandHandled")
    async def report_handled(
        self, caller: Agent, request: pb.ReportCommandHandledRequest
    ) -> pb.ReportCommandHandledResponse:
        if request.status == command_pb2.COMMAND_NOT_HANDLED_YET:
            raise ConfigError("invalid request: status: COMMAND_NOT_HANDLED_YET is no outcome")
        outcome = command_pb2.Command(
            id=request.command_id,
            status=request.status,
            handled_at=request.handled_at,
            metadata=request.metadata,
        )
        await self._stores.commands.record_outcome(
            caller.project_id, caller.piped_id, outcome, request.output
        )
        await chains.take_outcome(self._stores, caller.project_id, request.command_id, self._now)
        return pb.ReportCommandHandledResponse()
