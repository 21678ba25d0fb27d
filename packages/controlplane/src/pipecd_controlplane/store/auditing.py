# SPDX-License-Identifier: Apache-2.0
"""Writes the audit record of a call in the transaction of what the call changes.

A call that is audited runs inside of `auditing`. Every driver hands the units of work of such a
call to `write_audited`: there is no way to change something in it that leaves no record, and no
record of something that was not changed. All other units (what agents report, timed jobs) run as
they are.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, TypeVar

from google.protobuf.message import Message
from sqlalchemy import Executable, Table, bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.audit import OK, append_in, to_timestamp
from pipecd_controlplane.store.audit_diff import NotedChange, describe_changes
from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import Row, Transaction, Value, View
from pipecd_model.audit import format_head, head_of
from pipecd_model.ids import new_id
from pipecd_runtime.logs import logger
from pipecd_wire.model import apikey_pb2, command_pb2, piped_pb2
from pipecd_wire.pipecd.api.api_pb2 import AuditHead, AuditRecord
from pipecd_wire.pipecd.push import push_pb2

log = logger(__name__)

T = TypeVar("T")

Write = Callable[[Callable[[Transaction], Awaitable[T]]], Awaitable[T]]

LOGGED_EVERY: Final = 100
"""Records of a project after which the head of its chain is logged, whatever the time."""
LONGEST_NAME: Final = 200
LONGEST_REASON: Final = 1000

APPLICATION: Final = "application"
DEPLOYMENT: Final = "deployment"
PIPED: Final = "piped"
API_KEY: Final = "API key"
PROJECT: Final = "project"
SESSION: Final = "session"
HOOK: Final = "hook"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditActor:
    """Who does something."""

    kind: AuditRecord.ActorKind.ValueType
    name: str
    id: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSubject:
    """What something is done to."""

    kind: str = ""
    id: str = ""
    name: str = ""


@dataclass(slots=True, kw_only=True)
class AuditedCall:
    """A call while it runs: everything that its records have in common."""

    project_id: str
    actor: AuditActor
    action: str
    at: int
    """Unix seconds."""
    service: str = ""
    request_id: str = ""
    reason: str = ""
    subject: AuditSubject = field(default_factory=AuditSubject)
    """As the request names it; empty: the first thing that is written."""
    records: int = 0
    """How many were committed."""

    def make_record(self, outcome: str, *, count: int = 0) -> AuditRecord:
        """Returns a record of this call with an id of its own; it is sealed when appended."""
        return AuditRecord(
            id=new_id(),
            at=to_timestamp(self.at),
            project_id=self.project_id,
            actor=self.actor.name[:LONGEST_NAME],
            actor_kind=self.actor.kind,
            actor_id=self.actor.id[:LONGEST_NAME],
            address=self.actor.address[:LONGEST_NAME],
            action=self.action,
            service=self.service,
            subject=self.subject.id[:LONGEST_NAME],
            subject_kind=self.subject.kind,
            subject_name=self.subject.name[:LONGEST_NAME],
            reason=self.reason[:LONGEST_REASON],
            request_id=self.request_id,
            outcome=outcome,
            count=count,
        )


_current: ContextVar[AuditedCall | None] = ContextVar("audited-call", default=None)


def find_audited_call() -> AuditedCall | None:
    """Returns the audited call that runs in this task, None when none does."""
    return _current.get()


@contextmanager
def auditing(call: AuditedCall) -> Iterator[AuditedCall]:
    """Records what is written in the block, and in tasks started there, as done by this call."""
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)


class AuditedTransaction:
    """A transaction that remembers whether, and what, its unit of work has written."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.has_written = False
        self.noted: list[NotedChange] = []

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        return await self._transaction.one(statement, **parameters)

    async def all(self, statement: Executable, **parameters: Value) -> list[Row]:
        return await self._transaction.all(statement, **parameters)

    async def run(self, statement: Executable, **parameters: Value) -> int:
        touched = await self._transaction.run(statement, **parameters)
        self.has_written = self.has_written or touched > 0
        return touched

    async def insert_if_absent(self, table: Table, **values: Value) -> bool:
        added = await self._transaction.insert_if_absent(table, **values)
        self.has_written = self.has_written or added
        return added

    async def upsert(self, table: Table, replaced: tuple[str, ...], **values: Value) -> None:
        await self._transaction.upsert(table, replaced, **values)
        self.has_written = True

    def publish(self, change: Change) -> None:
        self._transaction.publish(change)


