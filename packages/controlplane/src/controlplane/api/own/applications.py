# SPDX-License-Identifier: Apache-2.0
"""What people can ask of an application that upstream's API has no call for."""

from controlplane.auth.caller import Person, User
from controlplane.store.stores import Stores
from controlplane.usecases import live_state
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import rpc


class ApplicationApi:
    """Applications, for people and scripts."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    @rpc("GetLiveState")
    async def get_live_state(
        self, caller: User, request: pb.GetLiveStateRequest
    ) -> pb.GetLiveStateResponse:
        application = await self._stores.applications.get(caller.project_id, request.application_id)
        if isinstance(caller, Person):
            caller.check("application", application.id, application.labels)
        snapshot = await live_state.snapshot(
            self._stores, caller.project_id, request.application_id
        )
        return pb.GetLiveStateResponse(snapshot=snapshot)
