# SPDX-License-Identifier: Apache-2.0
"""Commands: what people ask of a piped."""

from typing import Final

from sqlalchemy import bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.database import Transaction, Value, View
from pipecd_controlplane.store.entities import Entities
from pipecd_wire.model import command_pb2

T: Final = schema.command

UNHANDLED_OF_PIPED: Final = (
    select(T.c.data)
    .where(
        T.c.project_id == bindparam("project_id"),
        T.c.piped_id == bindparam("piped_id"),
        T.c.status == command_pb2.COMMAND_NOT_HANDLED_YET,
    )
    .order_by(T.c.created_at, T.c.id)
    .limit(bindparam("most"))
)

MOST_AT_ONCE: Final = 1000
"""Commands of one list, the oldest first: the others come when these are handled."""
ALL: Final = 2**31

OUTPUT: Final = select(schema.command_output.c.data).where(
    schema.command_output.c.command_id == bindparam("command_id"),
    schema.command_output.c.project_id == bindparam("project_id"),
)


class Commands(Entities[command_pb2.Command]):
    """The commands and their outputs."""

    noun = "command"
    kind = ChangeKind.COMMAND
    table = T
    message = command_pb2.Command

    def columns(self, entity: command_pb2.Command) -> dict[str, Value]:
        return {
            "piped_id": entity.piped_id,
            "status": entity.status,
            "created_at": entity.created_at,
        }

    async def list_unhandled(self, project_id: str, piped_id: str) -> list[command_pb2.Command]:
        async def work(view: View) -> list[command_pb2.Command]:
            return await self.list_unhandled_in(view, project_id, piped_id, most=MOST_AT_ONCE)

        return await self._database.read(work)

    async def list_unhandled_in(
        self, view: View, project_id: str, piped_id: str, *, most: int = ALL
    ) -> list[command_pb2.Command]:
        rows = await view.all(
            UNHANDLED_OF_PIPED, project_id=project_id, piped_id=piped_id, most=most
        )
        return [self._parse(row[0]) for row in rows]

    async def output(self, project_id: str, command_id: str) -> bytes | None:
        """Returns the output that the piped reported with the outcome; None without one."""
        row = await self._database.one(OUTPUT, command_id=command_id, project_id=project_id)
        return bytes(row[0]) if row else None

    async def record_outcome(
        self, project_id: str, piped_id: str, outcome: command_pb2.Command, output: bytes
    ) -> None:
        """Stores the outcome of a command of this piped; later ones are ignored.

        Raises NotFoundError for a command of another piped.
        """

        async def work(transaction: Transaction) -> None:
            first = False

            def change(command: command_pb2.Command) -> None:
                nonlocal first
                if command.piped_id != piped_id:
                    raise self.missing_error(command.id)
                first = command.status == command_pb2.COMMAND_NOT_HANDLED_YET
                if first:
                    command.status = outcome.status
                    command.handled_at = outcome.handled_at
                    command.metadata.update(outcome.metadata)

            await self.update_in(transaction, project_id, outcome.id, change)
            if first and output:
                await transaction.insert_if_absent(
                    schema.command_output,
                    command_id=outcome.id,
                    project_id=project_id,
                    data=output,
                )

        await self._database.write(work)
