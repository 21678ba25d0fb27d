# SPDX-License-Identifier: Apache-2.0
"""Reports of a piped about an application: each report replaces the previous one."""

from dataclasses import replace
from typing import Final

from sqlalchemy import bindparam, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.blobs.blob_store import BlobStore
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.database import Database, Row, Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.records import ReportedMessage
from pipecd_controlplane.store.sealed_values import (
    NO_OBJECT,
    SealedValues,
    StoredValue,
    read_value,
)
from pipecd_controlplane.store.versioned_records import VersionedRecords
from pipecd_wire.model import analysis_result_pb2
from pipecd_wire.model.application_live_state_pb2 import ApplicationLiveStateSnapshot

LIVE_STATE: Final = schema.live_state

UNSEAL: Final = (
    update(LIVE_STATE)
    .where(
        LIVE_STATE.c.application_id == bindparam("this_application"),
        LIVE_STATE.c.project_id == bindparam("this_project"),
        LIVE_STATE.c.object_key == bindparam("this_object"),
        LIVE_STATE.c.data == bindparam("this_data"),
    )
    .values({name: bindparam(name) for name in ("data", "updated_at", *NO_OBJECT)})
)


class LiveStateRecords(VersionedRecords[ApplicationLiveStateSnapshot]):
    """The live state of each application: what really runs. A large one may be an object."""

    table = schema.live_state
    key = "application_id"
    message = ApplicationLiveStateSnapshot
    kind = ChangeKind.LIVE_STATE

    def __init__(self, database: Database, now: Now, blobs: BlobStore | None = None) -> None:
        super().__init__(database, now)
        self._sealed = SealedValues(blobs)

    async def find(
        self, project_id: str, subject: str
    ) -> ReportedMessage[ApplicationLiveStateSnapshot] | None:
        """Returns the live state of an application, wherever it is; None when there is none.

        Raises LostValueError when its object is missing or damaged.
        """

        found = await self._open_value(project_id, subject)
        return None if found is None else self._record(found.data, found.updated_at)

    async def unseal(self, project_id: str, subject: str) -> None:
        """Brings a live state that is an object back into its row, to be changed there.

        Raises LostValueError as `find` does.
        """
        sealed = await self._find_value(project_id, subject)
        if sealed is None or sealed.ref is None:
            return
        found = await self._open_value(project_id, subject)
        if found is None:
            return
        ref, data, now = sealed.ref, found.data, self._now()

        async def work(transaction: Transaction) -> None:
            # Whoever has replaced it meanwhile has written it into its row.
            await transaction.run(
                UNSEAL,
                this_application=subject,
                this_project=project_id,
                this_object=ref.key,
                this_data=bytes.fromhex(ref.sha256),
                data=data,
                updated_at=now,
                **NO_OBJECT,
            )

        await self._database.write(work)

    async def _open_value(self, project_id: str, subject: str) -> StoredValue | None:
        async def read() -> StoredValue | None:
            return await self._find_value(project_id, subject)

        return await self._sealed.open(f"the live state of {subject!r}", read)

    async def _find_value(self, project_id: str, subject: str) -> StoredValue | None:
        row = await self._database.one(self._get, project_id=project_id, subject=subject)
        return None if row is None else _read_row(row)

    def _read(self, row: Row) -> ReportedMessage[ApplicationLiveStateSnapshot]:
        stored = _read_row(row)
        return ReportedMessage(
            message=self.message.FromString(stored.data),
            updated_at=stored.updated_at,
            is_sealed=stored.ref is not None,
        )


def _read_row(row: Row) -> StoredValue:
    data, updated_at, _version, *reference = row
    return replace(read_value(data, *reference), updated_at=updated_at)


class AnalysisResults(VersionedRecords[analysis_result_pb2.AnalysisResult]):
    """The baseline of each application's next analysis, for v0 pipeds."""

    table = schema.analysis_result
    key = "application_id"
    message = analysis_result_pb2.AnalysisResult
