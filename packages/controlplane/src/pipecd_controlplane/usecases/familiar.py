# SPDX-License-Identifier: Apache-2.0
"""The networks that each account has signed in from.

Failed attempts from other networks must not lock these out. Stored in memory, as keyed hashes, and
only for successful sign-ins: a caller cannot fill it with made-up names.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from typing import Final

MOST_ACCOUNTS: Final = 1000
MOST_NETWORKS: Final = 10
"""Of one account; the one used longest ago is forgotten."""


class InProcessFamiliarNetworks:
    """The networks that an account was signed in from lately."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._accounts: OrderedDict[bytes, OrderedDict[bytes, None]] = OrderedDict()

    async def has(self, account: str, network: str) -> bool:
        return self._hash(network) in self._accounts.get(self._hash(account), ())

    async def add(self, account: str, network: str) -> None:
        """Records a successful sign-in."""
        name, place = self._hash(account), self._hash(network)
        networks = self._accounts.setdefault(name, OrderedDict())
        self._accounts.move_to_end(name)
        networks[place] = None
        networks.move_to_end(place)
        if len(networks) > MOST_NETWORKS:
            networks.popitem(last=False)
        if len(self._accounts) > MOST_ACCOUNTS:
            self._accounts.popitem(last=False)

    def _hash(self, text: str) -> bytes:
        data = text.encode("utf-8", "surrogatepass")
        return hmac.new(self._key, data, hashlib.sha256).digest()
