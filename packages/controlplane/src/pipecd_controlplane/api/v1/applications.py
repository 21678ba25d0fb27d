# SPDX-License-Identifier: Apache-2.0
"""Calls on applications that upstream's API does not have."""

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import applications, holds, live_state, push_commands, rules
from pipecd_controlplane.usecases.resources import ResourceQuestions
from pipecd_controlplane.usecases.rollbacks import RollBacks
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import rpc


class V1ApplicationsApi:
    """Applications, for people and scripts."""

    def __init__(
        self,
        stores: Stores,
        presence: Presence,
        resources: ResourceQuestions,
        roll_backs: RollBacks,
        now: Now,
    ) -> None:
        self._stores = stores
        self._presence = presence
        self._resources = resources
        self._roll_backs = roll_backs
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

    @rpc("SyncApplication")
    async def sync_application(
        self, caller: User, request: pb.SyncApplicationRequest
    ) -> pb.SyncApplicationResponse:
        issued = await applications.sync(
            self._stores,
            caller,
            request.application_id,
            by=caller.name,
            strategy=request.strategy,
            method="v1.SyncApplication",
        )
        return pb.SyncApplicationResponse(command_id=issued.id)

    @rpc("GetLiveState")
    async def get_live_state(
        self, caller: User, request: pb.GetLiveStateRequest
    ) -> pb.GetLiveStateResponse:
        await applications.get(self._stores, caller, request.application_id)
        snapshot = await live_state.read_snapshot(
            self._stores, caller.project_id, request.application_id
        )
        return pb.GetLiveStateResponse(snapshot=snapshot)

    @rpc("OpenResource")
    async def open_resource(
        self, caller: User, request: pb.OpenResourceRequest
    ) -> pb.OpenResourceResponse:
        return await self._resources.open(caller, request)

    @rpc("GetApplicationControl")
    async def get_application_control(
        self, caller: User, request: pb.GetApplicationControlRequest
    ) -> pb.GetApplicationControlResponse:
        control = await holds.get_control(self._stores, caller, request.application_id)
        return pb.GetApplicationControlResponse(control=control)

    @rpc("ListApplicationControls")
    async def list_application_controls(
        self, caller: User, request: pb.ListApplicationControlsRequest
    ) -> pb.ListApplicationControlsResponse:
        controls = await holds.list_controls(self._stores, caller)
        return pb.ListApplicationControlsResponse(controls=controls)

    @rpc("ReleaseHold")
    async def release_hold(
        self, caller: User, request: pb.ReleaseHoldRequest
    ) -> pb.ReleaseHoldResponse:
        return await holds.release_hold(self._stores, self._presence, caller, request, self._now)

    @rpc("ReleasePin")
    async def release_pin(
        self, caller: User, request: pb.ReleasePinRequest
    ) -> pb.ReleasePinResponse:
        pin = await holds.release_pin(self._stores, caller, request.application_id)
        return pb.ReleasePinResponse(pin=pin)

    @rpc("RollBackApplication")
    async def roll_back_application(
        self, caller: User, request: pb.RollBackApplicationRequest
    ) -> pb.RollBackApplicationResponse:
        return await self._roll_backs.roll_back(caller, request)

    @rpc("GetCommandOutcome")
    async def get_command_outcome(
        self, caller: User, request: pb.GetCommandOutcomeRequest
    ) -> pb.GetCommandOutcomeResponse:
        found = await push_commands.get(self._stores, caller, request.command_id)
        return pb.GetCommandOutcomeResponse(
            handled=found.handled, succeeded=found.succeeded, reason=found.reason
        )

    @rpc("SetFreeze")
    async def set_freeze(self, caller: User, request: pb.SetFreezeRequest) -> pb.SetFreezeResponse:
        application = await rules.set_freeze(
            self._stores,
            caller,
            request.application_id,
            frozen=request.frozen,
            reason=request.reason,
            now=self._now,
        )
        return pb.SetFreezeResponse(application=application)
