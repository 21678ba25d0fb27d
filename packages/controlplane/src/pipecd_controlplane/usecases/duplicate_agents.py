# SPDX-License-Identifier: Apache-2.0
"""Two agents at work under one piped id, where no lease can keep them apart.

An agent that knows no leases tells nothing by which its process could be known, so it is watched:
a process that is replaced does not come back. When reports of one that was already followed by
another appear again, both are alive. One that works under a lease is known by its epoch, and is
watched for the sake of those beside it that know none.
"""

import re
from typing import Final

from pipecd_controlplane.store.alarms import Alarms
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.shared_state import Sighting, Sightings
from pipecd_runtime.logs import logger

log = logger(__name__)

TWO_AGENTS: Final = "two-agents"

WINDOW_SECONDS: Final = 600.0
"""Seconds: an address that comes back after longer was given to a new process."""

PROCESS_START: Final = re.compile(
    rb"^process_start_time_seconds(?:\{[^}\n]*\})? +([0-9.eE+]{1,40})\s*$", re.MULTILINE
)


def parse_process_start(metrics: bytes) -> str:
    """When the process that sent these metrics was started, as it says; empty if it does not."""
    found = PROCESS_START.search(metrics)
    return found[1].decode() if found else ""


class DuplicateAgents:
    """Raises an alarm when agents report in an order that one agent alone cannot make."""

    def __init__(self, alarms: Alarms, sightings: Sightings) -> None:
        self._alarms = alarms
        self._sightings = sightings

    async def note(self, agent: Agent, method: str, started: str = "") -> None:
        """Note a report; raise an alarm when its sender should be gone."""
        if agent.lease_epoch == 0:
            return  # it waits for a lease, and does no work
        # Behind a gateway with several addresses one process may show them in turn.
        under_lease = agent.lease_epoch is not None
        mark = f"epoch {agent.lease_epoch}" if under_lease else started or agent.peer
        since = await self._sightings.record(
            agent.piped_id,
            method,
            Sighting(mark=mark, peer=agent.peer, under_lease=under_lease),
            window_seconds=WINDOW_SECONDS,
        )
        # Among those with a lease the older epoch is refused: that is no alarm.
        alive = (each for each in reversed(since) if not (under_lease and each.under_lease))
        between = next(alive, None)
        if between is not None:
            await self._alarm(agent, between.peer)

    async def _alarm(self, agent: Agent, other: str) -> None:
        where = " and ".join(sorted({agent.peer or "?", other or "?"}))
        sentence = (
            f"two agents report under this piped id at once, from {where}: stop one of them,"
            " or register a piped of its own for it"
        )
        await self._alarms.raise_for(agent.project_id, agent.piped_id, TWO_AGENTS, sentence)
        log.warning("piped.two_agents", piped_id=agent.piped_id, where=where)
