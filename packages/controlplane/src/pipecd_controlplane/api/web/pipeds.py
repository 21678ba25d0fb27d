# SPDX-License-Identifier: Apache-2.0
"""Pipeds and their keys, in the settings page."""

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import pipeds
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_wire.rpc import rpc
from pipecd_wire.webservice import service_pb2 as pb


class WebPipedsApi:
    """Register, change, list and restart pipeds, and manage their keys."""

    def __init__(self, stores: Stores, presence: Presence, now: Now) -> None:
        self._stores = stores
        self._presence = presence
        self._now = now

    @rpc("RegisterPiped")
    async def register_piped(
        self, caller: Person, request: pb.RegisterPipedRequest
    ) -> pb.RegisterPipedResponse:
        piped_id, key = await pipeds.register(
            self._stores, caller, name=request.name, description=request.desc, now=self._now
        )
        return pb.RegisterPipedResponse(id=piped_id, key=key)

    @rpc("UpdatePiped")
    async def update_piped(
        self, caller: Person, request: pb.UpdatePipedRequest
    ) -> pb.UpdatePipedResponse:
        await pipeds.update(
            self._stores,
            caller.project_id,
            request.piped_id,
            name=request.name,
            description=request.desc,
        )
        return pb.UpdatePipedResponse()

    @rpc("RecreatePipedKey")
    async def recreate_piped_key(
        self, caller: Person, request: pb.RecreatePipedKeyRequest
    ) -> pb.RecreatePipedKeyResponse:
        key = await pipeds.add_key(
            self._stores, caller.project_id, request.id, creator=caller.name, now=self._now
        )
        return pb.RecreatePipedKeyResponse(key=key)

    @rpc("DeleteOldPipedKeys")
    async def delete_old_piped_keys(
        self, caller: Person, request: pb.DeleteOldPipedKeysRequest
    ) -> pb.DeleteOldPipedKeysResponse:
        await pipeds.delete_old_keys(self._stores, caller.project_id, request.piped_id)
        return pb.DeleteOldPipedKeysResponse()

    @rpc("EnablePiped")
    async def enable_piped(
        self, caller: Person, request: pb.EnablePipedRequest
    ) -> pb.EnablePipedResponse:
        await pipeds.set_disabled(self._stores, caller.project_id, request.piped_id, disabled=False)
        return pb.EnablePipedResponse()

    @rpc("DisablePiped")
    async def disable_piped(
        self, caller: Person, request: pb.DisablePipedRequest
    ) -> pb.DisablePipedResponse:
        await pipeds.set_disabled(self._stores, caller.project_id, request.piped_id, disabled=True)
        return pb.DisablePipedResponse()

    @rpc("ListPipeds")
    async def list_pipeds(
        self, caller: Person, request: pb.ListPipedsRequest
    ) -> pb.ListPipedsResponse:
        options = request.options
        listed = await pipeds.list_pipeds(
            self._stores,
            self._presence,
            caller.project_id,
            self._now,
            enabled=options.enabled.value if options.HasField("enabled") else None,
        )
        if not request.with_status:
            for piped in listed:
                piped.ClearField("status")
        return pb.ListPipedsResponse(pipeds=listed)

    @rpc("GetPiped")
    async def get_piped(self, caller: Person, request: pb.GetPipedRequest) -> pb.GetPipedResponse:
        piped = await pipeds.get(self._stores, caller.project_id, request.piped_id)
        return pb.GetPipedResponse(piped=piped)

    @rpc("UpdatePipedDesiredVersion")
    async def update_piped_desired_version(
        self, caller: Person, request: pb.UpdatePipedDesiredVersionRequest
    ) -> pb.UpdatePipedDesiredVersionResponse:
        await pipeds.set_desired_version(
            self._stores, caller.project_id, request.piped_ids, request.version
        )
        return pb.UpdatePipedDesiredVersionResponse()

    @rpc("RestartPiped")
    async def restart_piped(
        self, caller: Person, request: pb.RestartPipedRequest
    ) -> pb.RestartPipedResponse:
        issued = await pipeds.restart(self._stores, caller, request.piped_id)
        return pb.RestartPipedResponse(command_id=issued.id)
