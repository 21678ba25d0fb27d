# SPDX-License-Identifier: Apache-2.0
"""Messages that are changed by their version, each under the id of its subject."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlalchemy import Select, Update, bindparam, select, update

from pipecd_controlplane.store.auditing import is_audited, note_change
from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import Row, StaleReadError, Transaction, Value, View
from pipecd_controlplane.store.records import M, Records, ReportedMessage
from pipecd_controlplane.store.sealed_values import NO_OBJECT


class VersionedRecords(Records[M]):
    """One message per subject. Subclasses give its type, its table and the column of the id."""

    key: ClassVar[str]

    _get: ClassVar["Select[tuple[Any, ...]]"]
    _replace: ClassVar[Update]
    _no_object: ClassVar[Mapping[str, Value]]
    """What is written beside a message where messages can be objects."""

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "table"):
            return  # a base class of other ones
        c = cls.table.c
        subject = c[cls.key]
        cls._no_object = NO_OBJECT if "object_key" in c else {}
        cls._get = select(
            c.data, c.updated_at, c.version, *(c[name] for name in cls._no_object)
        ).where(subject == bindparam("subject"), c.project_id == bindparam("project_id"))
        cls._replace = (
            update(cls.table)
            .where(
                subject == bindparam("this_subject"),
                c.project_id == bindparam("this_project"),
                c.version == bindparam("this_version"),
            )
            .values(
                updated_at=bindparam("updated_at"),
                version=bindparam("version"),
                data=bindparam("data"),
                **{name: bindparam(name) for name in cls._no_object},
            )
        )

    async def find(self, project_id: str, subject: str) -> ReportedMessage[M] | None:
        """Returns the message of a subject; None when there is none."""
        row = await self._database.one(self._get, project_id=project_id, subject=subject)
        return self._read(row) if row else None

    async def find_in(self, view: View, project_id: str, subject: str) -> M | None:
        """Returns the message of a subject, read in a unit of work."""
        row = await view.one(self._get, project_id=project_id, subject=subject)
        return self.message.FromString(row[0]) if row else None

    async def change_in(
        self,
        transaction: Transaction,
        project_id: str,
        subject: str,
        edit: Callable[[ReportedMessage[M] | None], M | None],
        *,
        piped_id: str = "",
    ) -> None:
        """Writes what `edit` returns for the stored message; None leaves it as it is.

        The change is delivered to `piped_id`, if given.
        """
        row = await transaction.one(self._get, project_id=project_id, subject=subject)
        message = edit(self._read(row) if row else None)
        if message is None:
            return
        if is_audited(transaction):
            before = self._read(row).message if row else None
            noun = self.key.removesuffix("_id")
            note_change(transaction, noun, subject, before, message)
        data, now = message.SerializeToString(), self._now()
        if row is None:
            written = await transaction.insert_if_absent(
                self.table,
                **{self.key: subject, "project_id": project_id},
                updated_at=now,
                version=1,
                data=data,
                **self._no_object,
            )
        else:
            written = (
                await transaction.run(
                    self._replace,
                    this_subject=subject,
                    this_project=project_id,
                    this_version=row[2],
                    updated_at=now,
                    version=row[2] + (data != row[0]),  # the same again is no other version
                    data=data,
                    **self._no_object,
                )
                > 0
            )
        if not written:
            raise StaleReadError
        if self.kind is not None:
            transaction.publish(
                Change(kind=self.kind, id=subject, project_id=project_id, piped_id=piped_id)
            )

    def _read(self, row: Row) -> ReportedMessage[M]:
        return self._record(row[0], row[1])
