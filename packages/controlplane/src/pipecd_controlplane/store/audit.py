# SPDX-License-Identifier: Apache-2.0
"""The audit: who did what, one chain of records for each project.

The next place of a chain is its unique key: of two units that append at the same time one finds it
taken and runs again, so that no chain ever forks, whatever the isolation of the database.
"""

from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from sqlalchemy import bindparam, delete, func, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.audit_statements import (
    COLUMNS,
    COUNTED,
    build_audit_count,
    build_audit_page,
)
from pipecd_controlplane.store.database import (
    Database,
    StaleReadError,
    Transaction,
    Value,
    View,
)
from pipecd_controlplane.store.paging import PAGE_BYTES, Page
from pipecd_model import audit
from pipecd_model.errors import ConfigError
from pipecd_wire.pipecd.api.api_pb2 import AuditHead, AuditRecord

T: Final = schema.audit_record

FOREVER: Final = 2**62
DEFAULT_ITEMS: Final = 100
MOST_ITEMS: Final = 1000
CUT_STEP: Final = 1000
"""Records that one cut removes at most."""

OK: Final = "OK"

LAST: Final = (
    select(T.c.data)
    .where(T.c.project_id == bindparam("project_id"))
    .order_by(T.c.sequence.desc())
    .limit(1)
)
PROJECTS: Final = select(T.c.project_id).group_by(T.c.project_id).order_by(T.c.project_id)
OLDEST_AT: Final = select(T.c.at, T.c.sequence).where(
    T.c.project_id == bindparam("project_id"),
    T.c.sequence
    == select(func.min(T.c.sequence))
    .where(T.c.project_id == bindparam("project_id"))
    .scalar_subquery(),
)
FIRST_KEPT: Final = select(func.min(T.c.sequence)).where(
    T.c.project_id == bindparam("project_id"), T.c.at >= bindparam("before")
)
BY_SEQUENCE: Final = select(T.c.data).where(
    T.c.project_id == bindparam("project_id"), T.c.sequence == bindparam("sequence")
)
DELETE: Final = delete(T).where(
    T.c.project_id == bindparam("this_project"), T.c.sequence <= bindparam("through")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which records are wanted; what is empty or 0 does not count."""

    since: int = 0
    before: int = 0
    actor: str = ""
    action: str = ""
    subject: str = ""
    oldest_first: bool = False

    def values(self) -> dict[str, str]:
        """Returns the values that are wanted by their names."""
        return {name: value for name in COLUMNS if (value := getattr(self, name))}

    def parameters(self) -> dict[str, Value]:
        return {"since": self.since, "before": self.before or FOREVER, **self.values()}


async def append_in(transaction: Transaction, record: AuditRecord) -> AuditRecord:
    """Appends a record to the chain of its project, and returns it sealed."""
    row = await transaction.one(LAST, project_id=record.project_id)
    head = audit.head_of(AuditRecord.FromString(row[0])) if row is not None else AuditHead()
    sealed = audit.seal(record, head)
    added = await transaction.insert_if_absent(
        T,
        project_id=sealed.project_id,
        sequence=sealed.sequence,
        at=sealed.at.seconds,
        actor=sealed.actor,
        actor_id=sealed.actor_id,
        action=sealed.action,
        subject=sealed.subject,
        subject_name=sealed.subject_name,
        data=sealed.SerializeToString(),
    )
    if not added:
        raise StaleReadError
    return sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage(Page[AuditRecord]):
    """Some records, and where the chain ended when they were read."""

    head: AuditHead


class Audit:
    """The chains of all projects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, project_id: str, wanted: AuditFilter, *, limit: int, cursor: str
    ) -> AuditPage:
        """Returns a page of records; `limit` 0 is DEFAULT_ITEMS. Raises ConfigError."""
        limit = min(limit, MOST_ITEMS) if limit else DEFAULT_ITEMS
        after = _read_cursor(cursor, oldest_first=wanted.oldest_first)

        async def work(view: View) -> AuditPage:
            rows = await view.all(
                await _find_statement(view, project_id, wanted),
                project_id=project_id,
                after=after,
                batch=limit + 1,
                **wanted.parameters(),
            )
            items: list[AuditRecord] = []
            size = last = 0
            for data, sequence in rows[:limit]:
                if items and size + len(data) > PAGE_BYTES:
                    break
                items.append(AuditRecord.FromString(data))
                size += len(data)
                last = sequence
            is_last = len(items) == len(rows)
            return AuditPage(
                items=items,
                cursor="" if is_last else _write_cursor(last, oldest_first=wanted.oldest_first),
                head=await self.read_head_in(view, project_id),
            )

        return await self._database.read(work)

    async def read_head_in(self, view: View, project_id: str) -> AuditHead:
        row = await view.one(LAST, project_id=project_id)
        return audit.head_of(AuditRecord.FromString(row[0])) if row is not None else AuditHead()

    async def list_heads(self) -> dict[str, AuditHead]:
        """Returns where the chain of each project ends."""

        async def work(view: View) -> dict[str, AuditHead]:
            projects = [row[0] for row in await view.all(PROJECTS)]
            return {each: await self.read_head_in(view, each) for each in projects}

        return await self._database.read(work)

    async def has_older(self, project_id: str, *, before: int) -> bool:
        """Returns whether the oldest record of a project is from before a time."""

        async def work(view: View) -> bool:
            oldest = await view.one(OLDEST_AT, project_id=project_id)
            return oldest is not None and oldest[0] < before

        return await self._database.read(work)

    async def cut(self, record: AuditRecord, *, before: int) -> AuditHead | None:
        """Removes records from before a time, at most CUT_STEP, and appends `record` about it.

        Returns the end of what was removed, or None when nothing was.
        """

        async def work(transaction: Transaction) -> AuditHead | None:
            removed = await _find_cut(transaction, record.project_id, before)
            if removed is None:
                return None
            told = AuditRecord()
            told.CopyFrom(record)
            told.after = audit.describe_cut(removed)
            await append_in(transaction, told)
            await transaction.run(DELETE, this_project=record.project_id, through=removed.sequence)
            return removed

        return await self._database.write(work)


