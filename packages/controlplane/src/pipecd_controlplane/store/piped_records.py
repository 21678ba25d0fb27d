# SPDX-License-Identifier: Apache-2.0
"""What a piped says of itself as a whole: each report replaces the one before."""

from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeVar

from google.protobuf.message import Message
from sqlalchemy import Table, bindparam, insert, select, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import Change, Kind
from pipecd_controlplane.store.database import Database, Transaction, View
from pipecd_controlplane.store.entities import Now
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Generic[M]):
    """What a piped said, and when."""

    message: M
    updated_at: int


class PipedRecords(Generic[M]):
    """One message per piped. Subclasses say of which type."""

    table: ClassVar[Table]
    message: type[M]
    kind: ClassVar[Kind | None] = None
    """What is told when it changes; None for what nobody waits for."""

    def __init__(self, database: Database, now: Now) -> None:
        self._database = database
        self._now = now
        columns = self.table.c
        self._of_project: Final = select(columns.piped_id, columns.data, columns.updated_at).where(
            columns.project_id == bindparam("project_id")
        )
        self._replace: Final = (
            update(self.table)
            .where(
                columns.piped_id == bindparam("this_piped"),
                columns.project_id == bindparam("this_project"),
            )
            .values(updated_at=bindparam("updated_at"), data=bindparam("data"))
        )
        self._insert: Final = insert(self.table)

    async def put(self, project_id: str, piped_id: str, message: M) -> None:
        data, now = message.SerializeToString(), self._now()

        async def work(transaction: Transaction) -> None:
            replaced = await transaction.run(
                self._replace,
                this_piped=piped_id,
                this_project=project_id,
                updated_at=now,
                data=data,
            )
            if not replaced:
                await transaction.run(
                    self._insert,
                    piped_id=piped_id,
                    project_id=project_id,
                    updated_at=now,
                    data=data,
                )
            if self.kind is not None:
                transaction.changed(Change(kind=self.kind, id=piped_id, project_id=project_id))

        await self._database.write(work)

    async def of_project(self, project_id: str) -> dict[str, Record[M]]:
        """What each piped of the project said last, by its id."""

        async def work(view: View) -> dict[str, Record[M]]:
            return {
                piped_id: Record(message=self.message.FromString(data), updated_at=updated_at)
                for piped_id, data, updated_at in await view.all(
                    self._of_project, project_id=project_id
                )
            }

        return await self._database.read(work)


class PluginStates(PipedRecords[push_pb2.ReportPluginsRequest]):
    """How the plugins of each piped are."""

    table = schema.plugin_state
    message = push_pb2.ReportPluginsRequest
    kind = Kind.PLUGINS


class PipedStats(PipedRecords[pipedservice.ReportStatRequest]):
    """The metrics of each piped; the sign of life of one that does not watch."""

    table = schema.piped_stat
    message = pipedservice.ReportStatRequest


class UnregisteredApplications(
    PipedRecords[pipedservice.ReportUnregisteredApplicationConfigurationsRequest]
):
    """Applications that a piped found in git and nobody has registered yet."""

    table = schema.unregistered_application
    message = pipedservice.ReportUnregisteredApplicationConfigurationsRequest
