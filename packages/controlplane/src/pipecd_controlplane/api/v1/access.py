# SPDX-License-Identifier: Apache-2.0
"""Access to a project: rights of a caller, sessions that can be ended, API keys that expire."""

from collections.abc import Callable, Iterable

from pipecd_controlplane.auth.caller import Person, User
from pipecd_controlplane.auth.rights import CallerRights, find_call_grant
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import api_keys, sessions
from pipecd_controlplane.usecases.roles import Grant
from pipecd_controlplane.usecases.shared_state import KeyUses
from pipecd_wire.pipecd.api import access_pb2 as pb
from pipecd_wire.rpc import Method, rpc


class SessionsApi:
    """List and end sessions: all of the project for callers who may change it, else their own."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("ListSessions")
    async def list_sessions(
        self, caller: User, request: pb.ListSessionsRequest
    ) -> pb.ListSessionsResponse:
        owner = _get_owner_limit(caller)
        found = await self._stores.sessions.open_of_project(caller.project_id, now=self._now())
        return pb.ListSessionsResponse(
            sessions=[each for each in found if owner in {None, sessions.owner_of(each)}],
            current_id=caller.session_id if isinstance(caller, Person) else "",
        )

    @rpc("RevokeSession")
    async def revoke_session(
        self, caller: User, request: pb.RevokeSessionRequest
    ) -> pb.RevokeSessionResponse:
        await sessions.end(
            self._stores, caller.project_id, request.session_id, owner=_get_owner_limit(caller)
        )
        return pb.RevokeSessionResponse()


def _get_owner_limit(caller: User) -> sessions.Owner | None:
    """Returns the owner whose sessions the caller may see and end; None for all owners."""
    if isinstance(caller, Person) and not caller.may_change_project:
        return caller.name, caller.via
    return None


class RightsApi:
    """What the caller may do."""

    def __init__(self, rights: CallerRights, list_methods: Callable[[], Iterable[Method]]) -> None:
        self._rights = rights
        self._list_methods = list_methods

    @rpc("GetMyRights")
    async def get_my_rights(
        self, caller: User, request: pb.GetMyRightsRequest
    ) -> pb.GetMyRightsResponse:
        response = pb.GetMyRightsResponse(
            name=caller.name, project_id=caller.project_id, expires_at=caller.expires_at
        )
        held = []
        if isinstance(caller, Person):
            held = await self._rights.read_roles(caller)
            response.session_id = caller.session_id
            response.via = pb.Session.Via.ValueType(caller.via)
            response.avatar_url = caller.avatar_url
            response.roles.extend(role.name for role in held)
        for method in self._list_methods():
            grant = find_call_grant(method, caller, held)
            if grant is not None:
                response.calls.append(_describe_call(method, grant))
        return response


def _describe_call(method: Method, grant: Grant) -> pb.AllowedCall:
    return pb.AllowedCall(
        method=method.path.removeprefix("/"),
        label_sets=[pb.AllowedCall.LabelSet(labels=labels) for labels in grant.label_sets],
    )


class ApiKeysApi:
    """API keys with an expiry."""

    def __init__(self, stores: Stores, uses: KeyUses, now: Now) -> None:
        self._stores = stores
        self._uses = uses
        self._now = now

    @rpc("GenerateApiKey")
    async def generate_api_key(
        self, caller: Person, request: pb.GenerateApiKeyRequest
    ) -> pb.GenerateApiKeyResponse:
        key = await api_keys.generate(
            self._stores,
            caller.project_id,
            name=request.name,
            role=request.role,
            creator=caller.name,
            now=self._now,
            expires_at=request.expires_at,
        )
        return pb.GenerateApiKeyResponse(key=key)

    @rpc("ListApiKeys")
    async def list_api_keys(
        self, caller: Person, request: pb.ListApiKeysRequest
    ) -> pb.ListApiKeysResponse:
        listed = await api_keys.list_api_keys(
            self._stores, self._uses, caller.project_id, enabled=True
        )
        return pb.ListApiKeysResponse(
            keys=[
                pb.ListApiKeysResponse.Item(key=shown.key, expires_at=shown.expires_at)
                for shown in listed
            ]
        )
