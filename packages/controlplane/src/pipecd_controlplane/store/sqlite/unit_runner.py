# SPDX-License-Identifier: Apache-2.0
"""Runs one unit of work within a commit, behind a savepoint of its own."""

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import StaleReadError, Transaction
from pipecd_controlplane.store.sqlite.views import SqliteTransaction
from pipecd_controlplane.store.statements import Statements
from pipecd_controlplane.store.units import run_unit, run_until_current

UNDO: Final = "ROLLBACK TO unit"


class UnitRunner:
    """Runs units on the writer's connection."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements) -> None:
        self.connection = connection
        self.statements = statements

    def run(self, work: Callable[[Transaction], Awaitable[Any]]) -> tuple[Any, list[Change]]:
        """Runs a unit; returns its result and its changes. Rolls it back when it raises."""
        execute = self.connection.execute
        execute("SAVEPOINT unit")
        try:
            outcome = run_until_current(lambda: self._attempt(work))
        except sqlite3.Error:
            raise  # the whole commit is rolled back
        except Exception:
            execute(UNDO)
            execute("RELEASE unit")
            raise
        execute("RELEASE unit")
        return outcome

    def _attempt(self, work: Callable[[Transaction], Awaitable[Any]]) -> tuple[Any, list[Change]]:
        """Runs a unit once. Rolls it back when it raises StaleReadError."""
        transaction = SqliteTransaction(self.connection, self.statements)
        try:
            result = run_unit(work(transaction))
        except StaleReadError:
            self.connection.execute(UNDO)
            raise
        if transaction.failure is not None:
            raise transaction.failure
        return result, transaction.changes
