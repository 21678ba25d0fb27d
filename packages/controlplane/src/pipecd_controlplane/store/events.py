# SPDX-License-Identifier: Apache-2.0
"""Events: registered by programs, written into git by pipeds."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from sqlalchemy import bindparam, select, tuple_

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.database import Value, View
from pipecd_controlplane.store.entities import Entities
from pipecd_controlplane.store.labels import Labels
from pipecd_controlplane.store.list_statements import ListQuery
from pipecd_controlplane.store.listing import Filter
from pipecd_controlplane.store.paging import START
from pipecd_wire.model import event_pb2

T: Final = schema.event

LATEST: Final = (
    select(T.c.data)
    .where(
        T.c.project_id == bindparam("project_id"),
        T.c.event_key == bindparam("event_key"),
        T.c.name == bindparam("name"),
    )
    .order_by(T.c.created_at.desc(), T.c.id.desc())
    .limit(1)
)

LIST: Final = ListQuery(T, schema.event_label, ("name", "status"))

AGENT_BYTES: Final = 8 * 1024 * 1024
"""An agent accepts messages of 10 MiB, and never asks for a second page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events of a project are wanted; what is empty does not matter."""

    name: str = ""
    statuses: tuple[int, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    updated_since: int = 0

    def rows(self) -> Filter:
        columns: dict[str, tuple[Value, ...]] = {}
        if self.name:
            columns["name"] = (self.name,)
        if self.statuses:
            columns["status"] = self.statuses
        return Filter(columns=columns, labels=self.labels, updated_since=self.updated_since)


class Events(Entities[event_pb2.Event]):
    """The events with their state."""

    noun = "event"
    kind = ChangeKind.EVENT
    table = T
    message = event_pb2.Event
    _list = LIST
    _labels = Labels(schema.event_label)

    def columns(self, entity: event_pb2.Event) -> dict[str, Value]:
        return {
            "name": entity.name,
            "event_key": entity.event_key,
            "status": entity.status,
            "created_at": entity.created_at,
            "updated_at": entity.updated_at,
        }

    async def latest(self, project_id: str, name: str, event_key: str) -> event_pb2.Event | None:
        """Returns the newest event with this name and key; None when there is none."""

        async def work(view: View) -> event_pb2.Event | None:
            row = await view.one(LATEST, project_id=project_id, name=name, event_key=event_key)
            return self._parse(row[0]) if row else None

        return await self._database.read(work)

    async def for_agent(
        self,
        project_id: str,
        *,
        start: int,
        end: int,
        status: int | None,
        oldest_first: bool,
        max_bytes: int = AGENT_BYTES,
    ) -> list[event_pb2.Event]:
        """Returns the events created in [start, end) that fit into one message to an agent.

        An `end` of 0 is no bound.
        """
        bounds: dict[str, Value] = {"start": start, "end": end or START.created_at}
        if status is not None:
            bounds["status"] = status
        statement = _select_in_time(status is not None, oldest_first)

        async def work(view: View) -> list[event_pb2.Event]:
            found: list[event_pb2.Event] = []
            size = 0
            position: tuple[int, str] = (-1, "") if oldest_first else (START.created_at, "")
            while True:
                rows = await view.all(
                    statement,
                    project_id=project_id,
                    created_at=position[0],
                    after=position[1],
                    **bounds,
                )
                for data, created_at, row_id in rows:
                    if found and size + len(data) > max_bytes:
                        return found
                    found.append(self._parse(data))
                    size += len(data)
                    position = (created_at, row_id)
                if not rows:
                    return found

        return await self._database.read(work)


@cache
def _select_in_time(by_status: bool, oldest_first: bool) -> Any:
    here = tuple_(T.c.created_at, T.c.id)
    there = tuple_(bindparam("created_at"), bindparam("after"))
    statement = select(T.c.data, T.c.created_at, T.c.id).where(
        T.c.project_id == bindparam("project_id"),
        T.c.created_at >= bindparam("start"),
        T.c.created_at < bindparam("end"),
        here > there if oldest_first else here < there,
    )
    if by_status:
        statement = statement.where(T.c.status == bindparam("status"))
    if oldest_first:
        return statement.order_by(T.c.created_at, T.c.id).limit(500)
    return statement.order_by(T.c.created_at.desc(), T.c.id.desc()).limit(500)