async def _find_statement(view: View, project_id: str, wanted: AuditFilter) -> Any:
    """Returns the statement of the list, driven by the value that the fewest records have."""
    values = wanted.values()
    names = tuple(values)
    driving = names[0] if names else ""
    for most in COUNTED if len(names) > 1 else ():
        row = await view.one(build_audit_count(names, most), project_id=project_id, **values)
        found = dict(zip(names, row or (), strict=False))
        driving = min(names, key=lambda name: found.get(name, 0))
        if found.get(driving, 0) < most:
            break
    return build_audit_page(names, driving, oldest_first=wanted.oldest_first)


async def _find_cut(transaction: Transaction, project_id: str, before: int) -> AuditHead | None:
    """Returns the last record of those from before a time; None when there is none."""
    oldest = await transaction.one(OLDEST_AT, project_id=project_id)
    if oldest is None or oldest[0] >= before:
        return None
    kept = await transaction.one(FIRST_KEPT, project_id=project_id, before=before)
    through = oldest[1] + CUT_STEP - 1
    if kept is not None and kept[0] is not None:
        through = min(through, kept[0] - 1)
    else:
        last = await transaction.one(LAST, project_id=project_id)
        if last is not None:
            through = min(through, AuditRecord.FromString(last[0]).sequence)
    row = await transaction.one(BY_SEQUENCE, project_id=project_id, sequence=through)
    return audit.head_of(AuditRecord.FromString(row[0])) if row is not None else None


def to_timestamp(seconds: int) -> Timestamp:
    return Timestamp(seconds=seconds)


def _write_cursor(sequence: int, *, oldest_first: bool) -> str:
    return f"{'after' if oldest_first else 'before'}-{sequence}"


def _read_cursor(cursor: str, *, oldest_first: bool) -> int:
    if not cursor:
        return 0 if oldest_first else FOREVER
    order, _, number = cursor.partition("-")
    wanted = "after" if oldest_first else "before"
    if order != wanted or not (number.isascii() and number.isdigit() and len(number) < 19):
        raise ConfigError(
            f"invalid request: the cursor {cursor[:40]!r} is not one of this list",
            hint="leave it empty for the first page, and keep the order of the list",
        )
    return int(number)
