# SPDX-License-Identifier: Apache-2.0
"""The session of one control plane at its database: it says that it is in use, and it listens.

Its lock is shared by all control planes that use the database. Whoever needs the database for
itself takes the same lock alone, see `claim_alone`. A lock ends with the process that holds it.

A session that is lost is opened again. Until then nothing is written here, and what others have
published meanwhile is not known: its subscribers are told that they may have missed something.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

import asyncpg

from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.failures import LOST, describe
from pipecd_controlplane.store.postgres.pool import connect, wait_answer
from pipecd_controlplane.store.postgres.poolers import refuse_shared_sessions
from pipecd_model.errors import PipecdError, StateError, UnavailableError
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger

log = logger(__name__)

LOCK: Final = 0x50694344_0003
BACKOFF: Final = Backoff(first_seconds=0.1, longest_seconds=2.0, jitter=0.5)
ASK_SECONDS: Final = 10.0
CLAIM_SECONDS: Final = 5.0
"""How long the session of a process that was killed may take to end."""
CHANNEL: Final = "SELECT 'pipecd_' || current_schema()::regnamespace::oid"
"""A channel for each schema: two installations in one database do not hear each other."""


GOES_ON: Final = "it goes on by itself when the database is back"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSubscriber:
    """What is called, on the event loop, with what the session hears."""

    hear: Callable[[str], None]
    """Called with each payload of the channel."""
    resync: Callable[[], None]
    """Called when the session was opened again: payloads may have been missed."""


class ServerSession:
    """The session of this process."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._held = asyncio.Event()
        self._is_refused = False
        self._subscribers: list[SessionSubscriber] = []
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self.channel = ""
        """The channel of NOTIFY."""
        self.gaps = 0
        """How often it was lost."""

    @property
    def is_held(self) -> bool:
        return self._held.is_set()

    @contextmanager
    def subscription(self, subscriber: SessionSubscriber) -> Iterator[None]:
        """Calls the subscriber while the block runs."""
        self._subscribers.append(subscriber)
        try:
            yield
        finally:
            self._subscribers.remove(subscriber)

    async def wait_held(self, *, seconds: float) -> None:
        """Waits until writing is allowed. Raises UnavailableError."""
        if self._held.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if self._is_refused else seconds):
                await self._held.wait()
                return
        if self._is_refused:
            raise refuse_while_alone()
        raise UnavailableError("the database does not answer", hint=GOES_ON)

    def drop(self) -> None:
        """Gives up a connection that no longer hears anything, so that another one is opened."""
        if self._connection is not None:
            self._connection.terminate()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Holds the session while the block runs. Raises StateError when another one is alone."""
        connection = await self._acquire_first()
        task = asyncio.create_task(self._keep(connection))
        task.add_done_callback(_tell_bug)
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
            connection = await wait_answer(self._server, self._connect_and_begin)
            if connection is not None:
                return connection
            attempt += 1
            if time.monotonic() > deadline:
                raise StateError(
                    "somebody uses this database alone: `pipecd move`, or an older pipecd",
                    hint="wait for its end, or name another database in spec.datastore.config.url",
                )
            log.warning("database.in_use", attempt=attempt)
            await asyncio.sleep(BACKOFF.pause_seconds_after(attempt))

    async def _connect_and_begin(self) -> "asyncpg.Connection[asyncpg.Record] | None":
        """Returns a connection with the lock; None when somebody has it alone.

        Raises StateError for a pooler that would give the lock to others.
        """
        await refuse_shared_sessions(self._server)
        connection = await connect(self._server)
        has_begun = False
        try:
            has_begun = await self._begin(connection)
        finally:
            if not has_begun:
                await _close(connection)
        return connection if has_begun else None

    async def _begin(self, connection: "asyncpg.Connection[asyncpg.Record]") -> bool:
        """Takes the lock and listens. Returns False when somebody has the lock alone."""
        async with asyncio.timeout(ASK_SECONDS):
            if not await connection.fetchval("SELECT pg_try_advisory_lock_shared($1)", LOCK):
                return False
            self.channel = str(await connection.fetchval(CHANNEL))
            await connection.add_listener(self.channel, self._hear)
        self._connection = connection
        self._is_refused = False
        self._held.set()
        return True

    def _resync(self) -> None:
        for subscriber in self._subscribers:
            subscriber.resync()

    def _hear(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        for subscriber in self._subscribers:
            subscriber.hear(str(payload))

    async def _keep(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        """Opens the session again whenever it is lost."""
        while True:
            try:
                await _wait_lost(connection)
            finally:
                await _close(connection)
            self._held.clear()
            self.gaps += 1
            log.warning("database.session_lost")
            connection = await self._acquire_again()
            self._resync()

    async def _acquire_again(self) -> "asyncpg.Connection[asyncpg.Record]":
        attempt = 0
        while True:
            try:
                connection = await self._connect_and_begin()
            except (*LOST, PipecdError, asyncpg.PostgresError) as error:
                log.warning("database.waiting", error=describe(error))
            else:
                if connection is not None:
                    return connection
                if not self._is_refused:
                    log.error("database.taken_over")
                self._is_refused = True
            attempt += 1
            await asyncio.sleep(BACKOFF.pause_seconds_after(attempt))


def refuse_while_alone() -> UnavailableError:
    """Returns the error for a caller whose change came while somebody uses the database alone."""
    return UnavailableError("somebody uses the database alone now", hint=GOES_ON)


async def claim_alone(
    connection: "asyncpg.Connection[asyncpg.Record]", *, seconds: float = CLAIM_SECONDS
) -> None:
    """Keeps every control plane away from the database while the connection is open.

    Raises StateError when one uses it.
    """
    deadline = time.monotonic() + seconds
    attempt = 0
    while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
        attempt += 1
        pause = BACKOFF.pause_seconds_after(attempt)
        if time.monotonic() + pause > deadline:
            raise StateError(
                "a pipecd uses this database", hint="stop every server that is configured for it"
            )
        await asyncio.sleep(pause)


def _tell_bug(task: asyncio.Task[None]) -> None:
    """Logs why the session is not kept any more: without it nothing is written, as health says."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("database.session_bug", exc_info=error)


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
