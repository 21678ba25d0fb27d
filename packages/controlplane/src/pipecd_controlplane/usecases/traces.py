# SPDX-License-Identifier: Apache-2.0
"""Traces: from a commit in a source repository to the deployments that it led to."""

import uuid
from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.store.database import Transaction, View
from pipecd_controlplane.store.paging import PAGE_BYTES, Page, Position
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.store.traces import TraceFilter
from pipecd_controlplane.usecases import limits
from pipecd_wire.model import deployment_pb2, deployment_trace_pb2

NAMESPACE: Final = uuid.UUID("0f2c8d5e-53a1-5e0c-8a54-9b7c5d0f6b1d")

MOST: Final = 100
"""Traces of a page: each of them brings its deployments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTrace:
    """A commit, as an event describes it."""

    commit_hash: str
    commit_url: str
    title: str = ""
    message: str = ""
    author: str = ""
    timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedCommit:
    """A commit, and the deployments that it has led to so far."""

    trace: deployment_trace_pb2.DeploymentTrace
    deployments: list[deployment_pb2.Deployment]


async def keep_in(
    stores: Stores,
    transaction: Transaction,
    project_id: str,
    event_id: str,
    trace: NewTrace,
    at: int,
) -> None:
    """Stores the trace of a new event, under an id that is derived from the event's."""
    for field, value in (
        ("commit_hash", trace.commit_hash),
        ("commit_url", trace.commit_url),
        ("commit_title", trace.title),
        ("commit_author", trace.author),
    ):
        limits.text(field, value, limits.CONTEXT)
    limits.text("commit_message", trace.message, limits.COMMIT_MESSAGE)
    await stores.traces.add_in(
        transaction,
        deployment_trace_pb2.DeploymentTrace(
            id=str(uuid.uuid5(NAMESPACE, event_id)),
            project_id=project_id,
            title=trace.title,
            commit_message=trace.message,
            commit_hash=trace.commit_hash,
            commit_url=trace.commit_url,
            commit_timestamp=trace.timestamp or at,
            author=trace.author,
            created_at=at,
            updated_at=at,
        ),
    )


async def list_traces(
    stores: Stores,
    project_id: str,
    *,
    commit_hash: str = "",
    updated_since: int = 0,
    limit: int,
    cursor: str,
) -> Page[TracedCommit]:
    """Returns a page of traces, newest first, each with its deployments."""
    limit = min(limit, MOST) if limit else MOST

    async def work(view: View) -> Page[TracedCommit]:
        page = await stores.traces.page_in(
            view,
            project_id,
            TraceFilter(commit_hash=commit_hash, updated_since=updated_since),
            limit=limit,
            cursor=cursor,
        )
        led_to = await stores.deployments.list_by_trace_in(
            view, project_id, {trace.commit_hash for trace in page.items}
        )
        items = [
            TracedCommit(trace=trace, deployments=led_to[trace.commit_hash]) for trace in page.items
        ]
        return _cut_to_page(items, page.cursor)

    return await stores.database.read(work)


def _cut_to_page(items: list[TracedCommit], cursor: str) -> Page[TracedCommit]:
    """Returns a page with as many items as fit; at least one."""
    size = 0
    for number, item in enumerate(items):
        size += sum(deployment.ByteSize() for deployment in item.deployments)
        if number and size > PAGE_BYTES:
            last = items[number - 1].trace
            there = Position(created_at=last.created_at, id=last.id)
            return Page(items=items[:number], cursor=there.encode())
    return Page(items=items, cursor=cursor)
