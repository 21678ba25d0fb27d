# SPDX-License-Identifier: Apache-2.0
"""Detects two agents that work under one piped id where no lease can exclude one of them.

An agent without lease support sends no id of its process, so the order of the reports decides: a
process that was replaced does not report again. When an agent reports again after another one has
reported, both are alive. An agent with a lease is identified by its epoch; it is tracked because
an agent without lease support may run beside it.
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
    """Returns the start time of the process from its metrics; empty when they do not have it."""
    found = PROCESS_START.search(metrics)
    return found[1].decode() if found else ""


class DuplicateAgents:
    """Raises an alarm when reports arrive in an order that a single agent cannot produce."""

    def __init__(self, alarms: Alarms, sightings: Sightings) -> None:
        self._alarms = alarms
        self._sightings = sightings

    async def note(self, agent: Agent, method: str, started: str = "") -> None:
        """Records a report, and raises an alarm when another agent has reported in between."""
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
