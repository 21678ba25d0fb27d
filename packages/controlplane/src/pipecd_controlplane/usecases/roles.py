# SPDX-License-Identifier: Apache-2.0
"""Roles: what their holders may do. Three are built in, a project adds its own.

What no policy grants is denied. A policy whose resource carries labels covers only entities that
have all of these labels.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pipecd_wire.model import project_pb2 as pb

Resource = pb.ProjectRBACResource
Policy = pb.ProjectRBACPolicy

ADMIN: Final = "Admin"
EDITOR: Final = "Editor"
VIEWER: Final = "Viewer"


def _policy(
    actions: Iterable[Policy.Action.ValueType], *types: Resource.ResourceType.ValueType
) -> Policy:
    return Policy(resources=[Resource(type=each) for each in types], actions=actions)


def _role(name: str, *policies: Policy) -> pb.ProjectRBACRole:
    return pb.ProjectRBACRole(name=name, policies=policies, is_builtin=True)


_READ: Final = (Policy.GET, Policy.LIST)
_SEEN_BY_ALL: Final = (
    _policy([Policy.GET], Resource.PROJECT),
    _policy([Policy.GET], Resource.INSIGHT),
    _policy([Policy.LIST], Resource.EVENT),
    # Upstream shows chains to nobody, by omission.
    _policy(_READ, Resource.DEPLOYMENT_CHAIN),
)

BUILT_IN: Final = {
    role.name: role
    for role in (
        _role(ADMIN, _policy([Policy.ALL], Resource.ALL)),
        _role(
            EDITOR,
            _policy([Policy.ALL], Resource.APPLICATION),
            _policy([Policy.ALL], Resource.DEPLOYMENT),
            _policy(_READ, Resource.PIPED),
            *_SEEN_BY_ALL,
        ),
        _role(
            VIEWER,
            _policy(_READ, Resource.APPLICATION),
            _policy(_READ, Resource.DEPLOYMENT),
            _policy(_READ, Resource.PIPED),
            *_SEEN_BY_ALL,
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Permission for an action: on everything, or on entities that have one of these label sets."""

    label_sets: tuple[Mapping[str, str], ...] = ()

    @property
    def is_limited(self) -> bool:
        return bool(self.label_sets)

    def covers(self, labels: Mapping[str, str]) -> bool:
        return not self.is_limited or any(
            wanted.items() <= labels.items() for wanted in self.label_sets
        )


def grant(
    roles: Iterable[pb.ProjectRBACRole],
    resource: Resource.ResourceType.ValueType,
    action: Policy.Action.ValueType,
) -> Grant | None:
    """Returns the permission that these roles give together; None when they do not allow it."""
    limited = []
    for policy in (policy for role in roles for policy in role.policies):
        if action not in policy.actions and Policy.ALL not in policy.actions:
            continue
        for each in policy.resources:
            if each.type in {resource, Resource.ALL}:
                if not each.labels:
                    return Grant()
                limited.append(dict(each.labels))
    return Grant(label_sets=tuple(limited)) if limited else None


def all_roles(project: pb.Project) -> dict[str, pb.ProjectRBACRole]:
    """Returns the roles by name; a project's role cannot shadow a built-in one."""
    return {role.name: role for role in project.rbac_roles} | BUILT_IN


def user_groups(project: pb.Project) -> list[pb.ProjectUserGroup]:
    """Returns the role of each group; groups of the older form first, with their highest role."""
    older: dict[str, str] = {}
    for group, role in (
        (project.rbac.admin, ADMIN),
        (project.rbac.editor, EDITOR),
        (project.rbac.viewer, VIEWER),
    ):
        if group:
            older.setdefault(group, role)
    listed = [pb.ProjectUserGroup(sso_group=group, role=role) for group, role in older.items()]
    return [*listed, *(each for each in project.user_groups if each.sso_group not in older)]


def roles_of(
    project: pb.Project, groups: Iterable[str], fixed: Iterable[str]
) -> list[pb.ProjectRBACRole]:
    """Returns the roles of a user: those in `fixed`, and those of the groups.

    Names of roles that do not exist are ignored.
    """
    known = all_roles(project)
    held = set(groups)
    names = [each.role for each in user_groups(project) if each.sso_group in held]
    unique = dict.fromkeys([*fixed, *names])
    return [known[name] for name in unique if name in known]
