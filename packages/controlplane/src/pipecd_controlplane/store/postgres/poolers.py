# SPDX-License-Identifier: Apache-2.0
"""A pooler before PostgreSQL, such as PgBouncer: refused unless each client has its own session.

Locks of a session, LISTEN and settings belong to a process of PostgreSQL. A pooler that gives a
client another process for each transaction leaves them with whoever gets that process next: two
servers would believe that they hold one lock, and notices would reach nobody.

A pooler is known by the process that it names when a connection begins: it is not the one that
answers. Then several connections are held, and ask in turn which process serves them. With a
session each, those are as many processes, and always the same. A pooler that hands out what was
free last gives one process to all; one that hands out what was free longest gives the connection
that asks twice another one, wherever it has more than one. Behind a balancer may be several
poolers, so there are more connections than those usually are: two at one of them are enough. It is
a probe, and no proof: with more poolers than connections each may have one. Only statements that
change nothing are sent, without our settings, and without prepared statements wherever a server has
plpgsql, so a pooler of any kind can pass them on.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

import asyncpg

from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.failures import LOST
from pipecd_controlplane.store.postgres.pool import CLOSE_SECONDS, connect_plain
from pipecd_model.errors import StateError

TELL_PROCESS: Final = "DO $$ BEGIN RAISE INFO '%', pg_backend_pid(); END $$"
"""The answer is a message: the driver returns no rows of a statement that it does not prepare."""

SELECT_PROCESS: Final = "SELECT pg_backend_pid()"
"""For a server whose plpgsql may not be used, or where something takes such messages away."""

MOST_CONNECTIONS: Final = 6

ROUNDS: Final = 8
"""More than one, for the case that others use the pooler at the same time."""

ASK_SECONDS: Final = 10.0

SPARE_SECONDS: Final = 2.0
"""How long a third connection, and each further one, may wait for its turn.

A pooler of sessions has no more of them than its size says, and others may use the rest.
"""


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
        with suppress(asyncpg.InsufficientPrivilegeError, asyncpg.UndefinedObjectError):
            await self._connection.execute(TELL_PROCESS, timeout=ASK_SECONDS)
        if self._told:
            return int(self._told[-1])
        return int(await self._connection.fetchval(SELECT_PROCESS, timeout=ASK_SECONDS))

    def _note(self, _connection: object, message: object) -> None:
        text = str(getattr(message, "message", ""))
        if text.isdecimal():  # others are notices of the server
            self._told.append(text)


async def refuse_shared_sessions(server: PostgresServer) -> None:
    """Raises StateError when a pooler does not give each connection a session of its own.

    Raises what LOST names when there is no answer.
    """
    async with AsyncExitStack() as held:
        one = await held.enter_async_context(_asking(server))
        if await one.ask() == one.named:
            return
        other = await held.enter_async_context(_asking(server))
        asked = {one: await one.ask(), other: await other.ask()}
        while len(asked) < MOST_CONNECTIONS and not _is_shared(asked):
            try:
                async with asyncio.timeout(SPARE_SECONDS):
                    another = await held.enter_async_context(_asking(server))
                    asked[another] = await another.ask()
            except LOST:
                break  # it gives no more sessions now; those that we hold have to do
        if _is_shared(asked) or await _changes(asked):
            raise _refuse()


def _is_shared(asked: dict[ProcessQuestion, int]) -> bool:
    return len(set(asked.values())) < len(asked)


async def _changes(asked: dict[ProcessQuestion, int]) -> bool:
    """Returns whether a connection is served by another process than before."""
    for _round in range(ROUNDS):
        for question, process in asked.items():
            # Twice: asking in turn alone may go around the processes of a pooler in step.
            if await question.ask() != process or await question.ask() != process:
                return True
    return False


def _refuse() -> StateError:
    return StateError(
        "a pooler between this server and PostgreSQL gives connections no session of their own",
        hint="let it pool sessions (pool_mode = session of PgBouncer), or name PostgreSQL"
        " itself in spec.datastore.config.url",
    )


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
