# SPDX-License-Identifier: Apache-2.0
"""Facts about API keys beside their record: when they expire, when they were last used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, select, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Database, Transaction, View

T: Final = schema.api_key_fact

BY_KEY: Final = select(T.c.expires_at, T.c.last_used_at).where(T.c.key_id == bindparam("key_id"))
OF_PROJECT: Final = select(T.c.key_id, T.c.expires_at, T.c.last_used_at).where(
    T.c.project_id == bindparam("project_id")
)
USED: Final = (
    update(T)
    .where(T.c.key_id == bindparam("this_key"), T.c.last_used_at < bindparam("used_at"))
    .values(last_used_at=bindparam("used_at"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFact:
    """When a key expires and when it was last used, in Unix seconds; 0 is never."""

    expires_at: int = 0
    last_used_at: int = 0


class ApiKeyFacts:
    """Expiry and last use of the API keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, key_id: str) -> KeyFact:
        row = await self._database.one(BY_KEY, key_id=key_id)
        return KeyFact(expires_at=row[0], last_used_at=row[1]) if row else KeyFact()

    async def list_by_project(self, project_id: str) -> dict[str, KeyFact]:
        async def work(view: View) -> dict[str, KeyFact]:
            rows = await view.all(OF_PROJECT, project_id=project_id)
            return {row[0]: KeyFact(expires_at=row[1], last_used_at=row[2]) for row in rows}

        return await self._database.read(work)

    async def add_in(
        self, transaction: Transaction, project_id: str, key_id: str, *, expires_at: int
    ) -> None:
        """Adds the facts of a key; does nothing when they exist already."""
        await transaction.insert_if_absent(
            T, key_id=key_id, project_id=project_id, expires_at=expires_at, last_used_at=0
        )

    async def record_uses(self, uses: Mapping[tuple[str, str], int]) -> None:
        """Stores when keys were used, by project and key id. A time never moves backwards."""

        async def work(transaction: Transaction) -> None:
            for (project_id, key_id), used_at in uses.items():
                await self.add_in(transaction, project_id, key_id, expires_at=0)
                await transaction.run(USED, this_key=key_id, used_at=used_at)

        await self._database.write(work)
