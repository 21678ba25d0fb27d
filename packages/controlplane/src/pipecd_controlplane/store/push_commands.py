# SPDX-License-Identifier: Apache-2.0
"""Commands that upstream does not have. Only agents that watch receive them."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, select, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.auditing import note_change
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import Database, Transaction, View
from pipecd_model.errors import ConflictError, NotFoundError
from pipecd_wire.pipecd.push import push_pb2

T: Final = schema.own_command

UNHANDLED_OF_PIPED: Final = (
    select(T.c.data)
    .where(
        T.c.project_id == bindparam("project_id"),
        T.c.piped_id == bindparam("piped_id"),
        T.c.handled == 0,
    )
    .order_by(T.c.id)
)
UNHANDLED: Final = select(T.c.data).where(
    T.c.id == bindparam("id"),
    T.c.project_id == bindparam("project_id"),
    T.c.piped_id == bindparam("piped_id"),
    T.c.handled == 0,
)
STATE: Final = select(T.c.handled, T.c.data).where(
    T.c.id == bindparam("id"),
    T.c.project_id == bindparam("project_id"),
    T.c.piped_id == bindparam("piped_id"),
)
OUTCOME: Final = select(T.c.data, T.c.handled, T.c.succeeded, T.c.reason).where(
    T.c.id == bindparam("id"), T.c.project_id == bindparam("project_id")
)
HANDLE: Final = (
    update(T)
    .where(T.c.id == bindparam("this_id"), T.c.handled == 0)
    .values(handled=1, succeeded=bindparam("succeeded"), reason=bindparam("reason"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushCommandState:
    """A command and what became of it."""

    command: push_pb2.Command
    handled: bool
    succeeded: bool
    reason: str


class PushCommands:
    """The commands of `pipecd.push.v1` with their outcomes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, project_id: str, piped_id: str, command: push_pb2.Command) -> None:
        """Adds a command. Raises ConflictError when the id is taken."""

        async def work(transaction: Transaction) -> None:
            await self.add_in(transaction, project_id, piped_id, command)

        await self._database.write(work)

    async def add_in(
        self, transaction: Transaction, project_id: str, piped_id: str, command: push_pb2.Command
    ) -> None:
        added = await transaction.insert_if_absent(
            T,
            id=command.id,
            project_id=project_id,
            piped_id=piped_id,
            handled=0,
            succeeded=0,
            reason="",
            data=command.SerializeToString(),
        )
        if not added:
            raise ConflictError(f"the command {command.id!r} exists already")
        note_change(transaction, "command", command.id, None, command)
        transaction.publish(_change(project_id, piped_id, command.id))

    async def find(self, project_id: str, command_id: str) -> PushCommandState | None:
        """Returns a command of the project with its outcome; None when there is none."""
        row = await self._database.one(OUTCOME, id=command_id, project_id=project_id)
        if row is None:
            return None
        return PushCommandState(
            command=push_pb2.Command.FromString(row[0]),
            handled=bool(row[1]),
            succeeded=bool(row[2]),
            reason=row[3],
        )

    async def find_unhandled(
        self, project_id: str, piped_id: str, command_id: str
    ) -> push_pb2.Command | None:
        row = await self._database.one(
            UNHANDLED, id=command_id, project_id=project_id, piped_id=piped_id
        )
        return push_pb2.Command.FromString(row[0]) if row else None

    async def list_unhandled_in(
        self, view: View, project_id: str, piped_id: str
    ) -> list[push_pb2.Command]:
        rows = await view.all(UNHANDLED_OF_PIPED, project_id=project_id, piped_id=piped_id)
        return [push_pb2.Command.FromString(row[0]) for row in rows]

    async def record_outcome_in(
        self,
        transaction: Transaction,
        project_id: str,
        piped_id: str,
        command_id: str,
        *,
        succeeded: bool,
        reason: str,
    ) -> push_pb2.Command | None:
        """Stores the outcome of a command of this piped; later ones are ignored.

        Returns the command if this is its first outcome. Raises NotFoundError.
        """
        row = await transaction.one(STATE, id=command_id, project_id=project_id, piped_id=piped_id)
        if row is None:
            raise NotFoundError(f"there is no command {command_id!r}")
        if row[0]:
            return None
        if not await transaction.run(
            HANDLE, this_id=command_id, succeeded=int(succeeded), reason=reason
        ):
            return None  # another outcome came first
        transaction.publish(_change(project_id, piped_id, command_id))
        return push_pb2.Command.FromString(row[1])


def _change(project_id: str, piped_id: str, command_id: str) -> Change:
    return Change(
        kind=ChangeKind.PUSH_COMMAND, id=command_id, project_id=project_id, piped_id=piped_id
    )
