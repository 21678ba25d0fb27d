# SPDX-License-Identifier: Apache-2.0
"""A stage log read at once, from an index on, as far as one answer carries it."""

from typing import Final

from pipecd_controlplane.store.stage_logs import LogKey, LogPart
from pipecd_controlplane.store.stores import Stores
from pipecd_model.errors import NotFoundError

MOST_BYTES: Final = 3 * 1024 * 1024


async def from_index(stores: Stores, project_id: str, key: LogKey, index: int) -> LogPart:
    """Blocks from `index` on; completed only when nothing is left out.

    Raises NotFoundError when there is no log yet: clients ask again then.
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
