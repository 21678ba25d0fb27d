# SPDX-License-Identifier: Apache-2.0
"""Pipeds, by API key."""

from pipecd_controlplane.auth.caller import Program
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import limits, pipeds
from pipecd_model.secrets import seal
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import piped_pb2
from pipecd_wire.rpc import rpc


class ProgramPipedsApi:
    """Register a piped, and look after it."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("GetPiped")
    async def get_piped(self, caller: Program, request: pb.GetPipedRequest) -> pb.GetPipedResponse:
        piped = await self._stores.pipeds.get(caller.project_id, request.piped_id)
        return pb.GetPipedResponse(piped=pipeds.redacted(piped))

    @rpc("RegisterPiped")
    async def register_piped(
        self, caller: Program, request: pb.RegisterPipedRequest
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
        self, caller: Program, request: pb.UpdatePipedRequest
    ) -> pb.UpdatePipedResponse:
        _check(request.name, request.desc)

        def edit(piped: piped_pb2.Piped) -> None:
            piped.name = request.name
            piped.desc = request.desc

        await self._stores.pipeds.update(caller.project_id, request.piped_id, edit)
        return pb.UpdatePipedResponse()

    @rpc("EnablePiped")
    async def enable_piped(
        self, caller: Program, request: pb.EnablePipedRequest
    ) -> pb.EnablePipedResponse:
        await self._switch(caller, request.piped_id, disabled=False)
        return pb.EnablePipedResponse()

    @rpc("DisablePiped")
    async def disable_piped(
        self, caller: Program, request: pb.DisablePipedRequest
    ) -> pb.DisablePipedResponse:
        await self._switch(caller, request.piped_id, disabled=True)
        return pb.DisablePipedResponse()

    @rpc("Encrypt")
    async def encrypt(self, caller: Program, request: pb.EncryptRequest) -> pb.EncryptResponse:
        piped = await self._stores.pipeds.get(caller.project_id, request.piped_id)
        closed = seal(piped, request.plaintext, base64=request.base64_encoding)
        return pb.EncryptResponse(ciphertext=closed)

    async def _switch(self, caller: Program, piped_id: str, *, disabled: bool) -> None:
        def edit(piped: piped_pb2.Piped) -> None:
            piped.disabled = disabled

        await self._stores.pipeds.update(caller.project_id, piped_id, edit)


def _check(name: str, description: str) -> None:
    limits.name("name", name)
    limits.text("desc", description, limits.DESCRIPTION)
