# SPDX-License-Identifier: Apache-2.0
"""Projects: who shares a control plane."""

from typing import Final

from sqlalchemy import bindparam, insert, select

from controlplane.store.database import Database, Transaction, View
from controlplane.store.sql import tables
from pipecd_wire.model import project_pb2

GET: Final = select(tables.project.c.data).where(tables.project.c.id == bindparam("id"))
IDS: Final = select(tables.project.c.id).order_by(tables.project.c.id)
INSERT: Final = insert(tables.project)


class Projects:
    """The projects of this control plane."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, project_id: str) -> project_pb2.Project | None:
        row = await self._database.one(GET, id=project_id)
        return project_pb2.Project.FromString(row[0]) if row else None

    async def ids(self) -> list[str]:
        async def work(view: View) -> list[str]:
            return [row[0] for row in await view.all(IDS)]

        return await self._database.read(work)

    async def add_in(self, transaction: Transaction, project: project_pb2.Project) -> None:
        await transaction.run(INSERT, id=project.id, data=project.SerializeToString())
