# SPDX-License-Identifier: Apache-2.0
"""Pipeds and their keys, in the settings page."""

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import commands, limits, pipeds
from pipecd_controlplane.usecases.agent_watch import Presence
from pipecd_model.errors import ConfigError
from pipecd_wire.model import piped_pb2
from pipecd_wire.rpc import rpc
from pipecd_wire.webservice import service_pb2 as pb


class WebPipedsApi:
    """Register pipeds, and look after them."""

    def __init__(self, stores: Stores, presence: Presence, now: Now) -> None:
        self._stores = stores
        self._presence = presence
        self._now = now

    @rpc("RegisterPiped")
    async def register_piped(
        self, caller: Person, request: pb.RegisterPipedRequest
    ) -> pb.RegisterPipedResponse:
        _check(request.name, request.desc)
        piped_id, key = await pipeds.register(
            self._stores,
            caller.project_id,
            name=request.name,
            description=request.desc,
            creator=caller.name,
            now=self._now,
            wanted_id=caller.request_id("RegisterPiped"),
        )
        return pb.RegisterPipedResponse(id=piped_id, key=key)

    @rpc("UpdatePiped")
    async def update_piped(
        self, caller: Person, request: pb.UpdatePipedRequest
    ) -> pb.UpdatePipedResponse:
        _check(request.name, request.desc)

        def edit(piped: piped_pb2.Piped) -> None:
            piped.name = request.name
            piped.desc = request.desc

        await self._stores.pipeds.update(caller.project_id, request.piped_id, edit)
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
        await self._switch(caller, request.piped_id, disabled=False)
        return pb.EnablePipedResponse()

    @rpc("DisablePiped")
    async def disable_piped(
        self, caller: Person, request: pb.DisablePipedRequest
    ) -> pb.DisablePipedResponse:
        await self._switch(caller, request.piped_id, disabled=True)
        return pb.DisablePipedResponse()

    @rpc("ListPipeds")
    async def list_pipeds(
        self, caller: Person, request: pb.ListPipedsRequest
    ) -> pb.ListPipedsResponse:
        options = request.options
        listed = await pipeds.listed(
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
        piped = await self._stores.pipeds.get(caller.project_id, request.piped_id)
        return pb.GetPipedResponse(piped=pipeds.redacted(piped))

    @rpc("UpdatePipedDesiredVersion")
    async def update_piped_desired_version(
        self, caller: Person, request: pb.UpdatePipedDesiredVersionRequest
    ) -> pb.UpdatePipedDesiredVersionResponse:
        limits.text("version", request.version, limits.NAME)
        if not request.version.startswith("v"):
            raise ConfigError(
                f"invalid request: version: {request.version!r} is no version",
                hint="such as v0.50.0",
            )
        await pipeds.set_desired_version(
            self._stores, caller.project_id, request.piped_ids, request.version
        )
        return pb.UpdatePipedDesiredVersionResponse()

    @rpc("RestartPiped")
    async def restart_piped(
        self, caller: Person, request: pb.RestartPipedRequest
    ) -> pb.RestartPipedResponse:
        piped = await self._stores.pipeds.get(caller.project_id, request.piped_id)
        issued = await commands.issue(
            self._stores.commands,
            caller.project_id,
            caller.request_id("RestartPiped"),
            lambda at: commands.restart_piped(piped, by=caller.name, at=at),
        )
        return pb.RestartPipedResponse(command_id=issued.id)

    async def _switch(self, caller: Person, piped_id: str, *, disabled: bool) -> None:
        def edit(piped: piped_pb2.Piped) -> None:
            piped.disabled = disabled

        await self._stores.pipeds.update(caller.project_id, piped_id, edit)


def _check(name: str, description: str) -> None:
    limits.name("name", name)
    limits.text("desc", description, limits.DESCRIPTION)
