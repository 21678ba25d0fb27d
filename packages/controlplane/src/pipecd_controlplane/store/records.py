# SPDX-License-Identifier: Apache-2.0
"""The last report of an agent on one subject: each report replaces the previous one."""

from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from google.protobuf.message import Message
from sqlalchemy import Table

from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import Database, Transaction
from pipecd_controlplane.store.entities import Now

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedMessage(Generic[M]):
    """What was reported, and when."""

    message: M
    updated_at: int
    is_sealed: bool = False
    """Whether the message is in an object of the blob store, and empty here."""


class Records(Generic[M]):
    """Messages of one type, each under the id of its subject. Subclasses give the type."""

    table: ClassVar[Table]
    message: type[M]
    kind: ClassVar[ChangeKind | None] = None
    """The kind of change that is published; None when no listener needs it."""

    def __init__(self, database: Database, now: Now) -> None:
        self._database = database
        self._now = now

    def _record(self, data: bytes, updated_at: int) -> ReportedMessage[M]:
        return ReportedMessage(message=self.message.FromString(data), updated_at=updated_at)

    def _publish(self, transaction: Transaction, project_id: str, key: str) -> None:
        if self.kind is not None:
            transaction.publish(Change(kind=self.kind, id=key, project_id=project_id))
