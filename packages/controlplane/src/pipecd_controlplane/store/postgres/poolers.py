# SPDX-License-Identifier: Apache-2.0
"""A pooler before PostgreSQL, such as PgBouncer: refused unless each client has its own session.

Locks of a session, LISTEN and settings belong to a process of PostgreSQL. A pooler that gives a
client another process for each transaction leaves them with whoever gets that process next: two
servers would believe that they hold one lock, and notices would reach nobody.

A pooler is known by the process that it names when a connection begins: it is not the one that
answers. Then two connections ask in turn which process serves them. With a session each, those are
two processes, and always the same. A pooler that hands out what was free last gives one process to
both; one that hands out what was free longest gives the connection that asks twice another one,
wherever it has more than one. Only statements that change nothing are sent, without our settings
and without prepared statements, so a pooler of any kind can pass them on.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import asyncpg

from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.failures import LOST
from pipecd_controlplane.store.postgres.pool import CLOSE_SECONDS, connect_plain
from pipecd_model.errors import StateError

TELL_PROCESS: Final = "DO $$ BEGIN RAISE INFO '%', pg_backend_pid(); END $$"
"""The answer is a message: the driver returns no rows of a statement that it does not prepare."""

ROUNDS: Final = 8
"""More than one, for the case that others use the pooler at the same time."""

ASK_SECONDS: Final = 10.0


class ProcessQuestion:
    """Asks which process of PostgreSQL serves a connection now."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection
        self._told: list[str] = []
        connection.add_log_listener(self._note)

    @property
    def named(self) -> int:
        """Returns the process that was named when the connection began."""
        return self._connection.get_server_pid()

    async def ask(self) -> int:
        self._told.clear()
        await self._connection.execute(TELL_PROCESS, timeout=ASK_SECONDS)
        return int(self._told[-1])

    def _note(self, _connection: object, message: object) -> None:
        self._told.append(str(getattr(message, "message", "")))


async def refuse_shared_sessions(server: PostgresServer) -> None:
    """Raises StateError when a pooler does not give each connection a session of its own.

    Raises what LOST names when there is no answer.
    """
    async with _asking(server) as one:
        if await one.ask() == one.named:
            return
        async with _asking(server) as other:
            is_shared = await _has_shared_process(one, other)
    if is_shared:
        raise StateError(
            "a pooler between this server and PostgreSQL gives connections no session of their own",
            hint="let it pool sessions (pool_mode = session of PgBouncer), or name PostgreSQL"
            " itself in spec.datastore.config.url",
        )


async def _has_shared_process(one: ProcessQuestion, other: ProcessQuestion) -> bool:
    first = await one.ask()
    second = await other.ask()
    for _round in range(ROUNDS):
        if first == second or await one.ask() != first or await one.ask() != first:
            return True
        if await other.ask() != second:
            return True
    return False


@asynccontextmanager
async def _asking(server: PostgresServer) -> AsyncIterator[ProcessQuestion]:
    connection = await connect_plain(server)
    try:
        yield ProcessQuestion(connection)
    finally:
        with suppress(*LOST):
            async with asyncio.timeout(CLOSE_SECONDS):
                await connection.close()
        connection.terminate()
