# SPDX-License-Identifier: Apache-2.0
"""Deployments: written by pipeds, read by everybody."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from sqlalchemy import Select, bindparam, or_, select

from controlplane.store.changes import Kind
from controlplane.store.database import Value, View
from controlplane.store.entities import Entities
from controlplane.store.paging import Page, fill, newest_first
from controlplane.store.sql import tables
from pipecd_model.deployment import is_completed
from pipecd_wire.model import deployment_pb2

T: Final = tables.deployment

NOT_COMPLETED_OF_PIPED: Final = newest_first(T).where(
    T.c.project_id == bindparam("project_id"),
    T.c.piped_id == bindparam("piped_id"),
    T.c.completed == 0,
)
ALL_NOT_COMPLETED: Final = (
    select(T.c.data)
    .where(
        T.c.project_id == bindparam("project_id"),
        T.c.piped_id == bindparam("piped_id"),
        T.c.completed == 0,
    )
    .order_by(T.c.created_at, T.c.id)
)

AGENT_PAGE_BYTES: Final = 8 * 1024 * 1024
"""An agent takes 10 MiB, and a v0 one never asks for a second page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentFilter:
    """Which deployments of a project are wanted; what is empty does not matter."""

    statuses: tuple[int, ...] = ()
    kinds: tuple[int, ...] = ()
    application_ids: tuple[str, ...] = ()
    application_name: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    def columns(self) -> dict[str, tuple[Value, ...]]:
        wanted: dict[str, tuple[Value, ...]] = {
            "status": self.statuses,
            "kind": self.kinds,
            "application_id": self.application_ids,
            "application_name": (self.application_name,) if self.application_name else (),
        }
        return {name: values for name, values in wanted.items() if values}


class Deployments(Entities[deployment_pb2.Deployment]):
    """The deployments with their stages."""

    noun = "deployment"
    kind = Kind.DEPLOYMENT
    table = T
    message = deployment_pb2.Deployment

    def columns(self, entity: deployment_pb2.Deployment) -> dict[str, Value]:
        return {
            "piped_id": entity.piped_id,
            "application_id": entity.application_id,
            "application_name": entity.application_name,
            "kind": entity.kind,
            "status": entity.status,
            "completed": int(is_completed(entity.status)),
            "created_at": entity.created_at,
        }

    async def not_completed_of_piped(
        self, project_id: str, piped_id: str, *, cursor: str, max_bytes: int = AGENT_PAGE_BYTES
    ) -> Page[deployment_pb2.Deployment]:
        """As many as an agent takes at once."""

        async def work(view: View) -> Page[deployment_pb2.Deployment]:
            return await fill(
                view,
                NOT_COMPLETED_OF_PIPED,
                {"project_id": project_id, "piped_id": piped_id},
                parse=self._parse,
                keep=lambda _deployment: True,
                limit=0,
                cursor=cursor,
                max_bytes=max_bytes,
            )

        return await self._database.read(work)

    async def all_not_completed_in(
        self, view: View, project_id: str, piped_id: str
    ) -> list[deployment_pb2.Deployment]:
        rows = await view.all(ALL_NOT_COMPLETED, project_id=project_id, piped_id=piped_id)
        return [self._parse(row[0]) for row in rows]

    async def page(
        self, project_id: str, wanted: DeploymentFilter, *, limit: int, cursor: str
    ) -> Page[deployment_pb2.Deployment]:
        columns = wanted.columns()
        shape = tuple((name, len(values)) for name, values in sorted(columns.items()))
        parameters: dict[str, Value] = {"project_id": project_id}
        for name, values in columns.items():
            parameters |= {f"{name}_{number}": value for number, value in enumerate(values)}

        async def work(view: View) -> Page[deployment_pb2.Deployment]:
            return await fill(
                view,
                _listing(shape),
                parameters,
                parse=self._parse,
                keep=lambda deployment: wanted.labels.items() <= deployment.labels.items(),
                limit=limit,
                cursor=cursor,
            )

        return await self._database.read(work)


@cache
def _listing(shape: tuple[tuple[str, int], ...]) -> "Select[Any]":
    """The statement for filters on these columns, with so many values each."""
    statement = newest_first(T).where(T.c.project_id == bindparam("project_id"))
    for name, count in shape:
        statement = statement.where(
            or_(*(T.c[name] == bindparam(f"{name}_{number}") for number in range(count)))
        )
    return statement
