# SPDX-License-Identifier: Apache-2.0
"""Traces: the source commits behind what was deployed."""

from typing import Final

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import Kind
from pipecd_controlplane.store.database import Value, View
from pipecd_controlplane.store.entities import Entities
from pipecd_controlplane.store.listing import Filter, List
from pipecd_controlplane.store.paging import Page, fill
from pipecd_wire.model import deployment_trace_pb2

T: Final = schema.deployment_trace

LIST: Final = List(T, None, ("commit_hash",))


class Traces(Entities[deployment_trace_pb2.DeploymentTrace]):
    """The traces, each of one commit."""

    noun = "trace"
    kind = Kind.TRACE
    table = T
    message = deployment_trace_pb2.DeploymentTrace

    def columns(self, entity: deployment_trace_pb2.DeploymentTrace) -> dict[str, Value]:
        return {
            "commit_hash": entity.commit_hash,
            "created_at": entity.created_at,
            "updated_at": entity.updated_at,
        }

    async def page_in(
        self,
        view: View,
        project_id: str,
        *,
        commit_hash: str,
        updated_since: int,
        limit: int,
        cursor: str,
    ) -> Page[deployment_trace_pb2.DeploymentTrace]:
        rows = Filter(
            columns={"commit_hash": (commit_hash,)} if commit_hash else {},
            updated_since=updated_since,
        )
        return await fill(
            view,
            await LIST.statement(view, project_id, rows),
            {"project_id": project_id, **rows.parameters()},
            parse=self._parse,
            limit=limit,
            cursor=cursor,
        )
