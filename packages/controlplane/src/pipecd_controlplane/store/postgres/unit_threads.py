# SPDX-License-Identifier: Apache-2.0
"""Threads for units of work, each with an event loop and a pool of connections of its own.

A unit parses what it reads, so it must not run on the event loop of the server. In its thread it
awaits the driver directly: however many statements it has, it changes threads twice.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.pool import ConnectionPool
from pipecd_model.errors import UnavailableError

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class UnitThread:
    """A thread with an event loop and connections of its own, in which units of work run."""

    loop: asyncio.AbstractEventLoop
    pool: ConnectionPool
    running: int = 0
    """Units that run or wait for a connection."""


class UnitThreads:
    """Gives each unit to the thread that has least to do."""

    def __init__(self, threads: list[UnitThread]) -> None:
        self._threads = threads

    async def run(self, unit: Callable[[ConnectionPool], Awaitable[T]]) -> T:
        """Runs a unit in a thread, to its end. Raises UnavailableError after the threads' end."""
        thread = min(self._threads, key=lambda each: each.running)
        if thread.loop.is_closed():
            raise UnavailableError("the database is closed")

        async def run() -> T:
            return await unit(thread.pool)

        thread.running += 1
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), thread.loop))
        finally:
            thread.running -= 1

    @property
    def pools(self) -> list[ConnectionPool]:
        return [each.pool for each in self._threads]


@asynccontextmanager
async def open_unit_threads(server: PostgresServer) -> AsyncIterator[UnitThreads]:
    """Runs the threads while the block runs, as many as the configuration gives connections for."""
    async with AsyncExitStack() as opened:
        yield UnitThreads(
            [
                await opened.enter_async_context(_running_thread(server, connections))
                for connections in server.split_unit_connections()
            ]
        )


@asynccontextmanager
async def _running_thread(server: PostgresServer, connections: int) -> AsyncIterator[UnitThread]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="pipecd-units", daemon=True)
    thread.start()

    pool = ConnectionPool(server, connections)
    try:
        yield UnitThread(loop=loop, pool=pool)
    finally:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(pool.aclose(), loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()
