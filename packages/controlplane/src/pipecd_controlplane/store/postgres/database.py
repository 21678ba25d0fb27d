# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL behind the contract of `store.database`.

A unit of work has a connection of its own, and runs in a thread, see `unit_threads`. It runs READ
COMMITTED; one that read stale rows is run again behind a lock that such units share, so that of
many that change the same thing each has its turn.

A server that is gone is asked again for a while, by units whose writes are certainly not committed.
When the answer to a COMMIT is lost, a row that is written with each transaction tells what became
of it, see `commit_records`.

The changes of a unit are sent to the other control planes in its transaction, see `notices`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import asyncpg
from sqlalchemy import Executable
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from pipecd_controlplane.store.auditing import find_audited_call, write_audited
from pipecd_controlplane.store.changes import Change, OnCommit
from pipecd_controlplane.store.database import (
    MAX_RUNS,
    ContentionError,
    Row,
    StaleReadError,
    Transaction,
    Value,
    View,
)
from pipecd_controlplane.store.postgres import commit_records
from pipecd_controlplane.store.postgres.commit_records import NumberedConnection
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.failures import (
    CONFLICTS,
    LOST,
    describe,
    explain_at_start,
    explain_lost,
    explain_refused,
)
from pipecd_controlplane.store.postgres.notices import encode_changes
from pipecd_controlplane.store.postgres.pool import (
    CLOSE_SECONDS,
    ConnectionPool,
    connect,
    wait_answer,
)
from pipecd_controlplane.store.postgres.prepare import prepare_database
from pipecd_controlplane.store.postgres.session import LOCK as SESSION_LOCK
from pipecd_controlplane.store.postgres.session import ServerSession, refuse_while_alone
from pipecd_controlplane.store.postgres.shared_tables import SharedTables
from pipecd_controlplane.store.postgres.texts import escape_texts, restore_row
from pipecd_controlplane.store.postgres.unit_threads import UnitThreads, open_unit_threads
from pipecd_controlplane.store.postgres.views import (
    Connection,
    PostgresTransaction,
    PostgresView,
    SecondStatementError,
    SingleStatementView,
    run_on_view,
)
from pipecd_controlplane.store.statements import Statements
from pipecd_model.errors import UnavailableError
from pipecd_model.ids import new_id
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger

log = logger(__name__)

T = TypeVar("T")

PATIENCE_SECONDS: Final = 15.0
"""How long a call waits for a server that is gone: a restart or a failover takes seconds."""

BACKOFF: Final = Backoff(first_seconds=0.05, longest_seconds=2.0, jitter=1)

RERUN_LOCK: Final = 0x50694344_0002
"""The advisory lock of units that are run again. It is taken before any row is locked."""


FINISH: Final = (
    f"WITH written AS ({commit_records.WRITE})"  # noqa: S608 - ours
    " SELECT pg_current_xact_id_if_assigned()::text AS transaction_id,"
    f" pg_try_advisory_xact_lock_shared({SESSION_LOCK}) AS is_shared,"
    " (SELECT count(pg_notify($3, each)) FROM unnest($4::text[]) AS each)"
)
"""Writes the number of a transaction, sends its notices, and returns its id if it has written.

The lock is that of the session: whoever uses the database alone now, because the session was lost
in the meantime, gets no write of a unit that had begun before.
"""

