# SPDX-License-Identifier: Apache-2.0
"""The project's settings: static admin, single sign-on, roles and groups."""

from google.protobuf.message import Message

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.usecases.pipeds import REDACTED
from pipecd_controlplane.usecases.project import ProjectSettings
from pipecd_controlplane.usecases.sessions import DEFAULT_HOURS
from pipecd_controlplane.usecases.sso_settings import SsoSettings
from pipecd_wire.rpc import rpc
from pipecd_wire.webservice import service_pb2 as pb


def _fill_sso(request: Message) -> None:
    """Sets what the message's rules need and a form leaves out.

    Upstream's omits the time of sessions; an id or secret that stays as it is cannot be shown, so
    that ours sends none.
    """
    if not isinstance(request, pb.UpdateProjectSSOConfigRequest):
        return
    sso = request.sso
    sso.session_ttl = sso.session_ttl or DEFAULT_HOURS
    for name in ("github", "oidc"):
        if sso.HasField(name):
            client = sso.oidc if name == "oidc" else sso.github
            client.client_id = client.client_id or REDACTED
            client.client_secret = client.client_secret or REDACTED


class WebProjectApi:
    """Read the project, and change its static admin, single sign-on, roles and groups."""

    def __init__(self, settings: ProjectSettings, sso: SsoSettings) -> None:
        self._settings = settings
        self._sso = sso

    @rpc("GetProject")
    async def get_project(
        self, caller: Person, request: pb.GetProjectRequest
    ) -> pb.GetProjectResponse:
        return pb.GetProjectResponse(project=await self._settings.read_redacted(caller.project_id))

    @rpc("UpdateProjectStaticAdmin")
    async def update_static_admin(
        self, caller: Person, request: pb.UpdateProjectStaticAdminRequest
    ) -> pb.UpdateProjectStaticAdminResponse:
        await self._settings.set_static_admin(caller.project_id, request.username, request.password)
        return pb.UpdateProjectStaticAdminResponse()

    @rpc("EnableStaticAdmin")
    async def enable_static_admin(
        self, caller: Person, request: pb.EnableStaticAdminRequest
    ) -> pb.EnableStaticAdminResponse:
        await self._settings.switch_static_admin(
            caller.project_id, disabled=False, own_session=caller.session_id
        )
        return pb.EnableStaticAdminResponse()

    @rpc("DisableStaticAdmin")
    async def disable_static_admin(
        self, caller: Person, request: pb.DisableStaticAdminRequest
    ) -> pb.DisableStaticAdminResponse:
        await self._settings.switch_static_admin(
            caller.project_id, disabled=True, own_session=caller.session_id
        )
        return pb.DisableStaticAdminResponse()

    @rpc("UpdateProjectSSOConfig", prepare=_fill_sso)
    async def update_sso_config(
        self, caller: Person, request: pb.UpdateProjectSSOConfigRequest
    ) -> pb.UpdateProjectSSOConfigResponse:
        await self._sso.change(caller.project_id, request.sso)
        return pb.UpdateProjectSSOConfigResponse()

    @rpc("UpdateProjectRBACConfig")
    async def update_rbac_config(
        self, caller: Person, request: pb.UpdateProjectRBACConfigRequest
    ) -> pb.UpdateProjectRBACConfigResponse:
        await self._settings.set_older_groups(caller.project_id, request.rbac)
        return pb.UpdateProjectRBACConfigResponse()

    @rpc("AddProjectRBACRole")
    async def add_role(
        self, caller: Person, request: pb.AddProjectRBACRoleRequest
    ) -> pb.AddProjectRBACRoleResponse:
        await self._settings.add_role(caller.project_id, request.name, request.policies)
        return pb.AddProjectRBACRoleResponse()

    @rpc("UpdateProjectRBACRole")
    async def update_role(
        self, caller: Person, request: pb.UpdateProjectRBACRoleRequest
    ) -> pb.UpdateProjectRBACRoleResponse:
        await self._settings.update_role(caller.project_id, request.name, request.policies)
        return pb.UpdateProjectRBACRoleResponse()

    @rpc("DeleteProjectRBACRole")
    async def delete_role(
        self, caller: Person, request: pb.DeleteProjectRBACRoleRequest
    ) -> pb.DeleteProjectRBACRoleResponse:
        await self._settings.delete_role(caller.project_id, request.name)
        return pb.DeleteProjectRBACRoleResponse()

    @rpc("AddProjectUserGroup")
    async def add_user_group(
        self, caller: Person, request: pb.AddProjectUserGroupRequest
    ) -> pb.AddProjectUserGroupResponse:
        await self._settings.add_group(caller.project_id, request.sso_group, request.role)
        return pb.AddProjectUserGroupResponse()

    @rpc("DeleteProjectUserGroup")
    async def delete_user_group(
        self, caller: Person, request: pb.DeleteProjectUserGroupRequest
    ) -> pb.DeleteProjectUserGroupResponse:
        await self._settings.delete_group(caller.project_id, request.sso_group)
        return pb.DeleteProjectUserGroupResponse()
