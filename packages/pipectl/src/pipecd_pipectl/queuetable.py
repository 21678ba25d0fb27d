# SPDX-License-Identifier: Apache-2.0
"""What waits for its turn as people read it: a table, and the sentence of one deployment."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pipecd_model.deployment import is_completed
from pipecd_pipectl.client import Client
from pipecd_pipectl.tables import Column, print_table, shorten_ids
from pipecd_pipectl.times import format_age, when
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.api.api_pb2 import ListQueueRequest, ListQueueResponse
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment
from pipecd_wire.rpc import CallError, call

CAUSES: Final[Mapping[int, str]] = {
    QueuedDeployment.OTHER_DEPLOYMENT: "deployment",
    QueuedDeployment.SLOT: "place",
    QueuedDeployment.LOCK: "lock",
    QueuedDeployment.RULE: "rule",
    QueuedDeployment.CHAIN: "chain",
    QueuedDeployment.CONTROL_PLANE: "control plane",
}
"""One word for each cause that an agent can report."""


def print_queue(items: Sequence[ListQueueResponse.Item], *, wide: bool, now: float) -> None:
    """Prints a table of what waits."""
    short = {} if wide else shorten_ids(each.queued.deployment_id for each in items)
    columns: list[Column[ListQueueResponse.Item]] = [
        Column(
            heading="ID",
            cell=lambda it: short.get(it.queued.deployment_id, it.queued.deployment_id),
            fixed=True,
        ),
        Column(heading="APPLICATION", cell=lambda it: it.application_name),
        Column(heading="COMMIT", cell=lambda it: it.commit_hash[:7], fixed=True),
        Column(
            heading="CREATED",
            cell=lambda it: format_age(it.created_at.seconds, now),
            fixed=True,
        ),
        Column(heading="FOR", cell=lambda it: CAUSES.get(it.queued.cause, "?"), fixed=True),
        Column(
            heading="AHEAD",
            cell=lambda it: str(it.queued.position) if it.queued.position else "",
            fixed=True,
        ),
        Column(heading="LOCK", cell=lambda it: it.queued.lock, wide=True),
        Column(heading="UNTIL", cell=lambda it: when(it.queued.until.seconds), wide=True),
        Column(heading="HINT", cell=lambda it: it.queued.hint, wide=True),
        Column(heading="WHY", cell=lambda it: it.queued.sentence),
    ]
    print_table(columns, items, wide=wide)


async def read_queued(
    client: Client, deployments: Iterable[Deployment]
) -> dict[str, QueuedDeployment]:
    """Returns by deployment what its agent says that it waits for; asks only if one is open."""
    if all(is_completed(each.status) for each in deployments):
        return {}
    return await read_all_queued(client)


async def read_all_queued(client: Client) -> dict[str, QueuedDeployment]:
    """Returns by deployment what its agent says that it waits for.

    A control plane of upstream's says nothing.
    """
    try:
        answer = await call(client.deployments.ListQueue, ListQueueRequest())
    except CallError as error:
        if error.status not in {"UNIMPLEMENTED", "NOT_FOUND", "PERMISSION_DENIED"}:
            raise
        return {}
    return {each.queued.deployment_id: each.queued for each in answer.items}


def describe_queued(queued: QueuedDeployment) -> str:
    """Returns what a deployment waits for, with how many are before it."""
    ahead = f" ({queued.position} before it)" if queued.position else ""
    return f"{queued.sentence}{ahead}"
