# SPDX-License-Identifier: Apache-2.0
"""Pipeds: the agents of a project."""

from typing import Final

from sqlalchemy import bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.database import Value, View
from pipecd_controlplane.store.entities import Entities
from pipecd_wire.model import piped_pb2

OF_PROJECT: Final = (
    select(schema.piped.c.data)
    .where(schema.piped.c.project_id == bindparam("project_id"))
    .order_by(schema.piped.c.created_at, schema.piped.c.id)
)


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
