# SPDX-License-Identifier: Apache-2.0
"""For tests: runs each unit of work twice, as a database that has to retry, and compares.

A unit that keeps state outside itself, or generates its ids inside, has another outcome at its
second run; then the caller gets NotRepeatableError.
"""

import sqlite3
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import StaleReadError, Transaction, Value
from pipecd_controlplane.store.sqlite.unit_runner import UNDO, UnitRunner
from pipecd_controlplane.store.sqlite.views import SqliteTransaction
from pipecd_controlplane.store.statements import Compiled
from pipecd_controlplane.store.units import run_unit


class NotRepeatableError(Exception):
    """A unit of work had a different outcome when it was run again."""


class RecordingTransaction(SqliteTransaction):
    """A transaction that records what was written."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.writes: list[tuple[str, tuple[Value, ...]]] = []

    def _write(self, compiled: Compiled, parameters: dict[str, Value]) -> int:
        self.writes.append((compiled.text, compiled.arguments(parameters)))
        return super()._write(compiled, parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOutcome:
    """Everything that one run of a unit did."""

    result: Any
    changes: list[Change]
    writes: list[tuple[str, tuple[Value, ...]]]
    error: Exception | None = None

    def comparable(self) -> tuple[object, ...]:
        return self.result, self.changes, self.writes, type(self.error), str(self.error)


class RepeatingUnitRunner(UnitRunner):
    """Runs each unit twice. Raises NotRepeatableError when the second run differs."""

    def _attempt(self, work: Callable[[Transaction], Awaitable[Any]]) -> tuple[Any, list[Change]]:
        second = int(time.time())
        first = self._outcome(work)
        self.connection.execute(UNDO)
        again = self._outcome(work)
        # Two runs in different seconds may write different times, and both are right.
        if first.comparable() != again.comparable() and int(time.time()) == second:
            raise NotRepeatableError(f"run again, {work!r} differs:\n{first}\n{again}")
        if again.error is not None:
            raise again.error
        return again.result, again.changes

    def _outcome(self, work: Callable[[Transaction], Awaitable[Any]]) -> UnitOutcome:
        transaction = RecordingTransaction(self.connection, self.statements)
        result: Any = None
        error: Exception | None = None
        try:
            result = run_unit(work(transaction))
            error = transaction.failure
        except StaleReadError:
            self.connection.execute(UNDO)
            raise
        except sqlite3.Error:
            raise  # the whole commit is rolled back
        except Exception as raised:  # noqa: BLE001 - raised again when both runs have it
            error = raised
        return UnitOutcome(
            result=result, changes=transaction.changes, writes=transaction.writes, error=error
        )
