# SPDX-License-Identifier: Apache-2.0
"""Authenticates sessions, and reads their rights from the project at each call.

A session says who the person is; roles and groups are the project's and may have changed since.
"""

from typing import Final

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import roles, sessions
from pipecd_controlplane.usecases.roles import Grant
from pipecd_model.errors import DeniedError, UnauthenticatedError
from pipecd_wire.model import project_pb2
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.rpc import Method

TOKEN: Final = "token"  # noqa: S105 - the name of a cookie, upstream's

Resource = project_pb2.ProjectRBACResource
Action = project_pb2.ProjectRBACPolicy


class SessionAuthenticator:
    """Authenticates the sessions of browsers, by their cookie."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    async def admit(self, method: Method, cookies: str, idempotency_key: str) -> Person:
        """Returns the person of a session.

        Raises UnauthenticatedError without an open session, DeniedError without the right.
        """
        session = await sessions.find(self._stores, find_cookie(cookies, TOKEN), now=self._now)
        project = await self._stores.projects.find(session.project_id) if session else None
        if session is None or project is None or _is_switched_off(project, session):
            raise UnauthenticatedError("Unauthenticated", hint="sign in again")
        held = roles.roles_of(project, session.groups, session.roles)
        grant = _grant(method, held)
        if grant is None:
            raise DeniedError("Permission Denied")
        whole = roles.grant(held, Resource.PROJECT, Action.UPDATE)
        return Person(
            project_id=project.id,
            session_id=session.id,
            name=session.subject,
            via=session.via,
            avatar_url=session.avatar_url,
            grant=grant,
            may_change_project=whole is not None and not whole.is_limited,
            expires_at=session.expires_at,
            idempotency_key=idempotency_key,
        )


def _is_switched_off(project: project_pb2.Project, session: access_pb2.Session) -> bool:
    """Returns whether this is a session of the static admin, who has been disabled since.

    The session that disabled the static admin stays valid, so that it can undo that.
    """
    return (
        session.via == access_pb2.Session.STATIC_ADMIN
        and project.static_admin_disabled
        and not session.outlives_static_admin
    )


def _grant(method: Method, held: list[project_pb2.ProjectRBACRole]) -> Grant | None:
    if method.rbac is None or not held:
        return None
    if method.rbac.ignored:
        return Grant()
    grant = roles.grant(held, method.rbac.resource, method.rbac.action)
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
