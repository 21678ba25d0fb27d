# SPDX-License-Identifier: Apache-2.0
"""Which pipeds are connected, to any control plane."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.replicated.channels import ChannelKind, Channels
from pipecd_controlplane.usecases.shared_state import ChangeBus


def describe_presence(project_id: str, piped_id: str) -> Change:
    """Returns the change for people, not for the piped itself, which knows it (no `piped_id`)."""
    return Change(kind=ChangeKind.PIPED, id=piped_id, project_id=project_id)


class ReplicatedPresence:
    """Implements `Presence`."""

    def __init__(self, channels: Channels, bus: ChangeBus) -> None:
        self._channels = channels
        self._bus = bus

    @asynccontextmanager
    async def connection(self, agent: Agent) -> AsyncIterator[None]:
        change = describe_presence(agent.project_id, agent.piped_id)
        try:
            async with self._channels.opened(ChannelKind.WATCH, agent):
                self._bus.publish([change])
                yield
        finally:
            self._bus.publish([change])

    async def find_connected(self, piped_ids: Iterable[str]) -> set[str]:
        return set(await self._channels.find_replicas(ChannelKind.WATCH, piped_ids))

    async def find_seconds_since_connected(self, piped_ids: Iterable[str]) -> dict[str, float]:
        wanted = list(piped_ids)
        connected = await self.find_connected(wanted)
        ended = await self._channels.find_seconds_since_end(wanted)
        return {each: seconds for each, seconds in ended.items() if each not in connected}
