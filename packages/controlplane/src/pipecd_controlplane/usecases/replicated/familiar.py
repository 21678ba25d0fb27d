# SPDX-License-Identifier: Apache-2.0
"""The networks that each account has signed in from, at any control plane; kept as hashes."""

import hashlib
from typing import Final

from pipecd_controlplane.store.postgres.shared_tables import SharedStatements, SharedTables
from pipecd_controlplane.usecases.familiar import MOST_NETWORKS

HAS: Final = "SELECT 1 FROM pipecd_familiar_network WHERE account = $1 AND network = $2"
ADD: Final = (
    "INSERT INTO pipecd_familiar_network (account, network, used_at) VALUES ($1, $2, now())"
    " ON CONFLICT (account, network) DO UPDATE SET used_at = excluded.used_at"
)
FORGET_OLDEST: Final = (
    "DELETE FROM pipecd_familiar_network WHERE account = $1 AND network NOT IN"
    " (SELECT network FROM pipecd_familiar_network WHERE account = $1"
    " ORDER BY used_at DESC, network LIMIT $2)"
)


class ReplicatedFamiliarNetworks:
    """Implements `FamiliarNetworks`."""

    def __init__(self, tables: SharedTables) -> None:
        self._tables = tables

    async def has(self, account: str, network: str) -> bool:
        return await self._tables.row(HAS, *_hash(account, network)) is not None

    async def add(self, account: str, network: str) -> None:
        hashed, place = _hash(account, network)

        async def work(statements: SharedStatements) -> None:
            await statements.run(ADD, hashed, place)
            await statements.run(FORGET_OLDEST, hashed, MOST_NETWORKS)

        await self._tables.run_together(work)


def _hash(account: str, network: str) -> tuple[bytes, bytes]:
    hashed = hashlib.sha256(account.encode("utf-8", "surrogatepass")).digest()
    # With the account, so that two people on one network have nothing in common here.
    place = hashlib.sha256(hashed + network.encode("utf-8", "surrogatepass")).digest()
    return hashed, place
