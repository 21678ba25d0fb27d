# SPDX-License-Identifier: Apache-2.0
"""Lets one control plane at a time use a database: what it knows in its memory no other one knows.

The lock is one of a session of PostgreSQL, so it ends with the process that holds it. A session
that is lost takes the lock with it: until it is held again nothing is written, and when another
control plane has it meanwhile, nothing ever is.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.failures import LOST, describe
from pipecd_controlplane.store.postgres.pool import connect
from pipecd_model.errors import StateError, UnavailableError
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger

log = logger(__name__)

LOCK: Final = 0x50694344_0003
BACKOFF: Final = Backoff(first_seconds=0.1, longest_seconds=2.0, jitter=0.5)


class SoleUse:
    """Whether this process is the one that uses the database."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._held = asyncio.Event()
        self._is_taken = False

    async def wait_held(self, *, seconds: float) -> None:
        """Waits until writing is allowed. Raises UnavailableError."""
        if self._held.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if self._is_taken else seconds):
                await self._held.wait()
                return
        raise UnavailableError(
            "another pipecd uses the database now"
            if self._is_taken
            else "the database does not answer",
            hint="stop one of them" if self._is_taken else "it goes on by itself when it is back",
        )

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Holds the lock while the block runs. Raises StateError when another pipecd has it."""
        connection = await self._acquire_first()
        task = asyncio.create_task(self._keep(connection))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _acquire_first(self) -> "asyncpg.Connection[asyncpg.Record]":
        # The session of one that was killed may live a little longer than its process.
        deadline = time.monotonic() + self._server.takeover_seconds
        attempt = 0
        while True:
            connection = await connect(self._server)
            if await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
                self._held.set()
                return connection
            await connection.close()
            attempt += 1
            if time.monotonic() > deadline:
                raise StateError(
                    "another pipecd uses this database",
                    hint="stop that one, or name another database in spec.datastore.config.url",
                )
            log.warning("database.in_use", attempt=attempt)
            await asyncio.sleep(BACKOFF.pause_seconds_after(attempt))

    async def _keep(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        """Takes the lock again whenever its session is lost."""
        while True:
            try:
                await _wait_lost(connection)
            finally:
                await _close(connection)
            self._held.clear()
            log.warning("database.session_lost")
            connection = await self._acquire_again()

    async def _take_lock(self, connection: "asyncpg.Connection[asyncpg.Record]") -> bool:
        """Tries to take the lock again; a connection that does not get it is closed."""
        try:
            is_taken_by_us = await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK)
        except LOST as error:
            log.warning("database.waiting", error=describe(error))
            await _close(connection)
            return False
        if is_taken_by_us:
            self._is_taken = False
            self._held.set()
            return True
        await _close(connection)
        if not self._is_taken:
            log.error("database.taken_over")
        self._is_taken = True
        return False

    async def _acquire_again(self) -> "asyncpg.Connection[asyncpg.Record]":
        attempt = 0
        while True:
            try:
                connection = await connect(self._server)
            except (*LOST, StateError) as error:
                log.warning("database.waiting", error=describe(error))
            else:
                if await self._take_lock(connection):
                    return connection
            attempt += 1
            await asyncio.sleep(BACKOFF.pause_seconds_after(attempt))


async def _close(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    with contextlib.suppress(*LOST):
        await connection.close(timeout=1)
    connection.terminate()


async def _wait_lost(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    lost = asyncio.Event()

    def note(_connection: object) -> None:
        lost.set()

    connection.add_termination_listener(note)
    if connection.is_closed():
        lost.set()
    await lost.wait()
