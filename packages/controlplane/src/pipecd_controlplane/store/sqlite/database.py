# SPDX-License-Identifier: Apache-2.0
"""SQLite as the embedded database: one folder, one process, one writer.

A primary-key read takes ten microseconds and runs on the event loop; handing it to a thread would
cost twenty times that. Lists run in threads, writes in the writer's.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeVar

from sqlalchemy import Executable
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.dialects.sqlite.base import SQLiteDialect

from pipecd_controlplane.store.auditing import find_audited_call, write_audited
from pipecd_controlplane.store.changes import OnCommit
from pipecd_controlplane.store.data_folder import owned
from pipecd_controlplane.store.database import Row, Transaction, Value, View
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE, connect, open_file
from pipecd_controlplane.store.sqlite.repeating import RepeatingUnitRunner
from pipecd_controlplane.store.sqlite.unit_runner import UnitRunner
from pipecd_controlplane.store.sqlite.views import SqliteView
from pipecd_controlplane.store.sqlite.writer import Writer
from pipecd_controlplane.store.statements import Statements
from pipecd_controlplane.store.units import run_unit
from pipecd_model.errors import UnavailableError
from pipecd_runtime.logs import logger

log = logger(__name__)

T = TypeVar("T")

READERS: Final = 2
"""Lists that are read at the same time; one long one must not hold up all others."""


class SqliteDatabase:
    """Implements `Database`. Created by `open_sqlite`."""

    def __init__(self, path: Path, statements: Statements, writer: Writer) -> None:
        self._statements = statements
        self._writer = writer
        self._inline = connect(path, read_only=True)
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="pipecd-reader")
        for _ in range(READERS):
            self._idle.put(connect(path, read_only=True))

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        try:
            return await SqliteView(self._inline, self._statements).one(statement, **parameters)
        except sqlite3.Error as error:
            raise _unreadable(error) from error

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, self._read, work)
        except sqlite3.Error as error:
            raise _unreadable(error) from error

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        call = find_audited_call()
        if call is None:
            return await self._writer.write(work)
        return await write_audited(self._writer.write, call, work)

    def _read(self, work: Callable[[View], Awaitable[T]]) -> T:
        connection = self._idle.get_nowait()  # as many as there are threads
        try:
            connection.execute("BEGIN")
            try:
                return run_unit(work(SqliteView(connection, self._statements)))
            finally:
                connection.execute("COMMIT")
        finally:
            self._idle.put(connection)

    async def close(self) -> None:
        await asyncio.to_thread(self._readers.shutdown)
        self._inline.close()
        for _ in range(READERS):
            self._idle.get_nowait().close()


def _unreadable(error: sqlite3.Error) -> UnavailableError:
    """Logs a failed read, and returns the UnavailableError for it.

    The file was good when it was opened, so callers retry and the operator finds the log event.
    """
    log.error("database.read_failed", error=str(error))
    return UnavailableError(f"cannot read the database: {error}")


@asynccontextmanager
async def open_sqlite(
    folder: Path, on_commit: OnCommit, *, repeat_units: bool = False
) -> AsyncIterator[SqliteDatabase]:
    """Yields the database in `folder`. Raises StateError when it cannot be used."""
    dialect = SQLiteDialect(paramstyle="qmark")
    statements = Statements(dialect, insert)
    with owned(folder):
        path = folder / DATABASE_FILE
        # `closing` and not the connection's own block, which only ends a transaction.
        with contextlib.closing(open_file(path, dialect)) as connection:
            runner_type = RepeatingUnitRunner if repeat_units else UnitRunner
            writer = Writer(runner_type(connection, statements), on_commit)
            database = SqliteDatabase(path, statements, writer)
            try:
                yield database
            finally:
                # The writer first: calls that wait for it get their result.
                await writer.close()
                await database.close()
