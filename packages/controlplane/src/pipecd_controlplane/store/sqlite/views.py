# SPDX-License-Identifier: Apache-2.0
"""Views and transactions over a connection of SQLite. Their coroutines never suspend."""

import sqlite3
from typing import NoReturn, cast

from sqlalchemy import Executable, Table

from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import DuplicateError, Row, Value
from pipecd_controlplane.store.statements import Compiled, Statements


class SqliteView:
    """Reads on one connection."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements) -> None:
        self._connection = connection
        self._statements = statements

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        return cast("Row | None", self._execute(self._statements[statement], parameters).fetchone())

    async def all(self, statement: Executable, **parameters: Value) -> list[Row]:
        return self._execute(self._statements[statement], parameters).fetchall()

    def _execute(self, compiled: Compiled, parameters: dict[str, Value]) -> sqlite3.Cursor:
        return self._connection.execute(compiled.text, compiled.arguments(parameters))


class SqliteTransaction(SqliteView):
    """One unit of work's part of a commit."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements) -> None:
        super().__init__(connection, statements)
        self.changes: list[Change] = []
        self.failure: DuplicateError | None = None
        """The error that has ended this transaction: any further statement raises it again."""

    async def run(self, statement: Executable, **parameters: Value) -> int:
        return self._write(self._statements[statement], parameters)

    async def insert_if_absent(self, table: Table, **values: Value) -> bool:
        return self._write(self._statements.insert_if_absent(table), values) == 1

    async def upsert(self, table: Table, replaced: tuple[str, ...], **values: Value) -> None:
        if not self._write(self._statements.upsert(table, replaced), values):
            self._fail(DuplicateError(f"{table.name}: the row is of another project"))

    def publish(self, change: Change) -> None:
        self.changes.append(change)

    def _execute(self, compiled: Compiled, parameters: dict[str, Value]) -> sqlite3.Cursor:
        # As in databases that refuse further statements in a transaction after an error.
        if self.failure is not None:
            raise self.failure
        return super()._execute(compiled, parameters)

    def _write(self, compiled: Compiled, parameters: dict[str, Value]) -> int:
        try:
            return self._execute(compiled, parameters).rowcount
        except sqlite3.IntegrityError as error:
            self._fail(DuplicateError(str(error)), error)

    def _fail(self, failure: DuplicateError, cause: sqlite3.Error | None = None) -> NoReturn:
        self.failure = failure
        raise failure from cause
