# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL behind the contract of `store.database`.

A unit of work has a connection and a worker thread of its own. It runs READ COMMITTED; one that
read stale rows is run again behind a lock that such units share, so that of many that change the
same thing each has its turn.

A server that is gone is asked again for a while, by units whose writes are certainly not committed.
When the answer to a COMMIT is lost, the id of the transaction tells what became of it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy
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
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.failures import (
    CONFLICTS,
    LOST,
    describe,
    explain_lost,
    explain_refused,
)
from pipecd_controlplane.store.postgres.pool import open_pool, wait_reachable
from pipecd_controlplane.store.postgres.prepare import prepare_database
from pipecd_controlplane.store.postgres.sole_use import SoleUse
from pipecd_controlplane.store.postgres.views import PostgresTransaction, PostgresView
from pipecd_controlplane.store.statements import Statements
from pipecd_controlplane.store.units import run_unit
from pipecd_model.errors import UnavailableError
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger

log = logger(__name__)

T = TypeVar("T")

PATIENCE_SECONDS: Final = 15.0
"""How long a call waits for a server that is gone: a restart or a failover takes seconds."""

BACKOFF: Final = Backoff(first_seconds=0.05, longest_seconds=2.0, jitter=1)

RERUN_LOCK: Final = 0x50694344_0002
"""The advisory lock of units that are run again. It is taken before any row is locked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRun(Generic[T]):
    """What one run of a unit gave; it counts only when it is committed."""

    result: T
    changes: list[Change]


class LostCommitError(Exception):
    """The connection was lost before the answer to a COMMIT came."""

    def __init__(self, transaction_id: str, attempt: UnitRun[Any]) -> None:
        super().__init__("the answer to a COMMIT was lost")
        self.transaction_id = transaction_id
        self.attempt = attempt


class PostgresDatabase:
    """Implements `Database`. Created by `open_postgres`."""

    def __init__(
        self,
        pool: "asyncpg.Pool[asyncpg.Record]",
        statements: Statements,
        threads: ThreadPoolExecutor,
        sole: SoleUse,
        on_commit: OnCommit,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._threads = threads
        self._sole = sole
        self._on_commit = on_commit
        self._patience_seconds = patience_seconds
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[Any]] = set()

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        compiled = self._statements[statement]

        async def ask() -> Row | None:
            row = await self._pool.fetchrow(compiled.text, *compiled.arguments(parameters))
            return None if row is None else tuple(row)

        return await self._ask(ask)

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        async def ask() -> T:
            async with (
                self._pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                view = PostgresView(connection, self._statements, self._loop)
                return await self._loop.run_in_executor(self._threads, lambda: run_unit(work(view)))

        return await self._finish(self._ask(ask))

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        call = find_audited_call()
        if call is None:
            return await self._write(work)
        return await write_audited(self._write, call, work)

    async def close(self) -> None:
        """Waits for the units that are running."""
        while self._running:
            await asyncio.wait(self._running)

    async def _finish(self, unit: Coroutine[Any, Any, T]) -> T:
        """Runs a unit to its end, also when its caller goes away: its thread cannot be stopped."""
        task = asyncio.ensure_future(unit)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._finish(self._write_current(work))

    async def _write_current(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        for run in range(MAX_RUNS):
            await self._sole.wait_held(seconds=self._patience_seconds)
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
        while True:
            try:
                return await self._run_and_commit(work, is_rerun=is_rerun)
            except LostCommitError as lost:
                log.warning("database.commit_lost", error=describe(lost.__cause__ or lost))
                if await self._ask(lambda lost=lost: self._is_committed(lost.transaction_id)):  # type: ignore[misc] # bound now
                    return lost.attempt

    async def _run_and_commit(
        self, work: Callable[[Transaction], Awaitable[T]], *, is_rerun: bool
    ) -> UnitRun[T]:
        async with self._pool.acquire() as connection:
            outer = connection.transaction(isolation="read_committed")
            await outer.start()
            try:
                if is_rerun:
                    await connection.execute("SELECT pg_advisory_xact_lock($1)", RERUN_LOCK)
                unit = PostgresTransaction(connection, self._statements, self._loop)
                result = await self._loop.run_in_executor(self._threads, _finish, unit, work)
                transaction_id = await _read_transaction_id(connection)
            except BaseException:
                if not connection.is_closed():
                    await outer.rollback()
                raise
            attempt = UnitRun(result=result, changes=unit.changes)
            try:
                await outer.commit()
            except LOST as error:
                if not transaction_id:
                    return attempt  # there was nothing to commit
                raise LostCommitError(transaction_id, attempt) from error
            return attempt

    async def _is_committed(self, transaction_id: str) -> bool:
        """Returns what became of a transaction, once it has ended."""
        attempt = 0
        while True:
            try:
                status = await self._pool.fetchval(
                    "SELECT pg_xact_status($1::text::xid8)", transaction_id
                )
            except asyncpg.InvalidParameterValueError:
                return False  # the server does not know it: it was lost with the old one
            if status != "in progress":
                return bool(status == "committed")
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


async def _read_transaction_id(connection: "PoolConnectionProxy[asyncpg.Record]") -> str:
    """Returns the id of the transaction; empty when it has written nothing."""
    found = await connection.fetchval("SELECT pg_current_xact_id_if_assigned()::text")
    return found or ""


def _finish(unit: PostgresTransaction, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Runs a unit in this thread. Raises what has ended its transaction."""
    result = run_unit(work(unit))
    if unit.failure is not None:
        raise unit.failure
    return result


@asynccontextmanager
async def open_postgres(
    server: PostgresServer, on_commit: OnCommit
) -> AsyncIterator[PostgresDatabase]:
    """Yields the database of a server. Raises StateError when it cannot be used."""
    dialect = PGDialect_asyncpg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call] # SQLAlchemy's
    await wait_reachable(server)
    sole = SoleUse(server)
    async with sole.holding(), open_pool(server) as pool:
        try:
            async with pool.acquire() as connection:
                await prepare_database(connection, dialect)
        except asyncpg.PostgresError as error:
            raise explain_refused(error) from error
        threads = ThreadPoolExecutor(server.connections, thread_name_prefix="pipecd-unit")
        database = PostgresDatabase(pool, Statements(dialect, insert), threads, sole, on_commit)
        try:
            yield database
        finally:
            await database.close()
            threads.shutdown()
