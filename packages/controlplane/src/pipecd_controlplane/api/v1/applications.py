# SPDX-License-Identifier: Apache-2.0
"""Calls on applications that upstream's API does not have."""

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import applications, live_state
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import rpc


class V1ApplicationsApi:
    """Applications, for people and scripts."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("AddApplication")
    async def add_application(
        self, caller: User, request: pb.AddApplicationRequest
    ) -> pb.AddApplicationResponse:
        new = applications.NewApplication(
            name=request.name,
            piped_id=request.piped_id,
            git_path=request.git_path,
            description=request.description,
            labels=request.labels,
            deploy_targets=request.deploy_targets_by_plugin,
        )
        application_id = await applications.add(self._stores, caller, new, self._now)
        return pb.AddApplicationResponse(application_id=application_id)

    @rpc("GetLiveState")
    async def get_live_state(
        self, caller: User, request: pb.GetLiveStateRequest
    ) -> pb.GetLiveStateResponse:
        await applications.get(self._stores, caller, request.application_id)
        snapshot = await live_state.read_snapshot(
            self._stores, caller.project_id, request.application_id
        )
        return pb.GetLiveStateResponse(snapshot=snapshot)
