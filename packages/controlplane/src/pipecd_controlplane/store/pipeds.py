# SPDX-License-Identifier: Apache-2.0
"""Pipeds: the agents of a project."""

from typing import Final

from sqlalchemy import bindparam, delete, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.auditing import note_change
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.database import Transaction, Value, View
from pipecd_controlplane.store.entities import Entities
from pipecd_wire.model import piped_pb2

OF_PROJECT: Final = (
    select(schema.piped.c.data)
    .where(schema.piped.c.project_id == bindparam("project_id"))
    .order_by(schema.piped.c.created_at, schema.piped.c.id)
)

REMOVALS: Final = tuple(
    delete(table).where(
        key == bindparam("this_piped"), table.c.project_id == bindparam("this_project")
    )
    for table, key in (
        (schema.piped, schema.piped.c.id),
        (schema.plugin_state, schema.plugin_state.c.piped_id),
        (schema.piped_stat, schema.piped_stat.c.piped_id),
        (schema.unregistered_application, schema.unregistered_application.c.piped_id),
        (schema.lease, schema.lease.c.piped_id),
        (schema.piped_alarm, schema.piped_alarm.c.piped_id),
    )
)
"""What is stored of a piped itself. Its deployments and commands are history, and stay."""


class Pipeds(Entities[piped_pb2.Piped]):
    """The pipeds, with the hashes of their keys."""

    noun = "piped"
    kind = ChangeKind.PIPED
    table = schema.piped
    message = piped_pb2.Piped

    def columns(self, entity: piped_pb2.Piped) -> dict[str, Value]:
        return {"created_at": entity.created_at}

    def piped_of(self, entity: piped_pb2.Piped) -> str:
        return entity.id

    async def list_by_project(self, project_id: str) -> list[piped_pb2.Piped]:
        async def work(view: View) -> list[piped_pb2.Piped]:
            rows = await view.all(OF_PROJECT, project_id=project_id)
            return [self._parse(row[0]) for row in rows]

        return await self._database.read(work)

    async def remove_in(self, transaction: Transaction, piped: piped_pb2.Piped) -> None:
        """Removes a piped and all that it has reported of itself."""
        for statement in REMOVALS:
            await transaction.run(statement, this_piped=piped.id, this_project=piped.project_id)
        note_change(transaction, self.noun, piped.id, piped, None)
        transaction.publish(self._change(piped, piped.id))
