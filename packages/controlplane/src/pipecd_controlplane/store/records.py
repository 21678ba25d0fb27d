# SPDX-License-Identifier: Apache-2.0
"""One message per thing, as an agent last reported it: each report replaces the one before."""

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


class Records(Generic[M]):
    """Messages of one type, each under the id of what it is about. Subclasses say which."""

    table: ClassVar[Table]
    message: type[M]
    kind: ClassVar[ChangeKind | None] = None
    """What is published when it changes; None for what nobody waits for."""

    def __init__(self, database: Database, now: Now) -> None:
        self._database = database
        self._now = now

    def _record(self, data: bytes, updated_at: int) -> ReportedMessage[M]:
        return ReportedMessage(message=self.message.FromString(data), updated_at=updated_at)

    def _publish(self, transaction: Transaction, project_id: str, key: str) -> None:
        if self.kind is not None:
            transaction.publish(Change(kind=self.kind, id=key, project_id=project_id))
