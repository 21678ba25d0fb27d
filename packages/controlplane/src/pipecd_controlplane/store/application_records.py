# SPDX-License-Identifier: Apache-2.0
"""Reports of a piped about an application: each report replaces the previous one."""

from collections.abc import Callable
from typing import ClassVar

from sqlalchemy import Select, Update, bindparam, select, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.database import StaleReadError, Transaction
from pipecd_controlplane.store.records import M, Records, ReportedMessage
from pipecd_wire.model import analysis_result_pb2, application_live_state_pb2


class ApplicationRecords(Records[M]):
    """One message per application. Subclasses give its type."""

    _get: ClassVar["Select[tuple[bytes, int, int]]"]
    _replace: ClassVar[Update]

    def __init_subclass__(cls) -> None:
        c = cls.table.c
        cls._get = select(c.data, c.updated_at, c.version).where(
            c.application_id == bindparam("application_id"),
            c.project_id == bindparam("project_id"),
        )
        cls._replace = (
            update(cls.table)
            .where(
                c.application_id == bindparam("this_application"),
                c.project_id == bindparam("this_project"),
                c.version == bindparam("this_version"),
            )
            .values(
                updated_at=bindparam("updated_at"),
                version=bindparam("version"),
                data=bindparam("data"),
            )
        )

    async def find(self, project_id: str, application_id: str) -> ReportedMessage[M] | None:
        row = await self._database.one(
            self._get, project_id=project_id, application_id=application_id
        )
        return self._record(row[0], row[1]) if row else None

    async def change_in(
        self,
        transaction: Transaction,
        project_id: str,
        application_id: str,
        edit: Callable[[ReportedMessage[M] | None], M | None],
    ) -> None:
        """Writes what `edit` returns for the stored message; None leaves it as it is."""
        row = await transaction.one(self._get, project_id=project_id, application_id=application_id)
        message = edit(self._record(row[0], row[1]) if row else None)
        if message is None:
            return
        data, now = message.SerializeToString(), self._now()
        if row is None:
            written = await transaction.insert_if_absent(
                self.table,
                application_id=application_id,
                project_id=project_id,
                updated_at=now,
                version=1,
                data=data,
            )
        else:
            written = (
                await transaction.run(
                    self._replace,
                    this_application=application_id,
                    this_project=project_id,
                    this_version=row[2],
                    updated_at=now,
                    version=row[2] + (data != row[0]),  # the same again is no other version
                    data=data,
                )
                > 0
            )
        if not written:
            raise StaleReadError
        self._publish(transaction, project_id, application_id)


class LiveStateRecords(ApplicationRecords[application_live_state_pb2.ApplicationLiveStateSnapshot]):
    """The live state of each application: what really runs."""

    table = schema.live_state
    message = application_live_state_pb2.ApplicationLiveStateSnapshot
    kind = ChangeKind.LIVE_STATE


class AnalysisResults(ApplicationRecords[analysis_result_pb2.AnalysisResult]):
    """The baseline of each application's next analysis, for v0 pipeds."""

    table = schema.analysis_result
    message = analysis_result_pb2.AnalysisResult