def is_audited(transaction: Transaction) -> bool:
    """Returns whether a unit of work is one of an audited call."""
    return isinstance(transaction, AuditedTransaction)


def note_change(
    transaction: Transaction,
    noun: str,
    thing_id: str,
    before: Message | None,
    after: Message | None,
) -> None:
    """Notes how a thing changes, for the audit record; does nothing in a unit without one.

    Stores call it where they write. What is not noted is recorded too, without before and after.
    """
    if isinstance(transaction, AuditedTransaction):
        change = NotedChange(noun=noun, id=thing_id, before=before, after=after)
        transaction.noted.append(change)


async def write_audited(
    write: "Write[tuple[T, AuditRecord | None]]",
    call: AuditedCall,
    work: Callable[[Transaction], Awaitable[T]],
) -> T:
    """Runs a unit of work of an audited call; what it writes is committed with its record."""
    made = call.make_record(OK)

    async def run_and_append(transaction: Transaction) -> tuple[T, AuditRecord | None]:
        watched = AuditedTransaction(transaction)
        result = await work(watched)
        if not watched.has_written:
            return result, None
        return result, await append_in(transaction, await _describe(transaction, made, watched))

    result, record = await write(run_and_append)
    if record is not None:
        call.records += 1
        if record.sequence % LOGGED_EVERY == 0:
            log_head(record.project_id, head_of(record))
    return result


def log_head(project_id: str, head: AuditHead) -> None:
    """Logs where a chain ends, for whoever verifies it later."""
    log.info("audit.head", project_id=project_id, head=format_head(head))


async def _describe(view: View, made: AuditRecord, watched: AuditedTransaction) -> AuditRecord:
    """Returns the record with what the unit of work has changed, and to what."""
    record = AuditRecord()
    record.CopyFrom(made)
    record.before, record.after = describe_changes(watched.noted)
    if not record.subject and watched.noted:
        subject = _find_subject(watched.noted[0])
        record.subject_kind, record.subject = subject.kind, subject.id[:LONGEST_NAME]
    name = (
        record.subject_name
        or _find_noted_name(watched.noted, record.subject)
        or await find_name(view, record.subject_kind, record.subject)
    )
    record.subject_name = name[:LONGEST_NAME]
    return record


def _find_noted_name(noted: Sequence[NotedChange], thing_id: str) -> str:
    """Returns the name of a thing that was written; also of one that is gone now."""
    for each in noted:
        message = each.after if each.after is not None else each.before
        if each.id == thing_id and message is not None:
            for field_name in ("name", "subject", "application_name"):
                if field_name in message.DESCRIPTOR.fields_by_name:
                    return str(getattr(message, field_name))
    return ""


def _find_subject(noted: NotedChange) -> AuditSubject:
    """Returns what a change is about: of a command what it is to do something to."""
    command = noted.after
    if isinstance(command, command_pb2.Command | push_pb2.Command):
        for kind in (DEPLOYMENT, APPLICATION, PIPED):
            if found := getattr(command, f"{kind}_id", ""):
                return AuditSubject(kind=kind, id=found)
    return AuditSubject(kind=noted.noun, id=noted.id)


NAMES: Final = {
    APPLICATION: select(schema.application.c.name).where(
        schema.application.c.id == bindparam("id")
    ),
    DEPLOYMENT: select(schema.deployment.c.application_name).where(
        schema.deployment.c.id == bindparam("id")
    ),
    PIPED: select(schema.piped.c.data).where(schema.piped.c.id == bindparam("id")),
    API_KEY: select(schema.api_key.c.data).where(schema.api_key.c.id == bindparam("id")),
}


async def find_name(view: View, kind: str, thing_id: str) -> str:
    """Returns the name of a thing for people; empty when it has none, or is gone."""
    statement = NAMES.get(kind)
    row = await view.one(statement, id=thing_id) if statement is not None else None
    if row is None:
        return ""
    if kind == PIPED:
        return piped_pb2.Piped.FromString(row[0]).name
    if kind == API_KEY:
        return apikey_pb2.APIKey.FromString(row[0]).name
    return str(row[0])
