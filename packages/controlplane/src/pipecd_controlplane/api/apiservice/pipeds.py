# SPDX-License-Identifier: Apache-2.0
"""Pipeds, by API key or session."""

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import pipeds
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.rpc import rpc


class ProgramPipedsApi:
    """Read, register, change, enable and disable pipeds, and encrypt secrets for them."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("GetPiped")
    async def get_piped(self, caller: User, request: pb.GetPipedRequest) -> pb.GetPipedResponse:
        piped = await pipeds.get(self._stores, caller.project_id, request.piped_id)
        return pb.GetPipedResponse(piped=piped)

    @rpc("RegisterPiped")
    async def register_piped(
        self, caller: User, request: pb.RegisterPipedRequest
    ) -> pb.RegisterPipedResponse:
        piped_id, key = await pipeds.register(
            self._stores, caller, name=request.name, description=request.desc, now=self._now
        )
        return pb.RegisterPipedResponse(id=piped_id, key=key)

    @rpc("UpdatePiped")
    async def update_piped(
        self, caller: User, request: pb.UpdatePipedRequest
    ) -> pb.UpdatePipedResponse:
        await pipeds.update(
            self._stores,
            caller.project_id,
            request.piped_id,
            name=request.name,
            description=request.desc,
        )
        return pb.UpdatePipedResponse()

    @rpc("EnablePiped")
    async def enable_piped(
        self, caller: User, request: pb.EnablePipedRequest
    ) -> pb.EnablePipedResponse:
        await pipeds.set_disabled(self._stores, caller.project_id, request.piped_id, disabled=False)
        return pb.EnablePipedResponse()

    @rpc("DisablePiped")
    async def disable_piped(
        self, caller: User, request: pb.DisablePipedRequest
    ) -> pb.DisablePipedResponse:
        await pipeds.set_disabled(self._stores, caller.project_id, request.piped_id, disabled=True)
        return pb.DisablePipedResponse()

    @rpc("Encrypt")
    async def encrypt(self, caller: User, request: pb.EncryptRequest) -> pb.EncryptResponse:
        ciphertext = await pipeds.encrypt(
            self._stores,
            caller.project_id,
            request.piped_id,
            request.plaintext,
            base64=request.base64_encoding,
        )
        return pb.EncryptResponse(ciphertext=ciphertext)
