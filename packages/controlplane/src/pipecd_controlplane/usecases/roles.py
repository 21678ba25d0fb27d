# SPDX-License-Identifier: Apache-2.0
"""Roles: what their holders may do. Three are built in, a project adds its own.

What no policy grants is denied. A policy whose resource carries labels covers only entities that
have all of these labels.

A right that upstream's actions have no word for (`pipecd.options.OwnRight`) is part of all actions
of its resource. A policy grants it alone by the label `RIGHT_LABEL` on its resource: so roles keep
upstream's form, and programs of upstream's show and store them as they are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pipecd_model.errors import ConfigError
from pipecd_wire.model import project_pb2 as pb
from pipecd_wire.options import rights_pb2

Resource = pb.ProjectRBACResource
Policy = pb.ProjectRBACPolicy

ADMIN: Final = "Admin"
EDITOR: Final = "Editor"
VIEWER: Final = "Viewer"

RIGHT_LABEL: Final = "pipecd.dev/right"
"""The label of a policy's resource that names one of our own rights: the policy grants no other."""


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
    own_right: int = rights_pb2.OWN_RIGHT_UNSPECIFIED,
) -> Grant | None:
    """Returns the permission that these roles give together; None when they do not allow it."""
    limited = []
    for policy in (policy for role in roles for policy in role.policies):
        if action not in policy.actions and Policy.ALL not in policy.actions:
            continue
        for each in policy.resources:
            labels = dict(each.labels)
            named = labels.pop(RIGHT_LABEL, None)
            if each.type not in {resource, Resource.ALL} or not _has_right(
                policy, named, own_right
            ):
                continue
            if not labels:
                return Grant()
            limited.append(labels)
    return Grant(label_sets=tuple(limited)) if limited else None


def _has_right(policy: Policy, named: str | None, own_right: int) -> bool:
    """Returns whether a policy that grants an action also grants a right of ours, if one is needed.

    `named` is the right that the policy's resource is for, None when it is for upstream's.
    """
    if named is not None:
        return bool(own_right) and named == format_right(own_right)
    return not own_right or Policy.ALL in policy.actions


def check_rights(policies: Iterable[Policy]) -> None:
    """Raises ConfigError for a policy that names a right of ours that there is not."""
    known = [format_right(each) for each in rights_pb2.OwnRight.values() if each]
    for labels in (resource.labels for policy in policies for resource in policy.resources):
        if RIGHT_LABEL in labels and labels[RIGHT_LABEL] not in known:
            raise ConfigError(
                f"invalid request: policies: there is no right {labels[RIGHT_LABEL][:40]!r}",
                hint=f"{RIGHT_LABEL} may name {', '.join(known)}",
            )


def format_right(own_right: int) -> str:
    """Returns the name of a right as `RIGHT_LABEL` has it, e.g. `open-resources`."""
    name = rights_pb2.OwnRight.Name(rights_pb2.OwnRight.ValueType(own_right))
    return name.lower().replace("_", "-")


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
