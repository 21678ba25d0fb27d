# SPDX-License-Identifier: Apache-2.0
"""Applications: what is deployed."""

from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import and_, bindparam, func, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.database import Value, View
from pipecd_controlplane.store.entities import Entities
from pipecd_controlplane.store.labels import Labels
from pipecd_controlplane.store.list_statements import ListQuery
from pipecd_controlplane.store.listing import Filter
from pipecd_wire.model import application_pb2

T: Final = schema.application

ENABLED_OF_PIPED: Final = (
    select(T.c.data)
    .where(
        T.c.project_id == bindparam("project_id"),
        T.c.piped_id == bindparam("piped_id"),
        T.c.disabled == 0,
    )
    .order_by(T.c.created_at, T.c.id)
)
OF_PROJECT: Final = (
    select(T.c.data)
    .where(T.c.project_id == bindparam("project_id"))
    .order_by(T.c.created_at, T.c.id)
)
L: Final = schema.application_label

COUNTS: Final = (
    select(T.c.kind, T.c.plugin_based, T.c.disabled, L.c.value, func.count())
    .select_from(T.outerjoin(L, and_(L.c.entity_id == T.c.id, L.c.key == "kind")))
    .where(T.c.project_id == bindparam("project_id"), T.c.deleted == 0)
    .group_by(T.c.kind, T.c.plugin_based, T.c.disabled, L.c.value)
)

LIST: Final = ListQuery(T, schema.application_label, ("name",))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationCount:
    """The number of applications that share these properties."""

    kind: int
    plugin_based: bool
    disabled: bool
    kind_label: str
    """The value of their label `kind`; empty when they have none."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationFilter:
    """Which applications of a project are wanted; what is None or empty does not matter."""

    name: str = ""
    kinds: tuple[int, ...] = ()
    sync_statuses: tuple[int, ...] = ()
    piped_id: str = ""
    disabled: bool | None = None
    deleted: bool | None = None
    labels: dict[str, str] = field(default_factory=dict)

    def rows(self) -> Filter:
        wanted: dict[str, tuple[Value, ...]] = {
            "name": (self.name,) if self.name else (),
            "kind": self.kinds,
            "sync_status": self.sync_statuses,
            "piped_id": (self.piped_id,) if self.piped_id else (),
            "disabled": () if self.disabled is None else (int(self.disabled),),
            "deleted": () if self.deleted is None else (int(self.deleted),),
        }
        return Filter(
            columns={name: values for name, values in wanted.items() if values}, labels=self.labels
        )


class Applications(Entities[application_pb2.Application]):
    """The applications, those deleted included: they are marked, not removed."""

    noun = "application"
    kind = ChangeKind.APPLICATION
    table = T
    message = application_pb2.Application
    _list = LIST
    _labels = Labels(schema.application_label)

    def columns(self, entity: application_pb2.Application) -> dict[str, Value]:
        return {
            "piped_id": entity.piped_id,
            "name": entity.name,
            "kind": entity.kind,
            "disabled": int(entity.disabled),
            "deleted": int(entity.deleted),
            "plugin_based": int(is_plugin_based(entity)),
            "sync_status": entity.sync_state.status,
            "created_at": entity.created_at,
            "updated_at": entity.updated_at,
        }

    async def list_enabled(
        self, project_id: str, piped_id: str
    ) -> list[application_pb2.Application]:
        async def work(view: View) -> list[application_pb2.Application]:
            return await self.list_enabled_in(view, project_id, piped_id)

        return await self._database.read(work)

    async def list_enabled_in(
        self, view: View, project_id: str, piped_id: str
    ) -> list[application_pb2.Application]:
        rows = await view.all(ENABLED_OF_PIPED, project_id=project_id, piped_id=piped_id)
        return [self._parse(row[0]) for row in rows]

    async def list_all_in(self, view: View, project_id: str) -> list[application_pb2.Application]:
        """Returns all applications of a project, the deleted ones included."""
        rows = await view.all(OF_PROJECT, project_id=project_id)
        return [self._parse(row[0]) for row in rows]

    async def counts(self, project_id: str) -> list[ApplicationCount]:
        """Returns the number of applications by kind and state; deleted ones are not counted."""

        async def work(view: View) -> list[ApplicationCount]:
            return [
                ApplicationCount(
                    kind=kind,
                    plugin_based=bool(v1),
                    disabled=bool(disabled),
                    kind_label=label or "",
                    count=count,
                )
                for kind, v1, disabled, label, count in await view.all(
                    COUNTS, project_id=project_id
                )
            ]

        return await self._database.read(work)


def is_plugin_based(application: application_pb2.Application) -> bool:
    """Returns whether a v1 piped deploys it; then its kind has no meaning."""
    return bool(application.deploy_targets_by_plugin) or not application.platform_provider
