# SPDX-License-Identifier: Apache-2.0
"""Deployments: written by pipeds, read by pipeds, people and programs."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import bindparam, select, tuple_

from pipecd_controlplane.store import outcomes, schema
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.database import Row, Transaction, Value, View
from pipecd_controlplane.store.entities import Entities
from pipecd_controlplane.store.labels import Labels
from pipecd_controlplane.store.list_statements import ListQuery
from pipecd_controlplane.store.listing import Filter
from pipecd_controlplane.store.paging import Page, Position, fill, position_parameters
from pipecd_model.deployment import is_completed
from pipecd_wire.model import deployment_pb2

T: Final = schema.deployment

NOT_COMPLETED_OF_PIPED: Final = (
    select(T.c.data, T.c.created_at, T.c.id)
    .where(
        T.c.project_id == bindparam("project_id"),
        T.c.piped_id == bindparam("piped_id"),
        T.c.completed == 0,
        tuple_(T.c.created_at, T.c.id) < tuple_(bindparam("created_at"), bindparam("after")),
    )
    .order_by(T.c.created_at.desc(), T.c.id.desc())
    .limit(bindparam("batch"))
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

MOST_OF_TRACE: Final = 50
"""Deployments that are shown of one commit, the newest."""

OF_TRACE: Final = (
    select(T.c.data)
    .where(
        T.c.project_id == bindparam("project_id"),
        T.c.trace_commit_hash == bindparam("commit_hash"),
        T.c.trace_commit_hash != "",
    )
    .order_by(T.c.created_at.desc(), T.c.id.desc())
    .limit(MOST_OF_TRACE)
)
OF_CHAIN: Final = (
    select(T.c.data)
    .where(
        T.c.project_id == bindparam("project_id"),
        T.c.chain_id == bindparam("chain_id"),
        T.c.chain_id != "",
    )
    .order_by(T.c.created_at, T.c.id)
)

LIST: Final = ListQuery(
    T, schema.deployment_label, ("application_id", "application_name", "status", "kind")
)

AGENT_PAGE_BYTES: Final = 8 * 1024 * 1024
"""An agent accepts messages of 10 MiB, and a v0 agent never asks for a second page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentFilter:
    """Which deployments of a project are wanted; what is empty does not matter."""

    statuses: tuple[int, ...] = ()
    kinds: tuple[int, ...] = ()
    application_ids: tuple[str, ...] = ()
    application_name: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    updated_since: int = 0

    def rows(self) -> Filter:
        wanted: dict[str, tuple[Value, ...]] = {
            "status": self.statuses,
            "kind": self.kinds,
            "application_id": self.application_ids,
            "application_name": (self.application_name,) if self.application_name else (),
        }
        return Filter(
            columns={name: values for name, values in wanted.items() if values},
            labels=self.labels,
            updated_since=self.updated_since,
        )


class Deployments(Entities[deployment_pb2.Deployment]):
    """The deployments with their stages."""

    noun = "deployment"
    kind = ChangeKind.DEPLOYMENT
    table = T
    message = deployment_pb2.Deployment
    _list = LIST
    _labels = Labels(schema.deployment_label)

    def columns(self, entity: deployment_pb2.Deployment) -> dict[str, Value]:
        return {
            "piped_id": entity.piped_id,
            "application_id": entity.application_id,
            "application_name": entity.application_name,
            "kind": entity.kind,
            "status": entity.status,
            "completed": int(is_completed(entity.status)),
            "created_at": entity.created_at,
            "updated_at": entity.updated_at,
            "completed_at": entity.completed_at,
            "chain_id": entity.deployment_chain_id,
            "trace_commit_hash": entity.deployment_trace_commit_hash,
        }

    async def write_related(
        self,
        transaction: Transaction,
        before: deployment_pb2.Deployment | None,
        after: deployment_pb2.Deployment,
    ) -> None:
        await super().write_related(transaction, before, after)
        was_completed = before is not None and is_completed(before.status)
        if is_completed(after.status) and not was_completed:
            await outcomes.add_in(transaction, after)

    async def not_completed_of_piped(
        self, project_id: str, piped_id: str, *, cursor: str, max_bytes: int = AGENT_PAGE_BYTES
    ) -> Page[deployment_pb2.Deployment]:
        """Returns a page of the piped's deployments that are not completed.

        A page is as large as a message that an agent accepts.
        """

        async def work(view: View) -> Page[deployment_pb2.Deployment]:
            async def read(after: Position, batch: int) -> list[Row]:
                return await view.all(
                    NOT_COMPLETED_OF_PIPED,
                    project_id=project_id,
                    piped_id=piped_id,
                    **position_parameters(after),
                    batch=batch,
                )

            return await fill(
                read,
                parse=self._parse,
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

    async def list_by_trace_in(
        self, view: View, project_id: str, commit_hashes: Iterable[str]
    ) -> dict[str, list[deployment_pb2.Deployment]]:
        """Returns the deployments that the commits of traces led to, by commit, newest first."""
        found = {}
        for commit_hash in commit_hashes:
            rows = await view.all(OF_TRACE, project_id=project_id, commit_hash=commit_hash)
            found[commit_hash] = [self._parse(row[0]) for row in rows]
        return found

    async def list_by_chain_in(
        self, view: View, project_id: str, chain_id: str
    ) -> list[deployment_pb2.Deployment]:
        rows = await view.all(OF_CHAIN, project_id=project_id, chain_id=chain_id)
        return [self._parse(row[0]) for row in rows]
