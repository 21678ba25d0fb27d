# SPDX-License-Identifier: Apache-2.0
"""Hooks of git hosts, with their secrets encrypted. A delivery reads one by its id."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import bindparam, delete, func, select, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.auditing import HOOK, note_change
from pipecd_controlplane.store.database import Database, Row, StaleReadError, Transaction, View
from pipecd_model.errors import ConflictError, NotFoundError, StateError
from pipecd_wire.pipecd.api import repositories_pb2 as pb

T: Final = schema.hook

_COLUMNS: Final = (
    T.c.data,
    T.c.secret,
    T.c.older_secret,
    T.c.secret_id,
    T.c.last_accepted_at,
    T.c.last_refused_at,
    T.c.older_secret_used_at,
    T.c.version,
)
BY_ID: Final = select(*_COLUMNS).where(T.c.id == bindparam("id"))
OF_PROJECT: Final = (
    select(*_COLUMNS).where(T.c.project_id == bindparam("project_id")).order_by(T.c.name)
)
ALL: Final = select(*_COLUMNS).order_by(T.c.id)
COUNT: Final = select(func.count()).where(T.c.project_id == bindparam("project_id"))
DELETE: Final = delete(T).where(
    T.c.id == bindparam("this_id"), T.c.project_id == bindparam("this_project")
)
REPLACE: Final = (
    update(T)
    .where(T.c.id == bindparam("this_id"), T.c.version == bindparam("this_version"))
    .values(
        version=bindparam("version"),
        data=bindparam("data"),
        secret=bindparam("secret"),
        older_secret=bindparam("older_secret"),
        secret_id=bindparam("secret_id"),
    )
)

Use = Literal["last_accepted_at", "last_refused_at", "older_secret_used_at"]
_NOTES: Final = {
    use: update(T)
    .where(T.c.id == bindparam("this_id"), T.c[use] < bindparam("at"))
    .values({use: bindparam("at")})
    for use in ("last_accepted_at", "last_refused_at", "older_secret_used_at")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHook:
    """A hook with its secrets, which are encrypted."""

    hook: pb.Hook
    secret: str
    older_secret: str = ""
    """The one before; empty when there is none that counts."""
    secret_id: str = ""
    """Which request made the secret: a repeat of it is told the same one."""


class Hooks:
    """The hooks of all projects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, hook_id: str) -> StoredHook | None:
        """Returns a hook. For deliveries: the caller compares the project."""
        row = await self._database.one(BY_ID, id=hook_id)
        return _read(row) if row else None

    async def get(self, project_id: str, hook_id: str) -> StoredHook:
        """Returns a hook. Raises NotFoundError, also for one of another project."""
        found = await self.find(hook_id)
        if found is None or found.hook.project_id != project_id:
            raise _missing_error(hook_id)
        return found

    async def list_by_project(self, project_id: str) -> list[StoredHook]:
        async def work(view: View) -> list[StoredHook]:
            return [_read(row) for row in await view.all(OF_PROJECT, project_id=project_id)]

        return await self._database.read(work)

    async def list_all(self) -> list[StoredHook]:
        async def work(view: View) -> list[StoredHook]:
            return [_read(row) for row in await view.all(ALL)]

        return await self._database.read(work)

    async def add(self, stored: StoredHook, *, most: int) -> None:
        """Adds a hook.

        Raises ConflictError when its id or name is taken, StateError when there are `most`.
        """
        hook = stored.hook

        async def work(transaction: Transaction) -> None:
            row = await transaction.one(COUNT, project_id=hook.project_id)
            if row is not None and row[0] >= most:
                raise StateError(
                    f"the project has {row[0]} hooks, which is the most",
                    hint="one hook can serve all repositories of a host; delete what is not used",
                )
            added = await transaction.insert_if_absent(
                T,
                id=hook.id,
                project_id=hook.project_id,
                name=hook.name,
                secret=stored.secret,
                older_secret=stored.older_secret,
                secret_id=stored.secret_id,
                last_accepted_at=0,
                last_refused_at=0,
                older_secret_used_at=0,
                version=1,
                data=hook.SerializeToString(),
            )
            if not added:
                raise ConflictError(
                    f"the project has a hook {hook.name!r} already", hint="choose another name"
                )
            note_change(transaction, HOOK, hook.id, None, hook)

        await self._database.write(work)

    async def update(
        self, project_id: str, hook_id: str, change: Callable[[StoredHook], StoredHook]
    ) -> StoredHook:
        """Changes a hook and returns it. Raises NotFoundError."""

        async def work(transaction: Transaction) -> StoredHook:
            row = await transaction.one(BY_ID, id=hook_id)
            before = _read(row) if row else None
            if row is None or before is None or before.hook.project_id != project_id:
                raise _missing_error(hook_id)
            after = change(before)
            note_change(transaction, HOOK, hook_id, _read(row).hook, after.hook)
            written = await transaction.run(
                REPLACE,
                this_id=hook_id,
                this_version=row[-1],
                version=row[-1] + 1,
                data=after.hook.SerializeToString(),
                secret=after.secret,
                older_secret=after.older_secret,
                secret_id=after.secret_id,
            )
            if not written:
                raise StaleReadError
            return after

        return await self._database.write(work)

    async def note(self, hook_id: str, use: Use, at: int) -> None:
        """Stores when something happened last. A time never moves backwards."""

        async def work(transaction: Transaction) -> None:
            await transaction.run(_NOTES[use], this_id=hook_id, at=at)

        await self._database.write(work)

    async def delete(self, project_id: str, hook_id: str) -> None:
        """Deletes a hook. Raises NotFoundError."""

        async def work(transaction: Transaction) -> None:
            if row := await transaction.one(BY_ID, id=hook_id):
                note_change(transaction, HOOK, hook_id, _read(row).hook, None)
            if not await transaction.run(DELETE, this_id=hook_id, this_project=project_id):
                raise _missing_error(hook_id)

        await self._database.write(work)


def _read(row: Row) -> StoredHook:
    data, secret, older_secret, secret_id, accepted, refused, older_used, _version = row
    hook = pb.Hook.FromString(data)
    hook.last_accepted_at = accepted
    hook.last_refused_at = refused
    hook.older_secret_used_at = older_used
    return StoredHook(hook=hook, secret=secret, older_secret=older_secret, secret_id=secret_id)


def _missing_error(hook_id: str) -> NotFoundError:
    return NotFoundError(f"there is no hook {hook_id!r}")
