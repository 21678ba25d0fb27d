# SPDX-License-Identifier: Apache-2.0
"""Leases: which instance of a piped may work. One row per piped, under its id.

A row holds no times: clocks of a past process or of another replica are not comparable. Each
renewal changes the row; a process that sees it unchanged for the lease's time on its own clock
knows that the holder is silent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, select, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import Database, Row, StaleReadError, Transaction

T: Final = schema.lease

GET: Final = select(
    T.c.epoch, T.c.instance_id, T.c.data_folder_id, T.c.renewals, T.c.contested
).where(T.c.piped_id == bindparam("piped_id"), T.c.project_id == bindparam("project_id"))
REPLACE: Final = (
    update(T)
    .where(
        T.c.piped_id == bindparam("this_piped"),
        T.c.project_id == bindparam("this_project"),
        # As it was read: each renewal, each change of hands and each release changes one of these.
        T.c.epoch == bindparam("this_epoch"),
        T.c.renewals == bindparam("this_renewals"),
        T.c.instance_id == bindparam("this_instance"),
    )
    .values(
        epoch=bindparam("epoch"),
        instance_id=bindparam("instance_id"),
        data_folder_id=bindparam("data_folder_id"),
        renewals=bindparam("renewals"),
        contested=bindparam("contested"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """A lease as it is stored. A lease that was never acquired has the epoch 0."""

    epoch: int = 0
    instance_id: str = ""
    """The holder; empty when the lease is free."""
    data_folder_id: str = ""
    renewals: int = 0
    contested: bool = False
    """Whether a previous holder fell silent and may still be at work."""


NONE: Final = LeaseRecord()


class LeaseRecords:
    """The leases of all pipeds."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, project_id: str, piped_id: str) -> LeaseRecord:
        return _record(await self._database.one(GET, project_id=project_id, piped_id=piped_id))

    async def change(
        self, project_id: str, piped_id: str, edit: Callable[[LeaseRecord], LeaseRecord]
    ) -> LeaseRecord:
        """Writes what `edit` returns, and returns it.

        The change is published only when the holder or the epoch is different, not for a renewal.
        """

        async def work(transaction: Transaction) -> LeaseRecord:
            row = await transaction.one(GET, project_id=project_id, piped_id=piped_id)
            before = _record(row)
            after = edit(before)
            if after == before:
                return after
            if row is None:
                written = await transaction.insert_if_absent(
                    T, piped_id=piped_id, project_id=project_id, **_columns(after)
                )
            else:
                written = (
                    await transaction.run(
                        REPLACE,
                        this_piped=piped_id,
                        this_project=project_id,
                        this_epoch=before.epoch,
                        this_renewals=before.renewals,
                        this_instance=before.instance_id,
                        **_columns(after),
                    )
                    > 0
                )
            if not written:
                raise StaleReadError
            if (after.epoch, after.instance_id) != (before.epoch, before.instance_id):
                transaction.publish(
                    Change(
                        kind=ChangeKind.LEASE, id=piped_id, project_id=project_id, piped_id=piped_id
                    )
                )
            return after

        return await self._database.write(work)


def _record(row: Row | None) -> LeaseRecord:
    if row is None:
        return NONE
    epoch, instance_id, data_folder_id, renewals, contested = row
    return LeaseRecord(
        epoch=epoch,
        instance_id=instance_id,
        data_folder_id=data_folder_id,
        renewals=renewals,
        contested=bool(contested),
    )


def _columns(record: LeaseRecord) -> dict[str, str | int]:
    return {
        "epoch": record.epoch,
        "instance_id": record.instance_id,
        "data_folder_id": record.data_folder_id,
        "renewals": record.renewals,
        "contested": int(record.contested),
    }
