# SPDX-License-Identifier: Apache-2.0
"""Stage logs: appended by pipeds, followed by people while they are written."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Final

from pipecd_controlplane.store.changes import ChangeKind, topic
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.log_parts import LogPart
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.shared_state import ChangeBus
from pipecd_model import deployment as deployments
from pipecd_model import stage as stages
from pipecd_model.errors import NotFoundError
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.logblock_pb2 import LogBlock

SEAL_WAIT_SECONDS: Final = 2.0
"""Seconds a follower waits for the seal once the stage is over: the log of a plugin that died has
none, and a piped may be slower with the log's end than with the stage's."""

MOST_BYTES: Final = 3 * 1024 * 1024
"""Of the blocks that are read at once."""

GOES_ON: Final = "… this log is too long to be shown at once; follow it to read it whole"


async def read_whole(stores: Stores, deployment: pb.Deployment, now: Now) -> dict[str, LogPart]:
    """Returns the logs of the latest attempts by stage id; a log that was cut ends with a note.

    What is said in place of lines is of now: who wants only new lines must see it, too.
    """
    keys = {
        stage.id: LogKey(
            deployment_id=deployment.id, stage_id=stage.id, retried_count=stage.retried_count
        )
        for stage in deployment.stages
    }
    said_at = now()
    found = await stores.stage_logs.whole(deployment.project_id, keys.values(), said_at=said_at)
    return {stage_id: _note_cut(found[key], said_at) for stage_id, key in keys.items()}


def _note_cut(part: LogPart, said_at: int) -> LogPart:
    """Returns the part with a note at its end, if it was cut.

    The note has the index of the line before it: whoever goes on behind the last index misses
    none. It is not completed, so that they do go on.
    """
    if part.at_end:
        return part
    last_index = part.blocks[-1].index if part.blocks else -1
    note = LogBlock(index=last_index, log=GOES_ON, created_at=said_at)
    return replace(part, blocks=[*part.blocks, note], completed=False)


def can_reopen(deployment: pb.Deployment, key: LogKey) -> bool:
    """Returns whether a sealed log accepts more lines: while its stage is not over.

    A plugin that outlives its agent seals the log of a stage that the next agent runs again.
    """
    return any(stage.id == key.stage_id for stage in deployment.stages) and not is_over(
        deployment, key
    )


async def read_from(stores: Stores, project_id: str, key: LogKey, index: int) -> LogPart:
    """Returns the blocks from `index` on that fit into one response; `completed` only at the end.

    Raises NotFoundError when there is no log yet: clients retry.
    """
    blocks = []
    size = position = 0
    while True:
        part = await stores.stage_logs.part(project_id, key, after=position, from_index=index)
        blocks += part.blocks
        size += sum(block.ByteSize() for block in part.blocks)
        position = part.position
        if part.at_end or size > MOST_BYTES:
            break
    if not blocks and not part.completed and not position:
        head = await stores.stage_logs.part(project_id, key)
        if not head.blocks:
            raise NotFoundError(f"the stage {key.stage_id!r} has no log yet")
    return LogPart(
        blocks=blocks,
        position=position,
        at_end=part.at_end,
        completed=part.completed and part.at_end,
    )


async def follow(
    stores: Stores,
    bus: ChangeBus,
    project_id: str,
    key: LogKey,
    *,
    from_index: int,
    seal_wait_seconds: float = SEAL_WAIT_SECONDS,
) -> AsyncGenerator[LogPart, None]:
    """Yields the log from an index on, then each addition; the last part has `completed` set."""
    topics = (
        topic(ChangeKind.STAGE_LOG, str(key)),
        topic(ChangeKind.DEPLOYMENT, key.deployment_id),
    )
    with bus.listen(*topics) as listener:
        position = 0
        waited = False
        while True:
            # The stage first: a log that is not sealed after its stage was seen over is the end.
            deployment = await stores.deployments.get(project_id, key.deployment_id)
            over = is_over(deployment, key)
            part = await stores.stage_logs.part(
                project_id, key, after=position, from_index=from_index
            )
            position = part.position
            if not part.at_end:
                yield LogPart(blocks=part.blocks, position=position, at_end=False, completed=False)
                continue
            # Sealed alone is no end: a stage that runs again opens its log again.
            if over and (part.completed or waited):
                yield LogPart(blocks=part.blocks, position=position, at_end=True, completed=True)
                return
            if part.blocks:
                yield replace(part, completed=False)
            news = await listener.wait_changes(seconds=seal_wait_seconds if over else None)
            waited = not news


def is_over(deployment: pb.Deployment, key: LogKey) -> bool:
    """Returns whether this attempt of the stage is over, so that its log does not grow any more.

    Raises NotFoundError when there is no such stage.
    """
    stage = deployments.stage(deployment, key.stage_id)
    return (
        deployments.is_completed(deployment.status)
        or stages.is_completed(stage.status)
        or stage.retried_count > key.retried_count
    )
