# SPDX-License-Identifier: Apache-2.0
"""Signing in with the password of a project's static admin.

A project that is not there, a wrong name, a wrong password and a static admin that is switched off
get the same answer after the same work: one comparison with a hash of the same cost.
"""

import hmac
import math
from typing import Final

from controlplane.auth.attempts import Attempts, TooManyAttemptsError
from controlplane.store.stores import Stores
from controlplane.usecases import keys, roles
from controlplane.usecases.sessions import Identity
from pipecd_model.errors import UnauthenticatedError
from pipecd_model.oplog import logger
from pipecd_wire.pipecd.api import access_pb2

log = logger(__name__)

# Of a password that nobody has: its hash is compared where there is none.
NOBODY: Final = "$2b$10$1ux8Qi1OvFXxdMtbvDc5GOMNqUwyF1vTIM8VdjeeOodSHGr2coxuW"


class PasswordDoor:
    """Checks names and passwords, not too many of them."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        # A person who mistypes, a program that guesses from one place, and one from many.
        self._here = Attempts(burst=10, seconds=30)
        self._anywhere = Attempts(burst=100, seconds=5)
        self._per_address = Attempts(burst=100, seconds=1)

    async def sign_in(
        self, project_id: str, username: str, password: str, *, address: str
    ) -> Identity:
        """Raises UnauthenticatedError, or TooManyAttemptsError before anything was looked at."""
        account = f"{project_id}\n{username}"
        wait = max(
            self._here.take(f"{account}\n{address}"),
            self._anywhere.take(account),
            self._per_address.take(address),
        )
        if wait:
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
            raise UnauthenticatedError("wrong project, user name or password")
        self._here.forget(f"{account}\n{address}")
        return Identity(subject=username, via=access_pb2.Session.STATIC_ADMIN, roles=(roles.ADMIN,))
