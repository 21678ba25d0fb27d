# SPDX-License-Identifier: Apache-2.0
"""One-time links: whoever owns the data folder gets one, and a browser on the same machine uses it.

A link is a random secret, kept here as a hash only, in memory: it is good once, for ten minutes,
and until the process ends. Who can ask for one can read the whole data folder already.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.auth.addresses import network
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.attempts import TooManyAttemptsError
from pipecd_controlplane.usecases.roles import ADMIN
from pipecd_controlplane.usecases.sessions import UserIdentity
from pipecd_controlplane.usecases.shared_state import SharedState
from pipecd_model.errors import NotFoundError, UnauthenticatedError
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.api import access_pb2

log = logger(__name__)

LINK_PATH: Final = "/auth/link"
LIFETIME_SECONDS: Final = 600
"""How long a link is good."""
SESSION_HOURS: Final = 24
"""How long the session lasts that it opens."""
SECRET_BYTES: Final = 32
MOST: Final = 20
"""Links that are good at the same time; the oldest of more is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInLink:
    """Who is let in by a link, and where."""

    project_id: str
    name: str
    good_until: float

    @property
    def identity(self) -> UserIdentity:
        return UserIdentity(subject=self.name, via=access_pb2.Session.LINK, roles=(ADMIN,))


class SignInLinks:
    """Makes links, and takes each of them once."""

    def __init__(
        self, stores: Stores, shared: SharedState, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._links: dict[str, SignInLink] = {}
        """By the hash of the secret, the oldest first."""
        self._attempts = shared.limit_attempts("sign-in-link", burst=10, seconds=6)

    async def make(self, project_id: str, name: str) -> str:
        """Returns the secret of a new link for a project; for the only one, if none is named.

        Raises NotFoundError.
        """
        project_id = await self._find_project(project_id)
        secret = secrets.token_urlsafe(SECRET_BYTES)
        now = self._clock()
        self._links = {key: each for key, each in self._links.items() if each.good_until > now}
        while len(self._links) >= MOST:
            del self._links[next(iter(self._links))]
        self._links[_hash(secret)] = SignInLink(
            project_id=project_id, name=name, good_until=now + LIFETIME_SECONDS
        )
        log.info("sign_in_link.made", project_id=project_id, subject=name)
        return secret

    async def take(self, secret: str, *, address: str) -> SignInLink:
        """Returns the link of a secret, which is good for nothing after that.

        Raises UnauthenticatedError for one that is not good, TooManyAttemptsError for guessing.
        """
        who = network(address)
        if await self._attempts.take(who):
            raise TooManyAttemptsError("too many attempts to sign in", hint="try again later")
        link = self._links.pop(_hash(secret), None)
        if link is None or link.good_until <= self._clock():
            log.info("sign_in_link.refused", address=address)
            raise UnauthenticatedError(
                "the link is not good any more",
                hint="it works once, for ten minutes, and until the server is restarted; make"
                " another one with `pipecd sign-in-link`, or press l in a running quickstart",
            )
        await self._attempts.give_back(who)
        return link

    async def _find_project(self, project_id: str) -> str:
        known = await self._stores.projects.ids()
        if project_id in known:
            return project_id
        if not project_id and len(known) == 1:
            return known[0]
        names = ", ".join(sorted(known)[:20])
        raise NotFoundError(
            f"there is no project {project_id!r}" if project_id else "there are several projects",
            hint=f"name one with --project: {names}",
        )


def _hash(secret: str) -> str:
    # The secret has 256 random bits: there is nothing to guess that a slow hash would protect.
    return hashlib.sha256(secret.encode()).hexdigest()
