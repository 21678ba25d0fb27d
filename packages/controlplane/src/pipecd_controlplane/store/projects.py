# SPDX-License-Identifier: Apache-2.0
"""Projects: who shares a control plane."""

from collections.abc import Callable
from typing import Final

from sqlalchemy import bindparam, select, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.auditing import PROJECT, note_change
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import Database, StaleReadError, Transaction, View
from pipecd_controlplane.store.entities import Now
from pipecd_model.errors import ConflictError, NotFoundError
from pipecd_wire.model import project_pb2

GET: Final = select(schema.project.c.data, schema.project.c.version).where(
    schema.project.c.id == bindparam("id")
)
IDS: Final = select(schema.project.c.id).order_by(schema.project.c.id)
ALL: Final = select(schema.project.c.data).order_by(schema.project.c.id)
UPDATE: Final = (
    update(schema.project)
    .where(
        schema.project.c.id == bindparam("this_id"),
        schema.project.c.version == bindparam("this_version"),
    )
    .values(version=bindparam("version"), data=bindparam("data"))
)


class Projects:
    """The projects of this control plane."""

    def __init__(self, database: Database, now: Now) -> None:
        self._database = database
        self._now = now

    async def find(self, project_id: str) -> project_pb2.Project | None:
        row = await self._database.one(GET, id=project_id)
        return project_pb2.Project.FromString(row[0]) if row else None

    async def ids(self) -> list[str]:
        return await self._database.read(self.ids_in)

    async def ids_in(self, view: View) -> list[str]:
        return [row[0] for row in await view.all(IDS)]

    async def all(self) -> list[project_pb2.Project]:
        async def work(view: View) -> list[project_pb2.Project]:
            return [project_pb2.Project.FromString(row[0]) for row in await view.all(ALL)]

        return await self._database.read(work)

    async def get(self, project_id: str) -> project_pb2.Project:
        project = await self.find(project_id)
        if project is None:
            raise _missing_error(project_id)
        return project

    async def get_in(self, view: View, project_id: str) -> project_pb2.Project:
        row = await view.one(GET, id=project_id)
        if row is None:
            raise _missing_error(project_id)
        return project_pb2.Project.FromString(row[0])

    async def add_if_absent_in(
        self, transaction: Transaction, project: project_pb2.Project
    ) -> bool:
        """Adds a project. Returns False when the id is taken."""
        added = await transaction.insert_if_absent(
            schema.project, id=project.id, version=1, data=project.SerializeToString()
        )
        if added:
            note_change(transaction, PROJECT, project.id, None, project)
        return added

    async def add_in(self, transaction: Transaction, project: project_pb2.Project) -> None:
        """Adds a project. Raises ConflictError when the id is taken."""
        if not await self.add_if_absent_in(transaction, project):
            raise ConflictError(f"the project {project.id!r} exists already")

    async def update(self, project_id: str, change: Callable[[project_pb2.Project], None]) -> None:
        """Changes the project; `change` may raise to refuse. Raises NotFoundError."""

        async def work(transaction: Transaction) -> None:
            await self.update_in(transaction, project_id, change)

        await self._database.write(work)

    async def update_in(
        self,
        transaction: Transaction,
        project_id: str,
        change: Callable[[project_pb2.Project], None],
    ) -> None:
        row = await transaction.one(GET, id=project_id)
        if row is None:
            raise _missing_error(project_id)
        before, version = project_pb2.Project.FromString(row[0]), row[1]
        project = project_pb2.Project.FromString(row[0])
        change(project)
        note_change(transaction, PROJECT, project_id, before, project)
        project.updated_at = self._now()
        written = await transaction.run(
            UPDATE,
            this_id=project_id,
            this_version=version,
            version=version + 1,
            data=project.SerializeToString(),
        )
        if not written:
            raise StaleReadError
        transaction.publish(Change(kind=ChangeKind.PROJECT, id=project_id, project_id=project_id))


def _missing_error(project_id: str) -> NotFoundError:
    return NotFoundError(f"there is no project {project_id!r}")
