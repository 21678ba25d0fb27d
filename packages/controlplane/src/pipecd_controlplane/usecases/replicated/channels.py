# SPDX-License-Identifier: Apache-2.0
"""Which agents have which channels open, to which control plane.

Each control plane knows its own in memory and writes them down for the others. What it could not
write, or what the database has forgotten, is written again with its next sign of life, see
`heartbeat`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pipecd_controlplane.store.postgres.shared_tables import SharedTables
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model.errors import UnavailableError
from pipecd_model.ids import new_id
from pipecd_runtime.logs import logger

log = logger(__name__)

ALIVE_SECONDS: Final = 20.0
"""How long after its last sign of life a control plane counts as running."""
CLOSE_SECONDS: Final = 2.0
"""How long the end of a channel waits for the database."""

ADD: Final = (
    "INSERT INTO pipecd_channel (id, replica_id, kind, project_id, piped_id, opened_at)"
    " VALUES ($1, $2, $3, $4, $5, now()) ON CONFLICT (id) DO NOTHING"
)
REMOVE: Final = (
    "WITH closed AS (DELETE FROM pipecd_channel WHERE id = ANY($1::text[])"
    " RETURNING kind, piped_id)"
    " INSERT INTO pipecd_disconnection (piped_id, ended_at)"
    " SELECT DISTINCT piped_id, now() FROM closed WHERE kind = 'watch'"
    " ON CONFLICT (piped_id) DO UPDATE SET ended_at = excluded.ended_at"
)
FIND: Final = (
    "SELECT channel.piped_id, channel.replica_id FROM pipecd_channel AS channel"
    " JOIN pipecd_replica AS replica ON replica.id = channel.replica_id"
    " WHERE channel.kind = $1 AND channel.piped_id = ANY($2::text[])"
    " AND replica.seen_at > now() - make_interval(secs => $3)"
    " ORDER BY channel.opened_at DESC, channel.id"
)
ENDED: Final = (
    "SELECT piped_id, extract(epoch FROM now() - ended_at)::float8 FROM pipecd_disconnection"
    " WHERE piped_id = ANY($1::text[])"
)


class ChannelKind(Enum):
    """What a channel is for."""

    WATCH = "watch"
    QUESTIONS = "questions"
    GIT_HINTS = "git-hints"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Channel:
    kind: ChannelKind
    agent: Agent


class Channels:
    """The channels of all control planes."""

    def __init__(self, tables: SharedTables, replica_id: str) -> None:
        self._tables = tables
        self._replica_id = replica_id
        self._open: dict[str, _Channel] = {}
        self._closed: set[str] = set()
        """Those whose end is not written yet."""

    @asynccontextmanager
    async def opened(self, kind: ChannelKind, agent: Agent) -> AsyncIterator[None]:
        """Keeps a channel open while the block runs. Raises UnavailableError."""
        channel_id = new_id()
        self._open[channel_id] = _Channel(kind=kind, agent=agent)
        try:
            await self._add(channel_id)
            yield
        finally:
            del self._open[channel_id]
            self._closed.add(channel_id)
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self.remove_closed()
            except (TimeoutError, UnavailableError) as error:
                log.warning("replica.channel_not_closed", error=str(error))

    def list_agents(self, kind: ChannelKind) -> list[Agent]:
        """Returns the agents that have such a channel to this control plane."""
        return list(dict.fromkeys(each.agent for each in self._open.values() if each.kind is kind))

    async def restore(self) -> None:
        """Writes all channels again that are open here."""
        for channel_id in list(self._open):
            await self._add(channel_id)

    async def remove_closed(self) -> None:
        """Writes the ends of channels that are not written yet. Raises UnavailableError."""
        if closed := list(self._closed):
            await self._tables.run(REMOVE, closed)
            self._closed.difference_update(closed)

    async def find_replicas(
        self, kind: ChannelKind, piped_ids: Iterable[str]
    ) -> dict[str, list[str]]:
        """Returns, by piped, the control planes that have such a channel; the newest first."""
        wanted = list(piped_ids)
        found: dict[str, list[str]] = {}
        for piped_id, replica_id in await self._tables.rows(
            FIND, kind.value, wanted, ALIVE_SECONDS
        ):
            found.setdefault(piped_id, []).append(replica_id)
        for piped_id in wanted:
            # What is open here is known, whatever the database has forgotten.
            if self._is_open_here(kind, piped_id) and self._replica_id not in found.get(
                piped_id, []
            ):
                found.setdefault(piped_id, []).insert(0, self._replica_id)
        return found

    async def find_seconds_since_end(self, piped_ids: Iterable[str]) -> dict[str, float]:
        """Returns how many seconds ago the last watch of each piped ended, where that is known."""
        rows = await self._tables.rows(ENDED, list(piped_ids))
        return {piped_id: max(0.0, seconds) for piped_id, seconds in rows}

    def _is_open_here(self, kind: ChannelKind, piped_id: str) -> bool:
        return any(
            each.kind is kind and each.agent.piped_id == piped_id for each in self._open.values()
        )

    async def _add(self, channel_id: str) -> None:
        channel = self._open.get(channel_id)
        if channel is None:
            return
        await self._tables.run(
            ADD,
            channel_id,
            self._replica_id,
            channel.kind.value,
            channel.agent.project_id,
            channel.agent.piped_id,
        )
