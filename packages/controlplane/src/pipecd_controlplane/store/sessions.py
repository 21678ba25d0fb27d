# SPDX-License-Identifier: Apache-2.0
"""Sessions: people who have signed in. The authenticator reads one at each of their calls."""

from collections.abc import Callable
from typing import Final

from sqlalchemy import bindparam, delete, insert, select, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.auditing import SESSION, is_audited, note_change
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import Database, StaleReadError, Transaction, View
from pipecd_wire.pipecd.api import access_pb2

T: Final = schema.session

INSERT: Final = insert(T)
BY_ID: Final = select(T.c.data, T.c.secret_hash, T.c.version).where(T.c.id == bindparam("id"))
OPEN_OF_PROJECT: Final = (
    select(T.c.data)
    .where(T.c.project_id == bindparam("project_id"), T.c.expires_at > bindparam("now"))
    .order_by(T.c.created_at.desc(), T.c.id)
)
END: Final = delete(T).where(T.c.id == bindparam("id"), T.c.project_id == bindparam("project_id"))
OPENED_VIA: Final = select(T.c.id).where(
    T.c.project_id == bindparam("project_id"), T.c.via == bindparam("via")
)
REPLACE: Final = (
    update(T)
    .where(
        T.c.id == bindparam("this_id"),
        T.c.project_id == bindparam("this_project"),
        T.c.version == bindparam("this_version"),
    )
    .values(version=bindparam("version"), data=bindparam("data"))
)
END_EXPIRED: Final = delete(T).where(T.c.expires_at <= bindparam("now"))


class Sessions:
    """The sessions that were not ended; expired ones stay until `end_expired`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, session: access_pb2.Session, secret_hash: str) -> None:
        async def work(transaction: Transaction) -> None:
            await transaction.run(
                INSERT,
                id=session.id,
                project_id=session.project_id,
                secret_hash=secret_hash,
                subject=session.subject,
                via=session.via,
                created_at=session.created_at,
                expires_at=session.expires_at,
                version=1,
                data=session.SerializeToString(),
            )
            note_change(transaction, SESSION, session.id, None, session)
            transaction.publish(_change(session.project_id, session.id))

        await self._database.write(work)

    async def find_by_id(self, session_id: str) -> tuple[access_pb2.Session, str] | None:
        """Returns a session and the hash of its secret.

        For the authenticator only, which knows no project yet.
        """
        row = await self._database.one(BY_ID, id=session_id)
        return (access_pb2.Session.FromString(row[0]), row[1]) if row else None

    async def open_of_project(self, project_id: str, *, now: int) -> list[access_pb2.Session]:
        async def work(view: View) -> list[access_pb2.Session]:
            rows = await view.all(OPEN_OF_PROJECT, project_id=project_id, now=now)
            return [access_pb2.Session.FromString(row[0]) for row in rows]

        return await self._database.read(work)

    async def end(self, project_id: str, session_id: str) -> None:
        """Ends a session. Idempotent: does nothing when it does not exist."""

        async def work(transaction: Transaction) -> None:
            if is_audited(transaction) and (row := await transaction.one(BY_ID, id=session_id)):
                session = access_pb2.Session.FromString(row[0])
                note_change(transaction, SESSION, session_id, session, None)
            if await transaction.run(END, id=session_id, project_id=project_id):
                transaction.publish(_change(project_id, session_id))

        await self._database.write(work)

    async def end_via_in(
        self,
        transaction: Transaction,
        project_id: str,
        via: access_pb2.Session.Via.ValueType,
        *,
        keep: str = "",
    ) -> None:
        """Ends all sessions of the project that were opened via `via`, except the one to keep."""
        for (session_id,) in await transaction.all(OPENED_VIA, project_id=project_id, via=via):
            if session_id != keep:
                await transaction.run(END, id=session_id, project_id=project_id)
                transaction.publish(_change(project_id, session_id))

    async def update_in(
        self,
        transaction: Transaction,
        project_id: str,
        session_id: str,
        change: Callable[[access_pb2.Session], None],
    ) -> None:
        """Changes a session; does nothing when it does not exist any more."""
        row = await transaction.one(BY_ID, id=session_id)
        if row is None:
            return
        session, version = access_pb2.Session.FromString(row[0]), row[2]
        if session.project_id != project_id:
            return
        change(session)
        written = await transaction.run(
            REPLACE,
            this_id=session_id,
            this_project=project_id,
            this_version=version,
            version=version + 1,
            data=session.SerializeToString(),
        )
        if not written:
            raise StaleReadError
        transaction.publish(_change(project_id, session_id))

    async def end_expired(self, *, now: int) -> int:
        """Deletes the sessions that have expired. Returns how many."""

        async def work(transaction: Transaction) -> int:
            return await transaction.run(END_EXPIRED, now=now)

        return await self._database.write(work)


def _change(project_id: str, session_id: str) -> Change:
    return Change(kind=ChangeKind.SESSION, id=session_id, project_id=project_id)