FIND_STATUS: Final = (
    "SELECT CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE pg_xact_status($1::text::xid8) END"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRun(Generic[T]):
    """What one run of a unit gave; it counts only when it is committed."""

    result: T
    changes: list[Change]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """How much of the pools is used now."""

    open_connections: int
    idle_connections: int
    most_connections: int
    units: int
    """Units of work that run or wait for a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCommit:
    """A transaction that is committed, or was when an answer came."""

    connection_id: str
    number: int
    """Of all transactions of the connection; see `commit_records`."""
    transaction_id: str
    """PostgreSQL's."""


class LostCommitError(Exception):
    """The connection was lost before the answer to a COMMIT came."""

    def __init__(self, commit: SentCommit, attempt: UnitRun[Any]) -> None:
        super().__init__("the answer to a COMMIT was lost")
        self.commit = commit
        self.attempt = attempt


class PostgresDatabase:
    """Implements `Database`. Created by `open_postgres`."""

    def __init__(
        self,
        pool: ConnectionPool,
        statements: Statements,
        threads: UnitThreads,
        session: ServerSession,
        on_commit: OnCommit,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._threads = threads
        self.session = session
        self.replica_id = new_id()
        """Tells this process from the others that use the database."""
        self.shared_tables = SharedTables(pool, self._ask)
        self._on_commit = on_commit
        self._several: set[tuple[object, int]] = set()
        """See `SingleStatementView`."""
        self._patience_seconds = patience_seconds
        self._running: set[asyncio.Task[Any]] = set()

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        compiled = self._statements[statement]

        async def ask() -> Row | None:
            arguments = escape_texts(compiled.arguments(parameters))
            async with self._pool.acquired() as connection:
                row = await connection.fetchrow(compiled.text, *arguments)
            return None if row is None else restore_row(row)

        return await self._ask(ask)

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        async def run(pool: ConnectionPool) -> T:
            async with pool.acquired() as connection:
                single = SingleStatementView(connection, self._statements, self._several)
                single.unit = getattr(work, "__code__", None)
                with suppress(SecondStatementError):
                    return await run_on_view(work(single), single)
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    view = PostgresView(connection, self._statements)
                    return await run_on_view(work(view), view)

        return await self._finish(self._ask(lambda: self._threads.run(run)))

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        call = find_audited_call()
        if call is None:
            return await self._write(work)
        return await write_audited(self._write, call, work)

    def measure_pool(self) -> PoolSize:
        pools = [self._pool, *self._threads.pools]
        return PoolSize(
            open_connections=sum(pool.used + pool.idle for pool in pools),
            idle_connections=sum(pool.idle for pool in pools),
            most_connections=sum(pool.most for pool in pools),
            units=len(self._running),
        )

    async def close(self) -> None:
        """Waits for the units that are running."""
        while self._running:
            await asyncio.wait(self._running)

    async def _finish(self, unit: Coroutine[Any, Any, T]) -> T:
        """Runs a unit to its end, also when its caller goes away: it may be committed already."""
        task = asyncio.ensure_future(unit)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._finish(self._write_current(work))

    async def _write_current(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        for run in range(MAX_RUNS):
            await self.session.wait_held(seconds=self._patience_seconds)
            try:
                attempt = await self._ask(lambda run=run: self._run(work, is_rerun=run > 0))  # type: ignore[misc] # bound now
            except (StaleReadError, *CONFLICTS):
                continue
            if attempt.changes:
                self._on_commit(attempt.changes)
            return attempt.result
        raise ContentionError

    async def _run(
        self, work: Callable[[Transaction], Awaitable[T]], *, is_rerun: bool
    ) -> UnitRun[T]:
        """Runs a unit once and commits it; what was certainly not committed raises LOST."""

        async def run(pool: ConnectionPool) -> UnitRun[T]:
            async with pool.acquired() as connection:
                return await self._run_and_commit(connection, work, is_rerun=is_rerun)

        while True:
            try:
                return await self._threads.run(run)
            except LostCommitError as lost:
                log.warning("database.commit_lost", error=describe(lost.__cause__ or lost))
                if await self._ask(lambda lost=lost: self._is_committed(lost.commit)):  # type: ignore[misc] # bound now
                    return lost.attempt

    async def _run_and_commit(
        self,
        connection: NumberedConnection,
        work: Callable[[Transaction], Awaitable[T]],
        *,
        is_rerun: bool,
    ) -> UnitRun[T]:
        outer = connection.transaction(isolation="read_committed")
        await outer.start()
        try:
            if is_rerun:
                await connection.execute("SELECT pg_advisory_xact_lock($1)", RERUN_LOCK)
            unit = PostgresTransaction(connection, self._statements)
            result = await run_on_view(work(unit), unit)
            unit.check()
            commit = await self._write_last(connection, unit.changes)
        except BaseException:
            if not connection.is_closed():
                await outer.rollback()
            raise
        attempt = UnitRun(result=result, changes=unit.changes)
        try:
            await outer.commit()
        except LOST as error:
            if not commit.transaction_id:
                return attempt  # there was nothing to commit
            raise LostCommitError(commit, attempt) from error
        return attempt

    async def _write_last(
        self, connection: NumberedConnection, changes: list[Change]
    ) -> SentCommit:
        """Writes what is sent with the COMMIT: the number of the transaction, and its changes.

        Raises UnavailableError while somebody uses the database alone.
        """
        number = connection.take_number()
        row = await connection.fetchrow(
            FINISH,
            connection.connection_id,
            number,
            self.session.channel,
            encode_changes(self.replica_id, changes),
        )
        if row is None or not row["is_shared"]:
            raise refuse_while_alone()
        return SentCommit(
            connection_id=connection.connection_id,
            number=number,
            transaction_id=row["transaction_id"] or "",
        )

    async def _is_committed(self, commit: SentCommit) -> bool:
        """Returns what became of a transaction, once it has ended."""
        attempt = 0
        while True:
            async with self._pool.acquired() as connection:
                if not await _is_in_progress(connection, commit.transaction_id):
                    number = await connection.fetchval(commit_records.READ, commit.connection_id)
                    return bool(number == commit.number)
            attempt += 1
            await asyncio.sleep(BACKOFF.pause_seconds_after(attempt))

    async def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks until there is an answer. Raises UnavailableError after some time without one."""
        deadline = time.monotonic() + self._patience_seconds
        attempt = 0
        while True:
            try:
                return await ask()
            except CONFLICTS:
                raise
            except LOST as error:
                attempt += 1
                pause = BACKOFF.pause_seconds_after(attempt)
                if time.monotonic() + pause > deadline:
                    log.error("database.lost", error=describe(error))  # noqa: TRY400 - the reason is enough
                    raise explain_lost(error) from error
                log.warning("database.retry", error=describe(error), pause_seconds=pause)
                await asyncio.sleep(pause)
            except asyncpg.PostgresError as error:
                explained = explain_refused(error)
                if isinstance(explained, UnavailableError):
                    log.error("database.failed", error=describe(error))  # noqa: TRY400 - the reason is enough
                raise explained from error


async def _is_in_progress(connection: Connection, transaction_id: str) -> bool:
    """Returns whether a transaction still runs. Raises ConnectionError at a standby."""
    try:
        status = await connection.fetchval(FIND_STATUS, transaction_id)
    except asyncpg.InvalidParameterValueError:
        return False  # the server does not know it: it was lost with the one before
    if status == "standby":
        raise ConnectionError("it is a standby, which may not know the last COMMIT")
    return bool(status == "in progress")


@asynccontextmanager
async def open_postgres(
    server: PostgresServer, on_commit: OnCommit
) -> AsyncIterator[PostgresDatabase]:
    """Yields the database of a server. Raises StateError when it cannot be used."""
    dialect = PGDialect_asyncpg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call] # SQLAlchemy's
    session = ServerSession(server)
    pool = ConnectionPool(server, server.key_connections)

    async def prepare() -> None:
        # An index of a large table takes longer than any statement of a call may.
        connection = await connect(server, is_patient=True)
        try:
            await prepare_database(connection, dialect)
        finally:
            with suppress(*LOST):
                await connection.close(timeout=CLOSE_SECONDS)

    async with AsyncExitStack() as opened:
        try:
            await opened.enter_async_context(session.open())
            await opened.enter_async_context(aclosing(pool))
            await wait_answer(server, prepare)
        except (asyncpg.PostgresError, *LOST) as error:
            raise explain_at_start(error) from error
        threads = await opened.enter_async_context(open_unit_threads(server))
        database = PostgresDatabase(pool, Statements(dialect, insert), threads, session, on_commit)
        try:
            yield database
        finally:
            await database.close()
