# SPDX-License-Identifier: Apache-2.0
"""The signed-in user, API keys, and the state of commands."""

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import api_keys
from pipecd_controlplane.usecases.shared_state import KeyUses
from pipecd_wire.rpc import rpc
from pipecd_wire.webservice import service_pb2 as pb


class WebAccountApi:
    """The caller's identity, commands and API keys."""

    def __init__(self, stores: Stores, uses: KeyUses, now: Now) -> None:
        self._stores = stores
        self._uses = uses
        self._now = now

    @rpc("GetMe")
    async def get_me(self, caller: Person, request: pb.GetMeRequest) -> pb.GetMeResponse:
        return pb.GetMeResponse(
            subject=caller.name, avatar_url=caller.avatar_url, project_id=caller.project_id
        )

    @rpc("GetCommand")
    async def get_command(
        self, caller: Person, request: pb.GetCommandRequest
    ) -> pb.GetCommandResponse:
        command = await self._stores.commands.get(caller.project_id, request.command_id)
        return pb.GetCommandResponse(command=command)

    @rpc("GenerateAPIKey")
    async def generate_api_key(
        self, caller: Person, request: pb.GenerateAPIKeyRequest
    ) -> pb.GenerateAPIKeyResponse:
        key = await api_keys.generate(
            self._stores,
            caller.project_id,
            name=request.name,
            role=request.role,
            creator=caller.name,
            now=self._now,
        )
        return pb.GenerateAPIKeyResponse(key=key)

    @rpc("DisableAPIKey")
    async def disable_api_key(
        self, caller: Person, request: pb.DisableAPIKeyRequest
    ) -> pb.DisableAPIKeyResponse:
        await api_keys.disable(self._stores, caller.project_id, request.id)
        return pb.DisableAPIKeyResponse()

    @rpc("ListAPIKeys")
    async def list_api_keys(
        self, caller: Person, request: pb.ListAPIKeysRequest
    ) -> pb.ListAPIKeysResponse:
        options = request.options
        listed = await api_keys.list_api_keys(
            self._stores,
            self._uses,
            caller.project_id,
            enabled=options.enabled.value if options.HasField("enabled") else None,
        )
        return pb.ListAPIKeysResponse(keys=[shown.key for shown in listed])
