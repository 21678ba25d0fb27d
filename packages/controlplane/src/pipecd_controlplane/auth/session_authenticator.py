# SPDX-License-Identifier: Apache-2.0
"""Authenticates sessions, and reads their rights from the project at each call.

A session says who the person is; roles and groups are the project's and may have changed since.
"""

from typing import Final

from pipecd_controlplane.auth.caller import Person, RefusedCallerError
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import roles, sessions
from pipecd_controlplane.usecases.roles import Grant
from pipecd_model.errors import UnauthenticatedError
from pipecd_wire.headers import SESSION_COOKIE
from pipecd_wire.model import project_pb2
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.rpc import Method

TOKEN: Final = SESSION_COOKIE

Resource = project_pb2.ProjectRBACResource
Action = project_pb2.ProjectRBACPolicy


class SessionAuthenticator:
    """Authenticates sessions, by the cookie that a browser or pipectl sends."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    async def admit(self, method: Method, cookies: str, idempotency_key: str) -> Person:
        """Returns the person of a session.

        Raises UnauthenticatedError without an open session, DeniedError without the right.
        """
        found = await self._find(cookies)
        if found is None:
            raise UnauthenticatedError("Unauthenticated", hint="sign in again")
        session, project = found
        held = roles.roles_of(project, session.groups, session.roles)
        grant = find_method_grant(method, held)
        whole = roles.grant(held, Resource.PROJECT, Action.UPDATE)
        person = Person(
            project_id=project.id,
            session_id=session.id,
            name=session.subject,
            via=session.via,
            avatar_url=session.avatar_url,
            grant=grant or Grant(),
            may_change_project=whole is not None and not whole.is_limited,
            expires_at=session.expires_at,
            idempotency_key=idempotency_key,
        )
        if grant is None:
            raise RefusedCallerError("Permission Denied", person)
        return person

    async def find(self, cookies: str) -> access_pb2.Session | None:
        """Returns the session of a browser; None when there is no open one."""
        found = await self._find(cookies)
        return None if found is None else found[0]

    async def is_good(self, session: access_pb2.Session) -> bool:
        """Returns whether a session that was found by its id still lets its user in."""
        project = await self._stores.projects.find(session.project_id)
        return (
            project is not None
            and session.expires_at > self._now()
            and not _is_switched_off(project, session)
        )

    async def _find(self, cookies: str) -> tuple[access_pb2.Session, project_pb2.Project] | None:
        session = await sessions.find(self._stores, find_cookie(cookies, TOKEN), now=self._now)
        project = await self._stores.projects.find(session.project_id) if session else None
        if session is None or project is None or _is_switched_off(project, session):
            return None
        return session, project


def _is_switched_off(project: project_pb2.Project, session: access_pb2.Session) -> bool:
    """Returns whether this is a session of the static admin, who has been disabled since.

    The session that disabled the static admin stays valid, so that it can undo that.
    """
    return (
        session.via == access_pb2.Session.STATIC_ADMIN
        and project.static_admin_disabled
        and not session.outlives_static_admin
    )


def find_method_grant(method: Method, held: list[project_pb2.ProjectRBACRole]) -> Grant | None:
    """Returns the permission of these roles for an RPC; None when they do not allow it."""
    if method.rbac is None or not held:
        return None
    if method.rbac.ignored:
        return Grant()
    grant = roles.grant(held, method.rbac.resource, method.rbac.action, method.own_right)
    if grant is not None and grant.is_limited and not method.checks_labels:
        return None
    return grant


def find_cookie(header: str, name: str) -> str:
    """Returns the value of one cookie; empty when it is not there. Skips what is no cookie.

    Of two with one name the first counts: browsers put the one with the longer path there.
    """
    for part in header.split(";"):
        key, equals, value = part.strip().partition("=")
        if equals and key == name:
            return value.strip().strip('"')
    return ""
