# SPDX-License-Identifier: Apache-2.0
"""Alarms: conditions of a piped that people must know of, stored by piped and name."""

from typing import Final

from sqlalchemy import bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import Database, Transaction, View
from pipecd_controlplane.store.entities import Now

T: Final = schema.piped_alarm

SINCE: Final = (
    select(T.c.piped_id, T.c.sentence)
    .where(T.c.project_id == bindparam("project_id"), T.c.seen_at > bindparam("since"))
    .order_by(T.c.raised_at, T.c.name)
)


class Alarms:
    """The alarms of all pipeds, each known by its name."""

    def __init__(self, database: Database, now: Now) -> None:
        self._database = database
        self._now = now

    async def raise_for(self, project_id: str, piped_id: str, name: str, sentence: str) -> None:
        """Stores an alarm; one with this name that exists gets the new sentence and time."""
        now = self._now()

        async def work(transaction: Transaction) -> None:
            transaction.publish(Change(kind=ChangeKind.PIPED, id=piped_id, project_id=project_id))
            await transaction.upsert(
                T,
                ("sentence", "seen_at"),
                piped_id=piped_id,
                project_id=project_id,
                name=name,
                sentence=sentence,
                raised_at=now,
                seen_at=now,
            )

        await self._database.write(work)

    async def list_by_project(self, project_id: str, *, since: int) -> dict[str, list[str]]:
        """Returns the sentences of the alarms seen after `since`, by piped."""

        async def work(view: View) -> dict[str, list[str]]:
            found: dict[str, list[str]] = {}
            for piped_id, sentence in await view.all(SINCE, project_id=project_id, since=since):
                found.setdefault(piped_id, []).append(sentence)
            return found

        return await self._database.read(work)
