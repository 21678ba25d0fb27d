# SPDX-License-Identifier: Apache-2.0
"""The signs of life of this control plane, and what it does about others that give none.

Each sign also goes round through the session that hears notices: a connection on which nothing
arrives any more is noticed, and the time it took is the lag.
"""

import asyncio
import random
import time
from typing import Final

from pipecd_controlplane.store.postgres import commit_records
from pipecd_controlplane.store.postgres.database import PostgresDatabase
from pipecd_controlplane.store.postgres.shared_tables import SharedStatements
from pipecd_controlplane.usecases.replicated.channels import ALIVE_SECONDS, ChannelKind, Channels
from pipecd_controlplane.usecases.replicated.echo import Echo
from pipecd_controlplane.usecases.replicated.notifier import Notifier
from pipecd_controlplane.usecases.replicated.presence import describe_presence
from pipecd_controlplane.usecases.shared_state import ChangeBus
from pipecd_model.errors import PipecdError
from pipecd_runtime.logs import logger

log = logger(__name__)

HEARTBEAT_SECONDS: Final = 5.0
ECHO_SECONDS: Final = 10.0
"""How long a notice to oneself may take before the session counts as deaf."""
CLEANUP_SECONDS: Final = 60.0

LIVE: Final = "UPDATE pipecd_replica SET seen_at = now() WHERE id = $1 RETURNING id"
REGISTER: Final = (
    "INSERT INTO pipecd_replica (id, seen_at, public_key) VALUES ($1, now(), $2)"
    " ON CONFLICT (id) DO UPDATE SET seen_at = now()"
)
LEAVE: Final = (
    "WITH closed AS (DELETE FROM pipecd_channel WHERE replica_id = $1 RETURNING id)"
    " DELETE FROM pipecd_replica WHERE id = $1"
)
DEAD: Final = (
    "DELETE FROM pipecd_replica WHERE seen_at < now() - make_interval(secs => $1)"
    " RETURNING id, seen_at"
)
ORPHANS: Final = (
    "DELETE FROM pipecd_channel WHERE replica_id NOT IN (SELECT id FROM pipecd_replica)"
    " AND opened_at < now() - make_interval(secs => $1) RETURNING kind, project_id, piped_id"
)
DISCONNECT: Final = (
    "INSERT INTO pipecd_disconnection (piped_id, ended_at)"
    " SELECT each, now() FROM unnest($1::text[]) AS each"
    " ON CONFLICT (piped_id) DO UPDATE SET ended_at = excluded.ended_at"
)
FORGET: Final = (
    "DELETE FROM pipecd_message WHERE sent_at < now() - interval '2 minutes'",
    "DELETE FROM pipecd_question WHERE asked_at < now() - interval '1 hour'",
    "DELETE FROM pipecd_sighting WHERE seen_at < now() - interval '1 day'",
    "DELETE FROM pipecd_attempt WHERE full_at < now()",
    "DELETE FROM pipecd_familiar_network WHERE used_at < now() - interval '90 days'",
    "DELETE FROM pipecd_login_request WHERE forget_at < now()",
    "DELETE FROM pipecd_disconnection WHERE ended_at < now() - interval '1 day'",
    commit_records.FORGET,
)


class Heartbeat:
    """Keeps this control plane among those that are known to run; `run` must run."""

    def __init__(
        self,
        database: PostgresDatabase,
        notifier: Notifier,
        channels: Channels,
        bus: ChangeBus,
        echo: Echo,
        public_key: bytes,
    ) -> None:
        self._database = database
        self._tables = database.shared_tables
        self._notifier = notifier
        self._channels = channels
        self._bus = bus
        self._echo = echo
        self._public_key = public_key
        self._cleaned_at = time.monotonic()
        self.lag_seconds = 0.0
        """How long the last notice to itself took."""

    async def register(self) -> None:
        """Makes this control plane known, with all channels that are open here."""
        await self._tables.run(REGISTER, self._notifier.replica_id, self._public_key)
        await self._channels.restore()

    async def leave(self) -> None:
        """Says that this control plane ends."""
        await self._tables.run(LEAVE, self._notifier.replica_id)

    async def run(self) -> None:
        """Gives signs of life until it is cancelled."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS * random.uniform(0.8, 1))  # noqa: S311 - spreads load
            try:
                await self.beat()
            except PipecdError as error:
                log.warning("replica.heartbeat_failed", error=str(error))

    async def beat(self) -> None:
        """Gives a sign of life, and cleans up after control planes that give none."""
        if await self._tables.row(LIVE, self._notifier.replica_id) is None:
            # PostgreSQL was restarted, or this process had stood still for too long.
            await self.register()
            self._publish_presence()
        await self._channels.remove_closed()
        await self.bury_dead()
        await self._measure_lag()
        if time.monotonic() - self._cleaned_at > CLEANUP_SECONDS:
            self._cleaned_at = time.monotonic()
            for statement in FORGET:
                await self._tables.run(statement)

    async def bury_dead(self) -> None:
        """Ends the channels of control planes that give no sign of life any more."""

        async def work(statements: SharedStatements) -> set[tuple[str, str]]:
            for replica_id, seen_at in await statements.rows(DEAD, ALIVE_SECONDS):
                log.warning("replica.lost", replica=replica_id, seen_at=str(seen_at))
            rows = await statements.rows(ORPHANS, ALIVE_SECONDS)
            watches = {
                (project_id, piped_id)
                for kind, project_id, piped_id in rows
                if kind == ChannelKind.WATCH.value
            }
            await statements.run(DISCONNECT, sorted({piped_id for _, piped_id in watches}))
            return watches

        lost = await self._tables.run_together(work)
        if lost:
            self._bus.publish([describe_presence(*each) for each in sorted(lost)])

    def _publish_presence(self) -> None:
        """Makes people read again who have been told that the agents here are not connected."""
        agents = self._channels.list_agents(ChannelKind.WATCH)
        self._bus.publish([describe_presence(each.project_id, each.piped_id) for each in agents])

    async def _measure_lag(self) -> None:
        began = time.monotonic()
        try:
            await self._echo.wait_heard(seconds=ECHO_SECONDS)
        except TimeoutError:
            log.warning("replica.deaf", seconds=ECHO_SECONDS)
            self._database.session.drop()
        self.lag_seconds = time.monotonic() - began
