# SPDX-License-Identifier: Apache-2.0
"""Which pipeds are there right now."""

from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.agent_watch import Presence
from pipecd_controlplane.usecases.pipeds import ONLINE_SECONDS


async def pipeds_online(stores: Stores, presence: Presence, project_id: str, now: Now) -> set[str]:
    """The ids of those that watch, or have sent a sign of life lately."""
    stats = await stores.piped_stats.of_project(project_id)
    pipeds = await stores.pipeds.of_project(project_id)
    at = now()
    return {
        piped.id
        for piped in pipeds
        if presence.connected(piped.id)
        or (piped.id in stats and at - stats[piped.id].updated_at < ONLINE_SECONDS)
    }
