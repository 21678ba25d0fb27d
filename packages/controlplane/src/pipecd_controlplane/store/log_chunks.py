# SPDX-License-Identifier: Apache-2.0
"""The parts of a stage log: its key, its head, and the chunks that its blocks came in."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Value, View
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import logblock_pb2

HEADS: Final = schema.stage_log
CHUNKS: Final = schema.stage_log_chunk

BELOW_ALL: Final = -(2**63)
ABOVE_ALL: Final = 2**63 - 1


def match_log(table: FromClause) -> "ColumnElement[bool]":
    """Returns the condition for the rows of one log, given `LogKey.parameters`."""
    return (
        (table.c.deployment_id == bindparam("this_deployment"))
        & (table.c.stage_id == bindparam("this_stage"))
        & (table.c.retried_count == bindparam("this_retry"))
    )


HEAD: Final = select(
    HEADS.c.chunks,
    HEADS.c.last_index,
    HEADS.c.completed,
    HEADS.c.bytes,
    HEADS.c.lines,
    HEADS.c.sealed,
    HEADS.c.sealed_bytes,
).where(match_log(HEADS), HEADS.c.project_id == bindparam("this_project"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogKey:
    """Which log: each attempt of a stage has its own."""

    deployment_id: str
    stage_id: str
    retried_count: int = 0

    def __str__(self) -> str:
        return f"{self.deployment_id}/{self.stage_id}/{self.retried_count}"

    def parameters(self) -> dict[str, Value]:
        return {
            "this_deployment": self.deployment_id,
            "this_stage": self.stage_id,
            "this_retry": self.retried_count,
        }

    def columns(self) -> dict[str, Any]:
        return {
            "deployment_id": self.deployment_id,
            "stage_id": self.stage_id,
            "retried_count": self.retried_count,
        }


@dataclass(frozen=True, slots=True)
class LogHead:
    """What is known of a log without reading it; the fields are the columns of HEAD."""

    chunks: int = 0
    last_index: int = BELOW_ALL
    completed: int = 0
    bytes: int = 0
    lines: int = 0
    sealed: int = 0
    """The chunks up to this number are in objects, those after it are rows."""
    sealed_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """Blocks that were added to a log together."""

    number: int
    first_line: int
    data: bytes

    def read_blocks(self) -> Iterable[logblock_pb2.LogBlock]:
        return apiservice.StageLog.FromString(self.data).blocks


async def find_head_in(view: View, project_id: str, key: LogKey) -> LogHead | None:
    """Returns the head of a log; None when there is no such log."""
    row = await view.one(HEAD, this_project=project_id, **key.parameters())
    return LogHead(*row) if row else None
