# SPDX-License-Identifier: Apache-2.0
"""Views and transactions for the worker thread of a unit: each statement waits for the event loop.

Their coroutines never suspend. The connection belongs to the event loop.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from sqlalchemy import Executable, Table

from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import DuplicateError, Row, Value
from pipecd_controlplane.store.statements import Compiled, Statements

T = TypeVar("T")


class PostgresView:
    """Reads on one connection."""

    def __init__(
        self,
        connection: PoolConnectionProxy,
        statements: Statements,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._loop = loop

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        compiled = self._statements[statement]
        row = self._wait(self._connection.fetchrow(compiled.text, *compiled.arguments(parameters)))
        return None if row is None else tuple(row)

    async def all(self, statement: Executable, **parameters: Value) -> list[Row]:
        compiled = self._statements[statement]
        rows = self._wait(self._connection.fetch(compiled.text, *compiled.arguments(parameters)))
        return [tuple(row) for row in rows]

    def _wait(self, answer: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result()


class PostgresTransaction(PostgresView):
    """One unit of work."""

    def __init__(
        self,
        connection: PoolConnectionProxy,
        statements: Statements,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(connection, statements, loop)
        self.changes: list[Change] = []
        self.failure: Exception | None = None
        """The error that has ended this transaction: any further statement raises it again."""

    async def run(self, statement: Executable, **parameters: Value) -> int:
        return self._write(self._statements[statement], parameters)

    async def insert_if_absent(self, table: Table, **values: Value) -> bool:
        return self._write(self._statements.insert_if_absent(table), values) == 1

    async def upsert(self, table: Table, replaced: tuple[str, ...], **values: Value) -> None:
        if not self._write(self._statements.upsert(table, replaced), values):
            self._fail(DuplicateError(f"{table.name}: the row is of another project"), None)

    def publish(self, change: Change) -> None:
        self.changes.append(change)

    def _write(self, compiled: Compiled, parameters: dict[str, Value]) -> int:
        return read_count(
            self._wait(self._connection.execute(compiled.text, *compiled.arguments(parameters)))
        )

    def _wait(self, answer: Coroutine[Any, Any, T]) -> T:
        if self.failure is not None:
            answer.close()
            raise self.failure
        try:
            return super()._wait(answer)
        except asyncpg.UniqueViolationError as error:
            self._fail(DuplicateError(str(error)), error)
        except Exception as error:
            # PostgreSQL refuses what follows, and would say nothing of the first error any more.
            self.failure = error
            raise

    def _fail(self, failure: DuplicateError, cause: Exception | None) -> NoReturn:
        self.failure = failure
        raise failure from cause


def read_count(status: str) -> int:
    """Returns how many rows a statement has changed: `UPDATE 1`, `INSERT 0 1`."""
    return int(status.rpartition(" ")[2])
