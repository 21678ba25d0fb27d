# SPDX-License-Identifier: Apache-2.0
"""Is a caller still let in? Asked by streams, which outlive the moment at the door."""

from controlplane.auth.caller import Person, User
from controlplane.store.entities import Now
from controlplane.store.stores import Stores
from pipecd_model.errors import UnauthenticatedError


class Standing:
    """Looks again at the session or the key of a caller; two reads by primary key at most."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    async def check(self, caller: User) -> None:
        """Raises UnauthenticatedError when the session or the key was taken away or is over."""
        if isinstance(caller, Person):
            found = await self._stores.sessions.by_id(caller.session_id)
            if found is None or found[0].expires_at <= self._now():
                raise UnauthenticatedError("the session is over", hint="sign in again")
            return
        key = await self._stores.api_keys.by_id(caller.key_id)
        if key is None or key.disabled:
            raise UnauthenticatedError("the API key is disabled")
        ends = (await self._stores.api_key_facts.of_key(caller.key_id)).expires_at
        if ends and ends <= self._now():
            raise UnauthenticatedError("the API key has expired")
