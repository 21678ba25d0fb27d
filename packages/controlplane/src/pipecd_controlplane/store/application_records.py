# SPDX-License-Identifier: Apache-2.0
"""What a piped says of an application as a whole: each report replaces the one before."""

from collections.abc import Callable
from typing import ClassVar, Final, Generic, TypeVar

from google.protobuf.message import Message
from sqlalchemy import Table, bindparam, insert, select, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import Change, Kind
from pipecd_controlplane.store.database import Database, Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.piped_records import Record
from pipecd_wire.model import analysis_result_pb2, application_live_state_pb2

M = TypeVar("M", bound=Message)


class ApplicationRecords(Generic[M]):
    """One message per application. Subclasses say of which type."""

    table: ClassVar[Table]
    message: type[M]
    kind: ClassVar[Kind | None] = None
    """What is told when it changes; None for what nobody waits for."""

    def __init__(self, database: Database, now: Now) -> None:
        self._database = database
        self._now = now
        c = self.table.c
        self._get: Final = select(c.data, c.updated_at).where(
            c.application_id == bindparam("application_id"),
            c.project_id == bindparam("project_id"),
        )
        self._replace: Final = (
            update(self.table)
            .where(
                c.application_id == bindparam("this_application"),
                c.project_id == bindparam("this_project"),
            )
            .values(updated_at=bindparam("updated_at"), data=bindparam("data"))
        )
        self._insert: Final = insert(self.table)

    async def find(self, project_id: str, application_id: str) -> Record[M] | None:
        row = await self._database.one(
            self._get, project_id=project_id, application_id=application_id
        )
        return Record(message=self.message.FromString(row[0]), updated_at=row[1]) if row else None

    async def change_in(
        self,
        transaction: Transaction,
        project_id: str,
        application_id: str,
        edit: Callable[[Record[M] | None], M | None],
    ) -> None:
        """Write what `edit` makes of what is there; None leaves it as it is."""
        row = await transaction.one(self._get, project_id=project_id, application_id=application_id)
        known = (
            None
            if row is None
            else Record(message=self.message.FromString(row[0]), updated_at=row[1])
        )
        message = edit(known)
        if message is None:
            return
        data, now = message.SerializeToString(), self._now()
        if row is None:
            await transaction.run(
                self._insert,
                application_id=application_id,
                project_id=project_id,
                updated_at=now,
                data=data,
            )
        else:
            await transaction.run(
                self._replace,
                this_application=application_id,
                this_project=project_id,
                updated_at=now,
                data=data,
            )
        if self.kind is not None:
            transaction.changed(Change(kind=self.kind, id=application_id, project_id=project_id))


class LiveStates(ApplicationRecords[application_live_state_pb2.ApplicationLiveStateSnapshot]):
    """What really runs of each application."""

    table = schema.live_state
    message = application_live_state_pb2.ApplicationLiveStateSnapshot
    kind = Kind.LIVE_STATE


class AnalysisResults(ApplicationRecords[analysis_result_pb2.AnalysisResult]):
    """The baseline of each application's next analysis, for v0 pipeds."""

    table = schema.analysis_result
    message = analysis_result_pb2.AnalysisResult
