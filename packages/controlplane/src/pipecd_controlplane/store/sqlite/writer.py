# SPDX-License-Identifier: Apache-2.0
"""The one thread that writes: group commit of many units of work.

A commit costs a sync of the disk whatever is in it, so everything that waits when one begins goes
into it, each unit behind a savepoint of its own: one that fails does not roll back the others.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, cast

from pipecd_controlplane.store.changes import Change, OnCommit
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.sqlite.unit_runner import UnitRunner
from pipecd_model.errors import UnavailableError
from pipecd_runtime.logs import logger

log = logger(__name__)

T = TypeVar("T")

GROUP: Final = 64
"""Units of work in one commit at most; more would make the first one wait for the last."""


@dataclass(slots=True)
class Unit:
    """Work that waits for the writer, then its outcome."""

    work: Callable[[Transaction], Awaitable[Any]]
    future: "asyncio.Future[Any]"
    result: Any = None
    error: BaseException | None = None
    changes: list[Change] = field(default_factory=list)


class Writer:
    """Runs units of work in its thread, in order; their results are set on the event loop."""

    def __init__(self, runner: UnitRunner, on_commit: OnCommit) -> None:
        self._runner = runner
        self._connection = runner.connection
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
        """Writes what is queued, then ends the thread."""
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
        """Waits for a unit; returns it with all others queued. Empty when the writer is closed."""
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
            try:
                unit.result, unit.changes = self._runner.run(unit.work)
            except sqlite3.Error:
                raise  # not the unit's fault; nothing that follows would fare better
            except Exception as error:  # noqa: BLE001 - it belongs to the caller who waits for it
                unit.error = error
        execute("COMMIT")

    def _give_up(self, group: list[Unit], error: sqlite3.Error) -> None:
        """Rolls back the group and fails each of its units: the disk is full or broken."""
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
