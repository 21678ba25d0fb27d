# SPDX-License-Identifier: Apache-2.0
"""Reports of a piped about itself: each report replaces the previous one."""

from typing import ClassVar

from sqlalchemy import Delete, Select, bindparam, delete, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.database import Transaction, View
from pipecd_controlplane.store.records import M, Records, ReportedMessage
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice


class PipedRecords(Records[M]):
    """One message per piped. Subclasses give its type."""

    _of_project: ClassVar["Select[tuple[str, bytes, int]]"]

    _removal: ClassVar["Delete"]

    def __init_subclass__(cls) -> None:
        c = cls.table.c
        cls._removal = delete(cls.table).where(
            c.piped_id == bindparam("this_piped"), c.project_id == bindparam("this_project")
        )
        cls._of_project = select(c.piped_id, c.data, c.updated_at).where(
            c.project_id == bindparam("project_id")
        )

    async def put(self, project_id: str, piped_id: str, message: M) -> None:
        data, now = message.SerializeToString(), self._now()

        async def work(transaction: Transaction) -> None:
            await transaction.upsert(
                self.table,
                ("updated_at", "data"),
                piped_id=piped_id,
                project_id=project_id,
                updated_at=now,
                data=data,
            )
            self._publish(transaction, project_id, piped_id)

        await self._database.write(work)

    async def remove(self, project_id: str, piped_id: str) -> None:
        """Removes the report of a piped, if there is one."""

        async def work(transaction: Transaction) -> None:
            await self.remove_in(transaction, project_id, piped_id)

        await self._database.write(work)

    async def remove_in(self, transaction: Transaction, project_id: str, piped_id: str) -> None:
        await transaction.run(self._removal, this_project=project_id, this_piped=piped_id)
        self._publish(transaction, project_id, piped_id)

    async def list_by_project(self, project_id: str) -> dict[str, ReportedMessage[M]]:
        """Returns the last report of each piped of the project, by the piped's id."""

        async def work(view: View) -> dict[str, ReportedMessage[M]]:
            rows = await view.all(self._of_project, project_id=project_id)
            return {row[0]: self._record(row[1], row[2]) for row in rows}

        return await self._database.read(work)


class PluginStateRecords(PipedRecords[push_pb2.ReportPluginsRequest]):
    """The state of the plugins of each piped."""

    table = schema.plugin_state
    message = push_pb2.ReportPluginsRequest
    kind = ChangeKind.PLUGINS


class QueueRecords(PipedRecords[push_pb2.ReportQueueRequest]):
    """What the deployments wait for that each piped has queued."""

    table = schema.piped_queue
    message = push_pb2.ReportQueueRequest
    kind = ChangeKind.QUEUE


class PipedStats(PipedRecords[pipedservice.ReportStatRequest]):
    """The metrics of each piped; also the heartbeat of a piped that does not watch."""

    table = schema.piped_stat
    message = pipedservice.ReportStatRequest


class UnregisteredApplications(
    PipedRecords[pipedservice.ReportUnregisteredApplicationConfigurationsRequest]
):
    """Applications that a piped found in git and that are not registered yet."""

    table = schema.unregistered_application
    message = pipedservice.ReportUnregisteredApplicationConfigurationsRequest
