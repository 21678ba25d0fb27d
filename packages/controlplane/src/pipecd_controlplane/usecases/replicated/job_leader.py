# SPDX-License-Identifier: Apache-2.0
"""Chooses the control plane that runs a timed job: the one that holds the job's lock.

The locks belong to one session of PostgreSQL, and are kept as long as it lasts: so a job runs at
its own interval, however many control planes there are, and another one takes over when the
session ends.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.failures import LOST, describe
from pipecd_controlplane.store.postgres.pool import connect
from pipecd_model.errors import StateError
from pipecd_runtime.logs import logger

log = logger(__name__)

ASK_SECONDS: Final = 10.0
LOCK: Final = (
    "SELECT pg_try_advisory_lock("
    "hashtextextended('pipecd job ' || current_schema() || ' ' || $1, 0))"
)


class ReplicatedJobLeader:
    """Implements `JobLeader`."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._held: set[str] = set()
        self._asking = asyncio.Lock()

    @asynccontextmanager
    async def claim(self, job: str) -> AsyncIterator[bool]:
        yield await self._try_claim(job)

    async def close(self) -> None:
        """Gives up all jobs."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*LOST):
                await connection.close(timeout=1)
            connection.terminate()

    async def _try_claim(self, job: str) -> bool:
        async with self._asking:
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    return await self._ask(job)
            except (*LOST, StateError, asyncpg.PostgresError) as error:
                log.warning("job.not_claimed", job=job, error=describe(error))
                self._held.clear()
                await self.close()
                return False

    async def _ask(self, job: str) -> bool:
        if self._connection is None or self._connection.is_closed():
            self._held.clear()
            self._connection = await connect(self._server)
        if job in self._held:
            await self._connection.execute("SELECT 1")  # a session that answers has its locks
            return True
        if await self._connection.fetchval(LOCK, job):
            self._held.add(job)
            return True
        return False
