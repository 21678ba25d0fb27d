# SPDX-License-Identifier: Apache-2.0
"""What a caller may do beyond the call that it makes: read again each time it is asked for."""

from pipecd_controlplane.auth.caller import ApiKeyCaller, Person, User
from pipecd_controlplane.auth.session_authenticator import find_method_grant
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import roles
from pipecd_controlplane.usecases.roles import Grant
from pipecd_model.errors import UnauthenticatedError
from pipecd_wire.model import project_pb2
from pipecd_wire.options import rights_pb2
from pipecd_wire.rpc import Method

Resource = project_pb2.ProjectRBACResource
Action = project_pb2.ProjectRBACPolicy


class CallerRights:
    """Reads the rights of callers who are let in already."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def read_roles(self, person: Person) -> list[project_pb2.ProjectRBACRole]:
        """Returns the roles that a person has now. Raises UnauthenticatedError without session."""
        found = await self._stores.sessions.find_by_id(person.session_id)
        project = await self._stores.projects.find(person.project_id)
        if found is None or project is None:
            raise UnauthenticatedError("the session is over", hint="sign in again")
        session, _secret_hash = found
        return roles.roles_of(project, session.groups, session.roles)

    async def find_grant(
        self,
        caller: User,
        resource: Resource.ResourceType.ValueType,
        action: Action.Action.ValueType,
    ) -> Grant | None:
        """Returns the permission of a caller for an action; None when it is not allowed."""
        if isinstance(caller, ApiKeyCaller):
            is_reading = action in {Action.GET, Action.LIST}
            return Grant() if is_reading or caller.may_write else None
        return roles.grant(await self.read_roles(caller), resource, action)


def find_call_grant(
    method: Method, caller: User, held: list[project_pb2.ProjectRBACRole]
) -> Grant | None:
    """Returns the permission of a caller for an RPC; None when it would be refused.

    `held` are the roles of a person.
    """
    if isinstance(caller, ApiKeyCaller):
        is_allowed = rights_pb2.API_KEY in method.callers and (
            caller.may_write or method.role != rights_pb2.READ_WRITE
        )
        return Grant() if is_allowed else None
    if rights_pb2.SESSION not in method.callers:
        return None
    return find_method_grant(method, held)
