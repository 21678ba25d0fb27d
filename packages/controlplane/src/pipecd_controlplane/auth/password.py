# SPDX-License-Identifier: Apache-2.0
"""Signing in with the password of a project's static admin.

A project that is not there, a wrong name, a wrong password and a static admin that is switched off
get the same error after the same work: one comparison with a hash of the same cost.

An address that fails is locked itself. Guesses at one account from many addresses are slowed all
together, but not where the account was signed in from before: no attacker can lock its owner out.
"""

import hmac
import math
from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.auth.addresses import network
from pipecd_controlplane.auth.sign_in_audit import SignInAudit
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import keys, roles
from pipecd_controlplane.usecases.attempts import TooManyAttemptsError
from pipecd_controlplane.usecases.sessions import UserIdentity
from pipecd_controlplane.usecases.shared_state import AttemptLimiter, SharedState
from pipecd_model.errors import UnauthenticatedError
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.api import access_pb2

log = logger(__name__)

# The hash of a password that no account has: compared where there is no account.
NOBODY: Final = "$2b$10$1ux8Qi1OvFXxdMtbvDc5GOMNqUwyF1vTIM8VdjeeOodSHGr2coxuW"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPace:
    """A rate limit: `burst` attempts at once, and one more every `seconds`."""

    burst: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInPaces:
    """How often a sign-in may be attempted."""

    address: AttemptPace = AttemptPace(burst=100, seconds=1)
    """From one network, at all accounts together: a program that guesses from one place."""
    account_here: AttemptPace = AttemptPace(burst=10, seconds=30)
    """At one account from one network: a person who mistypes."""
    account: AttemptPace = AttemptPace(burst=100, seconds=5)
    """At one account from all networks that are new to it: a program that guesses from many."""


DEFAULT_PACES: Final = SignInPaces()


class PasswordSignIn:
    """Checks names and passwords, with limits on the number of attempts."""

    def __init__(
        self,
        stores: Stores,
        shared: SharedState,
        paces: SignInPaces = DEFAULT_PACES,
        *,
        audit: SignInAudit | None = None,
    ) -> None:
        self._audit = audit

        def attempts(name: str, pace: AttemptPace) -> AttemptLimiter:
            return shared.limit_attempts(name, burst=pace.burst, seconds=pace.seconds)

        self._stores = stores
        self._per_address = attempts("sign-in-address", paces.address)
        self._here = attempts("sign-in-here", paces.account_here)
        self._anywhere = attempts("sign-in-account", paces.account)
        # Apart from the others, so that no crowd of strangers uses up their room.
        self._at_home = attempts("sign-in-at-home", paces.account_here)
        self._familiar = shared.familiar_networks

    async def sign_in(
        self, project_id: str, username: str, password: str, *, address: str
    ) -> UserIdentity:
        """Returns who has signed in.

        Raises UnauthenticatedError, or TooManyAttemptsError before anything is compared.
        """
        account, source = f"{project_id}\n{username}", network(address)
        if wait := await self._take(account, source):
            log.warning("sign_in.too_often", project_id=project_id[:64], address=address)
            raise TooManyAttemptsError(
                "too many attempts to sign in", hint=f"try again in {math.ceil(wait)} seconds"
            )
        project = await self._stores.projects.find(project_id)
        admin = project.static_admin if project else None
        enabled = project is not None and not project.static_admin_disabled
        hashed = admin.password_hash if admin and admin.password_hash else NOBODY
        known = hmac.compare_digest((admin.username if admin else "").encode(), username.encode())
        right = await keys.matches(password, hashed)
        if not (right and known and enabled and hashed != NOBODY):
            log.info("sign_in.refused", project_id=project_id[:64], address=address)
            if project is not None and self._audit is not None:
                self._audit.note_failure(
                    project_id,
                    name=username if known else "",
                    via=access_pb2.Session.STATIC_ADMIN,
                    address=address,
                )
            raise UnauthenticatedError("wrong project, user name or password")
        await self._record_success(account, source)
        return UserIdentity(
            subject=username, via=access_pb2.Session.STATIC_ADMIN, roles=(roles.ADMIN,)
        )

    async def _take(self, account: str, source: str) -> float:
        """Uses up one attempt; returns 0, or the seconds to wait when none is left.

        The narrowest limit is asked first: what it refuses uses up nothing that others need.
        """
        here = f"{account}\n{source}"
        if await self._familiar.has(account, source):
            return await self._at_home.take(here)
        return (
            await self._per_address.take(source)
            or await self._here.take(here)
            or await self._anywhere.take(account)
        )

    async def _record_success(self, account: str, source: str) -> None:
        here = f"{account}\n{source}"
        if not await self._familiar.has(account, source):
            # One attempt and no more: an account of one's own must not pay for guesses at others.
            await self._per_address.give_back(source)
            await self._anywhere.give_back(account)
        await self._here.forget(here)
        await self._at_home.forget(here)
        await self._familiar.add(account, source)
