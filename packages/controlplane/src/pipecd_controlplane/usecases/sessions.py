# SPDX-License-Identifier: Apache-2.0
"""Sessions: opened by a sign-in, read at each call, ended by their owner or an admin.

The cookie holds the session's id and a random secret, of which only a hash is stored. Rights are
not in the session: they are read from the project at each call, so that a changed role takes effect
at once.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.store.auditing import SESSION, AuditSubject, auditing
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.audit_actors import (
    SIGN_IN,
    SIGN_OUT,
    describe_act,
    describe_person,
)
from pipecd_model.errors import NotFoundError
from pipecd_model.ids import new_id
from pipecd_wire.pipecd.api import access_pb2

DEFAULT_HOURS: Final = 168
LONGEST_AGENT: Final = 200
"""Characters of a browser's name that are kept."""

Via = access_pb2.Session.Via


@dataclass(frozen=True, slots=True, kw_only=True)
class UserIdentity:
    """Who signed in, as the identity provider reports it."""

    subject: str
    via: Via.ValueType
    avatar_url: str = ""
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


async def start(
    stores: Stores,
    project_id: str,
    identity: UserIdentity,
    *,
    now: Now,
    hours: int = DEFAULT_HOURS,
    expires_at: int = 0,
    address: str = "",
    user_agent: str = "",
) -> str:
    """Start a session; returns the value of its cookie, of which only the hash is stored.

    It ends after `hours`, or at `expires_at`.
    """
    secret = secrets.token_urlsafe(32)
    at = now()
    session = access_pb2.Session(
        id=new_id(),
        project_id=project_id,
        subject=identity.subject,
        avatar_url=identity.avatar_url,
        via=identity.via,
        groups=identity.groups,
        roles=identity.roles,
        address=address,
        user_agent=user_agent[:LONGEST_AGENT],
        created_at=at,
        expires_at=expires_at or at + hours * 3600,
    )
    actor = describe_person(identity.subject, identity.via, address)
    subject = AuditSubject(kind=SESSION, id=session.id)
    with auditing(describe_act(project_id, actor, SIGN_IN, at, subject=subject)):
        await stores.sessions.add(session, _hash(secret))
    return f"{session.id}.{secret}"


async def find(stores: Stores, cookie: str, *, now: Now) -> access_pb2.Session | None:
    """Returns the session of a cookie; None when it is unknown, expired or the secret differs."""
    session_id, _, secret = cookie.partition(".")
    found = await stores.sessions.find_by_id(session_id)
    if found is None:
        return None
    session, kept = found
    if not hmac.compare_digest(_hash(secret), kept) or session.expires_at <= now():
        return None
    return session


async def sign_out(
    stores: Stores, session: access_pb2.Session, *, now: Now, address: str = ""
) -> None:
    """Ends the session of a person who signs out."""
    actor = describe_person(session.subject, session.via, address)
    subject = AuditSubject(kind=SESSION, id=session.id)
    with auditing(describe_act(session.project_id, actor, SIGN_OUT, now(), subject=subject)):
        await stores.sessions.end(session.project_id, session.id)


Owner = tuple[str, int]
"""The owner of a session: the user's name, and how they signed in."""


def owner_of(session: access_pb2.Session) -> Owner:
    return session.subject, session.via


async def end(
    stores: Stores, project_id: str, session_id: str, *, owner: Owner | None = None
) -> None:
    """Ends a session of the project; does nothing when it has ended already.

    Raises NotFoundError for a session of another project, or of another user than `owner`.
    """
    found = await stores.sessions.find_by_id(session_id)
    if found is None:
        return
    session, _hash_of_secret = found
    if session.project_id != project_id or owner not in {None, owner_of(session)}:
        raise NotFoundError(f"there is no session {session_id!r}")
    await stores.sessions.end(project_id, session_id)


def _hash(secret: str) -> str:
    # The secret has 256 random bits: there is nothing to guess that a slow hash would protect.
    return hashlib.sha256(secret.encode()).hexdigest()
