# SPDX-License-Identifier: Apache-2.0
"""A project's own settings: who its static admin is, and which groups have which roles.

A project of the configuration file is as the file says; it cannot be changed here. A change that
would leave no way for an admin to sign in and undo it is refused.
"""

from collections.abc import Callable, Collection, Sequence

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import limits, roles
from pipecd_controlplane.usecases.keys import hash_of
from pipecd_controlplane.usecases.pipeds import REDACTED
from pipecd_controlplane.usecases.ways_in import has_admin_way_in
from pipecd_model.errors import ConfigError, ConflictError, NotFoundError, StateError
from pipecd_wire.model import project_pb2 as pb
from pipecd_wire.pipecd.api import access_pb2

LONGEST_PASSWORD = 72
"""Bytes: bcrypt looks at no more."""
SHORTEST_PASSWORD = 8

MOST_BYTES = 256 * 1024
"""Of a project with its roles and groups."""


class ProjectSettings:
    """Changes to projects, and what is shown of them."""

    def __init__(
        self,
        stores: Stores,
        configured: Collection[str] = (),
        shared_sso: Collection[str] = (),
    ) -> None:
        self._stores = stores
        self._configured = configured
        self._shared_sso = shared_sso

    async def read_redacted(self, project_id: str) -> pb.Project:
        """Returns the project with all of its roles and groups, without its secrets."""
        project = await self._stores.projects.get(project_id)
        shown = [*roles.BUILT_IN.values(), *project.rbac_roles]
        groups = roles.user_groups(project)
        del project.rbac_roles[:], project.user_groups[:]
        project.rbac_roles.extend(shown)
        project.user_groups.extend(groups)
        if project.HasField("static_admin"):
            project.static_admin.password_hash = REDACTED
        for provider in ("github", "google", "oidc"):
            if project.sso.HasField(provider):
                client = getattr(project.sso, provider)
                client.client_id = client.client_secret = REDACTED
        return project

    async def set_static_admin(self, project_id: str, username: str, password: str) -> None:
        """Sets the name and password of the static admin, and ends the sessions of the old ones."""
        limits.text("username", username, limits.NAME)
        length = len(password.encode())
        if not SHORTEST_PASSWORD <= length <= LONGEST_PASSWORD:
            raise ConfigError(
                f"invalid request: password: it has {length} bytes",
                hint=f"between {SHORTEST_PASSWORD} and {LONGEST_PASSWORD}",
            )
        hashed = await hash_of(password)

        def edit(project: pb.Project) -> None:
            project.static_admin.username = username
            project.static_admin.password_hash = hashed

        await self._change_static_admin(project_id, edit)

    async def switch_static_admin(
        self, project_id: str, *, disabled: bool, own_session: str = ""
    ) -> None:
        """Enables or disables the static admin, and ends its sessions except the caller's own.

        Raises StateError when no admin could sign in any more to enable it again.
        """

        def edit(project: pb.Project) -> None:
            if not disabled and not project.static_admin.password_hash:
                raise StateError(
                    f"the project {project.id!r} has no static admin",
                    hint="give it a user name and a password first",
                )
            project.static_admin_disabled = disabled

        await self._change_static_admin(project_id, edit, keep=own_session)

    async def set_older_groups(self, project_id: str, groups: pb.ProjectRBACConfig) -> None:
        """Sets one group for each of the built-in roles, as older versions had it."""

        def edit(project: pb.Project) -> None:
            project.rbac.CopyFrom(groups)

        await self.change(project_id, edit)

    async def add_role(
        self, project_id: str, name: str, policies: Sequence[pb.ProjectRBACPolicy]
    ) -> None:
        roles.check_rights(policies)

        def edit(project: pb.Project) -> None:
            if name in roles.all_roles(project):
                raise ConflictError(f"the role {name!r} exists already")
            project.rbac_roles.append(pb.ProjectRBACRole(name=name, policies=policies))

        await self.change(project_id, edit)

    async def update_role(
        self, project_id: str, name: str, policies: Sequence[pb.ProjectRBACPolicy]
    ) -> None:
        roles.check_rights(policies)

        def edit(project: pb.Project) -> None:
            role = _own_role(project, name)
            del role.policies[:]
            role.policies.extend(policies)

        await self.change(project_id, edit)

    async def delete_role(self, project_id: str, name: str) -> None:
        def edit(project: pb.Project) -> None:
            role = _own_role(project, name)
            used = [each.sso_group for each in project.user_groups if each.role == name]
            if used:
                raise StateError(
                    f"the role {name!r} is in use",
                    hint=f"take it from {', '.join(map(repr, used))} first",
                )
            project.rbac_roles.remove(role)

        await self.change(project_id, edit)

    async def add_group(self, project_id: str, group: str, role: str) -> None:
        def edit(project: pb.Project) -> None:
            if any(each.sso_group == group for each in roles.user_groups(project)):
                raise ConflictError(f"the user group {group!r} has a role already")
            if role not in roles.all_roles(project):
                raise ConfigError(
                    f"invalid request: role: there is no role {role!r}",
                    hint=f"one of {', '.join(sorted(roles.all_roles(project)))}",
                )
            project.user_groups.append(pb.ProjectUserGroup(sso_group=group, role=role))

        await self.change(project_id, edit)

    async def delete_group(self, project_id: str, group: str) -> None:
        def edit(project: pb.Project) -> None:
            kept = [each for each in project.user_groups if each.sso_group != group]
            older = [
                name
                for name in ("admin", "editor", "viewer")
                if getattr(project.rbac, name) == group
            ]
            if len(kept) == len(project.user_groups) and not older:
                raise NotFoundError(f"there is no user group {group!r}")
            for name in older:
                setattr(project.rbac, name, "")
            del project.user_groups[:]
            project.user_groups.extend(kept)

        await self.change(project_id, edit)

    async def change(self, project_id: str, edit: Callable[[pb.Project], None]) -> None:
        self._changeable(project_id)

        def edit_within_limit(project: pb.Project) -> None:
            self._edit(project, edit)
            # It is read at each call of its people.
            limits.size("project", project, MOST_BYTES)

        await self._stores.projects.update(project_id, edit_within_limit)

    async def _change_static_admin(
        self, project_id: str, edit: Callable[[pb.Project], None], *, keep: str = ""
    ) -> None:
        self._changeable(project_id)

        async def work(transaction: Transaction) -> None:
            await self._stores.projects.update_in(
                transaction, project_id, lambda project: self._edit(project, edit)
            )
            await self._stores.sessions.end_via_in(
                transaction, project_id, access_pb2.Session.STATIC_ADMIN, keep=keep
            )
            if keep:
                await self._stores.sessions.update_in(
                    transaction, project_id, keep, _let_outlive_static_admin
                )

        await self._stores.database.write(work)

    def _edit(self, project: pb.Project, edit: Callable[[pb.Project], None]) -> None:
        """Applies the change. Raises StateError when no admin could sign in after it."""
        had_way_in = has_admin_way_in(project, self._shared_sso)
        edit(project)
        if had_way_in and not has_admin_way_in(project, self._shared_sso):
            raise StateError(
                f"nobody could administer the project {project.id!r} any more",
                hint="keep the static admin switched on, or set up single sign-on and give one of"
                " its groups the role Admin first",
            )

    def _changeable(self, project_id: str) -> None:
        if project_id in self._configured:
            raise StateError(
                f"the project {project_id!r} is in the configuration file",
                hint="change it there",
            )


def _let_outlive_static_admin(session: access_pb2.Session) -> None:
    session.outlives_static_admin = session.via == access_pb2.Session.STATIC_ADMIN


def _own_role(project: pb.Project, name: str) -> pb.ProjectRBACRole:
    if name in roles.BUILT_IN:
        raise StateError(f"the role {name!r} is built in")
    for role in project.rbac_roles:
        if role.name == name:
            return role
    raise NotFoundError(f"there is no role {name!r}")
