# SPDX-License-Identifier: Apache-2.0
"""Whether a user who may change the project can still sign in.

If not, only the operator of the server can repair it, with the server stopped.
"""

from collections.abc import Collection

from pipecd_controlplane.usecases import roles
from pipecd_wire.model import project_pb2 as pb


def has_admin_way_in(project: pb.Project, shared_sso: Collection[str]) -> bool:
    """Returns whether the static admin is enabled, or single sign-on has a group of admins.

    Only the identity provider knows whether such a group has members.
    """
    if project.static_admin.password_hash and not project.static_admin_disabled:
        return True
    return _has_single_sign_on(project, shared_sso) and _has_admin_group(project)


def _has_single_sign_on(project: pb.Project, shared_sso: Collection[str]) -> bool:
    if project.shared_sso_name:
        return project.shared_sso_name in shared_sso
    sso = project.sso
    if sso.provider == pb.ProjectSSOConfig.OIDC:
        return bool(sso.oidc.client_id and sso.oidc.client_secret and sso.oidc.issuer)
    if sso.provider == pb.ProjectSSOConfig.GITHUB:
        return bool(sso.github.client_id and sso.github.client_secret)
    return False


def _has_admin_group(project: pb.Project) -> bool:
    known = roles.all_roles(project)
    return any(
        group.role in known and _may_change_project(known[group.role])
        for group in roles.user_groups(project)
    )


def _may_change_project(role: pb.ProjectRBACRole) -> bool:
    grant = roles.grant([role], pb.ProjectRBACResource.PROJECT, pb.ProjectRBACPolicy.UPDATE)
    return grant is not None and not grant.is_limited
