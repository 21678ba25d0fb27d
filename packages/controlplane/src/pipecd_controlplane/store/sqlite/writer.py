# SPDX-License-Identifier: Apache-2.0
"""The one thread that writes: many units of work share a commit.

A commit costs a sync of the disk whatever is in it, so everything that waits when one begins goes
into it, each unit behind a savepoint of its own: one that fails takes nobody with it.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, cast

from sqlalchemy import Executable

from pipecd_controlplane.store.changes import Change, OnCommit
from pipecd_controlplane.store.database import DuplicateError, Row, Transaction, Value
from pipecd_controlplane.store.statements import Statements
from pipecd_model.errors import UnavailableError
from pipecd_runtime.logs import logger

log = logger(__name__)

T = TypeVar("T")

GROUP: Final = 64
"""Units of work in one commit at most; more would make the first one wait for the last."""


class SqliteView:
    """Reads on one connection. The methods are coroutines that never wait."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements) -> None:
        self._connection = connection
        self._statements = statements

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        return cast("Row | None", self._execute(statement, parameters).fetchone())

    async def all(self, statement: Executable, **parameters: Value) -> list[Row]:
        return self._execute(statement, parameters).fetchall()

    def _execute(self, statement: Executable, parameters: dict[str, Value]) -> sqlite3.Cursor:
        compiled = self._statements[statement]
        return self._connection.execute(compiled.text, compiled.arguments(parameters))


class SqliteTransaction(SqliteView):
    """One unit of work's part of a commit."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements) -> None:
        super().__init__(connection, statements)
        self.changes: list[Change] = []

    async def run(self, statement: Executable, **parameters: Value) -> int:
        try:
            return self._execute(statement, parameters).rowcount
        except sqlite3.IntegrityError as error:
            raise DuplicateError(str(error)) from error

    def changed(self, change: Change) -> None:
        self.changes.append(change)


@dataclass(slots=True)
class Unit:
    """Work that waits for the writer, then its outcome."""

    work: Callable[[Transaction], Awaitable[Any]]
    future: "asyncio.Future[Any]"
    result: Any = None
    error: BaseException | None = None
    changes: list[Change] = field(default_factory=list)


class Writer:
    """Takes units of work from the event loop and answers them there, in order."""

    def __init__(
        self, connection: sqlite3.Connection, statements: Statements, on_commit: OnCommit
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._on_commit = on_commit
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Unit | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="pipecd-writer", daemon=True)
        self._thread.start()

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if self._closed:
            raise UnavailableError("the database is closed")
        unit = Unit(work=work, future=self._loop.create_future())
        self._queue.put(unit)
        return cast("T", await unit.future)

    async def close(self) -> None:
        """Write what was asked for so far, then end the thread."""
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while group := self._next_group():
            try:
                self._commit(group)
            except sqlite3.Error as error:
                self._give_up(group, error)
            self._loop.call_soon_threadsafe(self._answer, group)

    def _next_group(self) -> list[Unit]:
        """Wait for a unit and take what else is there; empty when the writer is closed."""
        first = self._queue.get()
        if first is None:
            return []
        group = [first]
        while len(group) < GROUP:
            try:
                unit = self._queue.get_nowait()
            except Empty:
                break
            if unit is None:
                self._queue.put(None)  # after this group
                break
            group.append(unit)
        return group

    def _commit(self, group: list[Unit]) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for unit in group:
            execute("SAVEPOINT unit")
            transaction = SqliteTransaction(self._connection, self._statements)
            try:
                unit.result = run_through(unit.work(transaction))
                unit.changes = transaction.changes
            except sqlite3.Error:
                raise  # not the unit's fault; nothing that follows would fare better
            except Exception as error:  # noqa: BLE001 - it belongs to the caller who waits for it
                unit.error = error
                execute("ROLLBACK TO unit")
            execute("RELEASE unit")
        execute("COMMIT")

    def _give_up(self, group: list[Unit], error: sqlite3.Error) -> None:
        """The disk is full or broken: nothing of the group was kept."""
        log.error("database.write_failed", error=str(error))
        # Some errors have rolled back already; where this fails too, the next group will say so.
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")
        for unit in group:
            unit.error = UnavailableError(
                f"cannot write to the database: {error}",
                hint="is the disk full? it goes on by itself when there is space",
            )
            unit.changes = []

    def _answer(self, group: list[Unit]) -> None:
        if changes := [change for unit in group for change in unit.changes]:
            self._on_commit(changes)
        for unit in group:
            if unit.future.cancelled():
                continue
            if unit.error is not None:
                unit.future.set_exception(unit.error)
            else:
                unit.future.set_result(unit.result)


def run_through(work: Awaitable[T]) -> T:
    """Run a unit of work to its end at once. It has nothing to wait for: its view never does."""
    coroutine = cast("Coroutine[Any, Any, T]", work)
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    coroutine.close()
    raise RuntimeError("a unit of work awaited something other than its view")
