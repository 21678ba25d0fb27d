# SPDX-License-Identifier: Apache-2.0
"""Applications: what is deployed."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from sqlalchemy import Select, bindparam, select

from controlplane.store.changes import Kind
from controlplane.store.database import Value, View
from controlplane.store.entities import Entities
from controlplane.store.paging import Page, fill, newest_first
from controlplane.store.sql import tables
from pipecd_wire.model import application_pb2

T: Final = tables.application

ENABLED_OF_PIPED: Final = (
    select(T.c.data)
    .where(
        T.c.project_id == bindparam("project_id"),
        T.c.piped_id == bindparam("piped_id"),
        T.c.disabled == 0,
    )
    .order_by(T.c.created_at, T.c.id)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationFilter:
    """Which applications of a project are wanted; what is None or empty does not matter."""

    name: str | None = None
    kind: int | None = None
    piped_id: str | None = None
    disabled: bool | None = None
    labels: dict[str, str] = field(default_factory=dict)

    def columns(self) -> dict[str, Value]:
        wanted = {
            "name": self.name,
            "kind": self.kind,
            "piped_id": self.piped_id,
            "disabled": None if self.disabled is None else int(self.disabled),
        }
        return {name: value for name, value in wanted.items() if value is not None}


class Applications(Entities[application_pb2.Application]):
    """The applications, those deleted included: they are marked, not removed."""

    noun = "application"
    kind = Kind.APPLICATION
    table = T
    message = application_pb2.Application

    def columns(self, entity: application_pb2.Application) -> dict[str, Value]:
        return {
            "piped_id": entity.piped_id,
            "name": entity.name,
            "kind": entity.kind,
            "disabled": int(entity.disabled),
            "created_at": entity.created_at,
        }

    async def enabled_of_piped(
        self, project_id: str, piped_id: str
    ) -> list[application_pb2.Application]:
        async def work(view: View) -> list[application_pb2.Application]:
            return await self.enabled_of_piped_in(view, project_id, piped_id)

        return await self._database.read(work)

    async def enabled_of_piped_in(
        self, view: View, project_id: str, piped_id: str
    ) -> list[application_pb2.Application]:
        rows = await view.all(ENABLED_OF_PIPED, project_id=project_id, piped_id=piped_id)
        return [self._parse(row[0]) for row in rows]

    async def page(
        self, project_id: str, wanted: ApplicationFilter, *, limit: int, cursor: str
    ) -> Page[application_pb2.Application]:
        columns = wanted.columns()

        async def work(view: View) -> Page[application_pb2.Application]:
            return await fill(
                view,
                _listing(frozenset(columns)),
                {"project_id": project_id, **columns},
                parse=self._parse,
                keep=lambda application: wanted.labels.items() <= application.labels.items(),
                limit=limit,
                cursor=cursor,
            )

        return await self._database.read(work)


@cache
def _listing(filters: frozenset[str]) -> "Select[Any]":
    statement = newest_first(T).where(T.c.project_id == bindparam("project_id"))
    for name in sorted(filters):
        statement = statement.where(T.c[name] == bindparam(name))
    return statement
