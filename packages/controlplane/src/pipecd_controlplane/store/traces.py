# SPDX-License-Identifier: Apache-2.0
"""Traces: the source commits behind what was deployed."""

from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.database import Value
from pipecd_controlplane.store.entities import Entities
from pipecd_controlplane.store.list_statements import ListQuery
from pipecd_controlplane.store.listing import Filter
from pipecd_wire.model import deployment_trace_pb2

T: Final = schema.deployment_trace

LIST: Final = ListQuery(T, None, ("commit_hash",))


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFilter:
    """Which traces of a project are wanted; what is empty does not matter."""

    commit_hash: str = ""
    updated_since: int = 0

    def rows(self) -> Filter:
        return Filter(
            columns={"commit_hash": (self.commit_hash,)} if self.commit_hash else {},
            updated_since=self.updated_since,
        )


class Traces(Entities[deployment_trace_pb2.DeploymentTrace]):
    """The traces, each of one commit."""

    noun = "trace"
    kind = ChangeKind.TRACE
    table = T
    message = deployment_trace_pb2.DeploymentTrace
    _list = LIST

    def columns(self, entity: deployment_trace_pb2.DeploymentTrace) -> dict[str, Value]:
        return {
            "commit_hash": entity.commit_hash,
            "created_at": entity.created_at,
            "updated_at": entity.updated_at,
        }
