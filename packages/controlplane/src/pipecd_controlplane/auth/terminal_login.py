# SPDX-License-Identifier: Apache-2.0
"""Signing in a program in a terminal: it shows a code, a person with a session confirms it.

The program gets a secret to poll with, and a short code that it shows. The code alone is good for
nothing: only a person with a session can answer it, once, within a few minutes. The program's
session is a new one, with a secret of its own; it ends no later than the session that confirmed it.
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.auth.addresses import network
from pipecd_controlplane.auth.session_authenticator import SessionAuthenticator
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import sessions
from pipecd_controlplane.usecases.attempts import TooManyAttemptsError
from pipecd_controlplane.usecases.shared_state import AttemptLimiter, LoginRequest, SharedState
from pipecd_model.errors import (
    ConflictError,
    DeniedError,
    NotFoundError,
    UnauthenticatedError,
    UnavailableError,
)
from pipecd_runtime.logs import logger
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.pipecd.api import access_pb2

log = logger(__name__)

LIFETIME_SECONDS: Final = 600
"""How long a code can be confirmed."""
POLL_SECONDS: Final = 2
"""How often a program is told to ask."""
ALPHABET: Final = "BCDFGHJKLMNPQRSTVWXZ"
"""Letters of codes: no vowels, so no words; none that look alike."""
CODE_LENGTH: Final = 8
MOST_CODES_TRIED: Final = 10
"""How often a code is drawn that somebody else has already."""
SECRET_BYTES: Final = 32
"""Of the program's secret, which nobody types."""
AGAIN: Final = "run `pipectl login` again"
"""What helps when a request is gone: they are kept in memory, and end with the process."""
LONGEST_CLIENT: Final = 100
"""Characters of what a program calls itself that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunLogin:
    """What the program gets: a secret for itself, and a code for the person."""

    device_code: str
    user_code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSession:
    """A session for a program, with the secret that only the program has."""

    token: str
    session: access_pb2.Session


class TerminalLogin:
    """Begins sign-ins of programs, lets people answer them, and opens the sessions."""

    def __init__(self, stores: Stores, shared: SharedState, now: Now) -> None:
        self._stores = stores
        self._now = now
        self._requests = shared.login_requests
        self._sessions = SessionAuthenticator(stores, now)
        self._begun = shared.limit_attempts("login-begin", burst=100, seconds=2)
        self._polled = shared.limit_attempts("login-poll", burst=200, seconds=0.25)
        self._typed = shared.limit_attempts("login-code", burst=5, seconds=30)

    async def begin(self, client: str, *, address: str) -> BegunLogin:
        """Keeps a new request. Raises TooManyAttemptsError."""
        await _take(self._begun, network(address))
        device_code = secrets.token_urlsafe(SECRET_BYTES)
        for _ in range(MOST_CODES_TRIED):
            request = LoginRequest(
                user_code="".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH)),
                device_hash=_hash(device_code),
                client=make_printable_line(client[:LONGEST_CLIENT]),
                address=address,
            )
            try:
                await self._requests.add(
                    request, network=network(address), seconds=LIFETIME_SECONDS
                )
            except ConflictError:
                continue
            return BegunLogin(device_code=device_code, user_code=request.user_code)
        raise UnavailableError("there is no free code", hint="try again")

    async def find(self, code: str, session: access_pb2.Session, *, address: str) -> LoginRequest:
        """Returns the open request with a code that a person has typed.

        Raises NotFoundError, or TooManyAttemptsError for a person who guesses.
        """
        who = f"{session.project_id}\n{session.subject}\n{network(address)}"
        await _take(self._typed, who)
        request = await self._requests.find_open(normalize_code(code))
        if request is None:
            log.info("login.unknown_code", project_id=session.project_id, address=address)
            raise NotFoundError(
                "there is no such code",
                hint="it is good for ten minutes, once, and until the control plane is restarted;"
                f" {AGAIN} for another one",
            )
        await self._typed.give_back(who)
        return request

    async def answer(
        self, code: str, session: access_pb2.Session, *, is_confirmed: bool, address: str
    ) -> None:
        """Confirms or refuses a request. Raises as `find` does."""
        request = await self.find(code, session, address=address)
        answered = await self._requests.answer(
            request.user_code,
            session_id=session.id if is_confirmed else "",
            is_refused=not is_confirmed,
        )
        if not answered:
            raise NotFoundError("the code has been answered already")
        log.info(
            "login.confirmed" if is_confirmed else "login.refused",
            project_id=session.project_id,
            subject=session.subject,
            client=request.client,
            client_address=request.address,
            address=address,
        )

    async def poll(self, device_code: str, *, address: str) -> OpenedSession | None:
        """Returns the new session of a request that was confirmed; None while it is open.

        Raises DeniedError for one that was refused, NotFoundError for one that is over or unknown.
        """
        await _take(self._polled, network(address))
        request = await self._requests.take(_hash(device_code))
        if request is None:
            raise NotFoundError(
                "the code is not good any more",
                hint="it was used, its ten minutes are over, or the control plane was restarted;"
                f" {AGAIN}",
            )
        if request.is_refused:
            raise DeniedError("the sign-in was refused in the browser")
        if not request.session_id:
            return None
        return await self._open(request, address)

    async def _open(self, request: LoginRequest, address: str) -> OpenedSession:
        found = await self._stores.sessions.find_by_id(request.session_id)
        if found is None or not await self._sessions.is_good(found[0]):
            raise UnauthenticatedError(
                "whoever confirmed the sign-in is not signed in any more", hint=AGAIN
            )
        confirmed_by = found[0]
        identity = sessions.UserIdentity(
            subject=confirmed_by.subject,
            via=confirmed_by.via,
            avatar_url=confirmed_by.avatar_url,
            groups=tuple(confirmed_by.groups),
            roles=tuple(confirmed_by.roles),
        )
        return await open_session(
            self._stores,
            confirmed_by.project_id,
            identity,
            now=self._now,
            expires_at=confirmed_by.expires_at,
            address=address,
            client=request.client,
        )


async def open_session(
    stores: Stores,
    project_id: str,
    identity: sessions.UserIdentity,
    *,
    now: Now,
    address: str,
    client: str,
    expires_at: int = 0,
) -> OpenedSession:
    """Opens a session for a program, with an end of its own or the default one."""
    token = await sessions.start(
        stores,
        project_id,
        identity,
        now=now,
        expires_at=expires_at,
        address=address,
        user_agent=make_printable_line(client[:LONGEST_CLIENT]),
    )
    session = await sessions.find(stores, token, now=now)
    if session is None:
        raise UnauthenticatedError("the session has ended already", hint=AGAIN)
    return OpenedSession(token=token, session=session)


def normalize_code(code: str) -> str:
    """Returns a code as it is kept, however a person writes it: `wdjb-mjht`, `WDJB MJHT`."""
    return "".join(letter for letter in code.upper() if letter in ALPHABET)[: CODE_LENGTH + 1]


def format_code(code: str) -> str:
    """Returns a code as it is shown: `WDJB-MJHT`."""
    half = CODE_LENGTH // 2
    return f"{code[:half]}-{code[half:]}"


def _hash(device_code: str) -> str:
    # The code has 256 random bits: there is nothing to guess that a slow hash would protect.
    return hashlib.sha256(device_code.encode("utf-8", "replace")).hexdigest()


async def _take(attempts: AttemptLimiter, key: str) -> None:
    if await attempts.take(key):
        raise TooManyAttemptsError("too many attempts to sign in", hint="try again later")
