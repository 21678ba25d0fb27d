# SPDX-License-Identifier: Apache-2.0
"""Deployment chains: several applications, block after block."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.database import Value, View
from pipecd_controlplane.store.entities import Entities
from pipecd_controlplane.store.list_statements import ListQuery
from pipecd_controlplane.store.listing import Filter
from pipecd_wire.model import deployment_chain_pb2 as pb

T: Final = schema.deployment_chain

UNFINISHED: Final = (
    select(T.c.project_id, T.c.id)
    .where(T.c.completed == 0)
    .order_by(T.c.updated_at)
    .limit(bindparam("most"))
)

LIST: Final = ListQuery(T, None, ())

COMPLETED: Final = frozenset(
    {pb.DEPLOYMENT_CHAIN_SUCCESS, pb.DEPLOYMENT_CHAIN_FAILURE, pb.DEPLOYMENT_CHAIN_CANCELLED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFilter:
    """Which chains of a project are wanted."""

    updated_since: int = 0

    def rows(self) -> Filter:
        return Filter(updated_since=self.updated_since)


class Chains(Entities[pb.DeploymentChain]):
    """The chains with the state of their blocks."""

    noun = "deployment chain"
    kind = ChangeKind.CHAIN
    table = T
    message = pb.DeploymentChain
    _list = LIST

    def columns(self, entity: pb.DeploymentChain) -> dict[str, Value]:
        return {
            "completed": int(entity.status in COMPLETED),
            "created_at": entity.created_at,
            "updated_at": entity.updated_at,
        }

    async def list_unfinished(self, *, most: int = 1000) -> list[tuple[str, str]]:
        """Returns project and id of unfinished chains of all projects, for the timed job."""

        async def work(view: View) -> list[tuple[str, str]]:
            rows = await view.all(UNFINISHED, most=most)
            return [(project_id, chain_id) for project_id, chain_id in rows]

        return await self._database.read(work)
