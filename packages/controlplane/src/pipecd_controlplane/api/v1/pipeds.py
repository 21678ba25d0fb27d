# SPDX-License-Identifier: Apache-2.0
"""List the pipeds of a project with their current state, restart their plugins, delete one."""

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import pipeds, push_commands
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import rpc


class V1PipedsApi:
    """Pipeds with connection and plugins."""

    def __init__(self, stores: Stores, presence: Presence, now: Now) -> None:
        self._stores = stores
        self._presence = presence
        self._now = now

    @rpc("ListPipeds")
    async def list_pipeds(
        self, caller: User, request: pb.ListPipedsRequest
    ) -> pb.ListPipedsResponse:
        reports = await pipeds.list_reports(
            self._stores, self._presence, caller.project_id, self._now
        )
        return pb.ListPipedsResponse(
            pipeds=[
                pb.ListPipedsResponse.Item(
                    piped=report.piped,
                    plugins=report.plugins,
                    alarms=report.alarms,
                    last_seen_at=report.last_seen_at,
                )
                for report in reports
            ]
        )

    @rpc("DeletePiped")
    async def delete_piped(
        self, caller: User, request: pb.DeletePipedRequest
    ) -> pb.DeletePipedResponse:
        await pipeds.delete(
            self._stores, self._presence, caller.project_id, request.piped_id, self._now
        )
        return pb.DeletePipedResponse()

    @rpc("RestartPlugin")
    async def restart_plugin(
        self, caller: User, request: pb.RestartPluginRequest
    ) -> pb.RestartPluginResponse:
        command_id = await push_commands.restart_plugin(
            self._stores, self._presence, caller, request, self._now
        )
        return pb.RestartPluginResponse(command_id=command_id)
