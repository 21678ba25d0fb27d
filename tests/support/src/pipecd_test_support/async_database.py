# SPDX-License-Identifier: Apache-2.0
"""A driver whose connection is asynchronous, as those of servers are: the contract allows it.

Each statement is awaited on the event loop, units run in worker threads all the same. What it is
asked to keep is in a SQLite file, through connections that answer from a thread of their own.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Executable, Table
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.dialects.sqlite.base import SQLiteDialect

from pipecd_controlplane.store.auditing import find_audited_call, write_audited
from pipecd_controlplane.store.changes import Change, OnCommit
from pipecd_controlplane.store.database import (
    MAX_RUNS,
    ContentionError,
    DuplicateError,
    Row,
    StaleReadError,
    Transaction,
    Value,
    View,
)
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE, connect, open_file
from pipecd_controlplane.store.statements import Compiled, Statements
from pipecd_controlplane.store.units import run_unit

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement gave."""

    rows: list[Row]
    touched: int


class AsyncConnection:
    """A connection that only the event loop may use."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="server")

    async def execute(self, text: str, arguments: tuple[Value, ...] = ()) -> Answer:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._execute, text, arguments)

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        self._connection.close()

    def _execute(self, text: str, arguments: tuple[Value, ...]) -> Answer:
        cursor = self._connection.execute(text, arguments)
        return Answer(cursor.fetchall(), cursor.rowcount)


class BridgedTransaction:
    """A transaction for a worker thread: each statement waits for the event loop."""

    def __init__(
        self,
        connection: AsyncConnection,
        statements: Statements,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._loop = loop
        self.failure: DuplicateError | None = None
        self.changes: list[Change] = []

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        rows = self._execute(self._statements[statement], parameters).rows
        return rows[0] if rows else None

    async def all(self, statement: Executable, **parameters: Value) -> list[Row]:
        return self._execute(self._statements[statement], parameters).rows

    async def run(self, statement: Executable, **parameters: Value) -> int:
        return self._execute(self._statements[statement], parameters).touched

    async def insert_if_absent(self, table: Table, **values: Value) -> bool:
        return self._execute(self._statements.insert_if_absent(table), values).touched == 1

    async def upsert(self, table: Table, replaced: tuple[str, ...], **values: Value) -> None:
        if not self._execute(self._statements.upsert(table, replaced), values).touched:
            self.failure = DuplicateError(table.name)
            raise self.failure

    def publish(self, change: Change) -> None:
        self.changes.append(change)

    def finish(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run a unit in this thread. Raises what has ended the transaction."""
        result = run_unit(work(self))
        if self.failure is not None:
            raise self.failure
        return result

    def _execute(self, compiled: Compiled, parameters: dict[str, Value]) -> Answer:
        if self.failure is not None:
            raise self.failure
        answer = asyncio.run_coroutine_threadsafe(
            self._connection.execute(compiled.text, compiled.arguments(parameters)), self._loop
        )
        try:
            return answer.result()
        except sqlite3.IntegrityError as error:
            self.failure = DuplicateError(str(error))
            raise self.failure from error


class AsyncDatabase:
    """See `Database`. One connection writes, another one reads."""

    def __init__(
        self, writing: AsyncConnection, reading: AsyncConnection, on_commit: OnCommit
    ) -> None:
        self._writing, self._reading = writing, reading
        self._on_commit = on_commit
        self._statements = Statements(SQLiteDialect(paramstyle="qmark"), insert)
        self._write_lock, self._read_lock = asyncio.Lock(), asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        compiled = self._statements[statement]
        async with self._read_lock:
            answer = await self._reading.execute(compiled.text, compiled.arguments(parameters))
        return answer.rows[0] if answer.rows else None

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        async with self._read_lock:
            await self._reading.execute("BEGIN")
            try:
                view = BridgedTransaction(self._reading, self._statements, self._loop)
                return await asyncio.to_thread(lambda: run_unit(work(view)))
            finally:
                await self._reading.execute("COMMIT")

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        call = find_audited_call()
        if call is None:
            return await self._write_shielded(work)
        return await write_audited(self._write_shielded, call, work)

    async def _write_shielded(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        # Whoever goes away must not leave a transaction open behind it.
        return await asyncio.shield(asyncio.ensure_future(self._write(work)))

    async def _write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        for _ in range(MAX_RUNS):
            async with self._write_lock:
                await self._writing.execute("BEGIN IMMEDIATE")
                transaction = BridgedTransaction(self._writing, self._statements, self._loop)
                try:
                    result = await asyncio.to_thread(transaction.finish, work)
                except StaleReadError:
                    await self._writing.execute("ROLLBACK")
                    continue
                except BaseException:
                    await self._writing.execute("ROLLBACK")
                    raise
                await self._writing.execute("COMMIT")
                if transaction.changes:
                    self._on_commit(transaction.changes)
                return result
        raise ContentionError


@asynccontextmanager
async def open_async_database(folder: Path, on_commit: OnCommit) -> AsyncIterator[AsyncDatabase]:
    """The folder must exist."""
    path = folder / DATABASE_FILE
    writing = AsyncConnection(open_file(path, SQLiteDialect(paramstyle="qmark")))
    reading = AsyncConnection(connect(path, read_only=True))
    try:
        yield AsyncDatabase(writing, reading, on_commit)
    finally:
        await writing.close()
        await reading.close()
