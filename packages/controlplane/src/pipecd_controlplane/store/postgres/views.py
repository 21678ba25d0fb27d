# SPDX-License-Identifier: Apache-2.0
"""Views and transactions of units of work."""

import types
from collections.abc import Awaitable, Generator
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import asyncpg
from sqlalchemy import Executable, Table

from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import (
    NEEDS_NO_SNAPSHOT,
    DuplicateError,
    Row,
    Value,
)
from pipecd_controlplane.store.postgres.notices import check_length
from pipecd_controlplane.store.postgres.texts import escape_texts, restore_row
from pipecd_controlplane.store.statements import Compiled, Statements

T = TypeVar("T")

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class PostgresView:
    """Reads on one connection."""

    def __init__(self, connection: Connection, statements: Statements) -> None:
        self._connection = connection
        self._statements = statements
        self.is_asking = False
        """Whether it waits for the database."""

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        compiled = self._statements[statement]
        arguments = escape_texts(compiled.arguments(parameters))
        self.check()
        row = await self._wait(self._connection.fetchrow(compiled.text, *arguments))
        return None if row is None else restore_row(row)

    async def all(self, statement: Executable, **parameters: Value) -> list[Row]:
        compiled = self._statements[statement]
        arguments = escape_texts(compiled.arguments(parameters))
        self.check()
        rows = await self._wait(self._connection.fetch(compiled.text, *arguments))
        return [restore_row(row) for row in rows]

    def check(self) -> None:
        """Raises when nothing more can be asked."""

    async def _wait(self, answer: Awaitable[T]) -> T:
        self.is_asking = True
        try:
            return await answer
        finally:
            self.is_asking = False


class SecondStatementError(Exception):
    """A unit has more than one statement, so it needs a transaction to see one moment."""


MOST_KNOWN: Final = 10_000
"""Units that are remembered; then all are forgotten."""


class SingleStatementView(PostgresView):
    """Reads for a unit that has one statement, as most have: without a transaction.

    Which units have more is learnt: `several` holds their first statements.
    """

    def __init__(
        self, connection: Connection, statements: Statements, several: set[tuple[object, int]]
    ) -> None:
        super().__init__(connection, statements)
        self._several = several
        self._first: tuple[object, int] | None = None
        self.unit: object = None
        """The code of the unit."""

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        self._begin(statement)
        return await super().one(statement, **parameters)

    async def all(self, statement: Executable, **parameters: Value) -> list[Row]:
        self._begin(statement)
        return await super().all(statement, **parameters)

    def _begin(self, statement: Executable) -> None:
        """Raises SecondStatementError when it is one, or when one is expected to follow."""
        if statement.get_execution_options().keys() >= NEEDS_NO_SNAPSHOT.keys():
            return
        if self._first is None:
            self._first = (self.unit, id(statement))
            if self._first in self._several:
                raise SecondStatementError
            return
        if len(self._several) >= MOST_KNOWN:
            self._several.clear()
        self._several.add(self._first)
        raise SecondStatementError


class PostgresTransaction(PostgresView):
    """One unit of work."""

    def __init__(self, connection: Connection, statements: Statements) -> None:
        super().__init__(connection, statements)
        self.changes: list[Change] = []
        self.failure: Exception | None = None
        """The error that has ended this transaction: any further statement raises it again."""

    async def run(self, statement: Executable, **parameters: Value) -> int:
        return await self._write(self._statements[statement], parameters)

    async def insert_if_absent(self, table: Table, **values: Value) -> bool:
        return await self._write(self._statements.insert_if_absent(table), values) == 1

    async def upsert(self, table: Table, replaced: tuple[str, ...], **values: Value) -> None:
        if not await self._write(self._statements.upsert(table, replaced), values):
            self._fail(DuplicateError(f"{table.name}: the row is of another project"), None)

    def publish(self, change: Change) -> None:
        check_length(change)
        self.changes.append(change)

    async def _write(self, compiled: Compiled, parameters: dict[str, Value]) -> int:
        arguments = escape_texts(compiled.arguments(parameters))
        self.check()
        return read_count(await self._wait(self._connection.execute(compiled.text, *arguments)))

    def check(self) -> None:
        """Raises the error that has ended this transaction."""
        if self.failure is not None:
            raise self.failure

    async def _wait(self, answer: Awaitable[T]) -> T:
        try:
            return await super()._wait(answer)
        except asyncpg.UniqueViolationError as error:
            self._fail(DuplicateError(str(error)), error)
        except Exception as error:
            # PostgreSQL refuses what follows, and would say nothing of the first error any more.
            self.failure = error
            raise

    def _fail(self, failure: DuplicateError, cause: Exception | None) -> NoReturn:
        self.failure = failure
        raise failure from cause


@types.coroutine
def run_on_view(unit: Awaitable[T], view: PostgresView) -> Generator[Any, Any, T]:
    """Runs a unit to its end. Raises RuntimeError when it waits for anything but its view."""
    steps: Any = unit.__await__()
    error: BaseException | None = None
    while True:
        try:
            asked = steps.send(None) if error is None else steps.throw(error)
        except StopIteration as done:
            result: T = done.value
            return result
        if not view.is_asking:
            steps.close()
            raise RuntimeError("a unit of work awaited something other than its view")
        error = None
        try:
            yield asked
        except BaseException as raised:  # noqa: BLE001 - the unit decides, a cancellation included
            error = raised


def read_count(status: str) -> int:
    """Returns how many rows a statement has changed: `UPDATE 1`, `INSERT 0 1`."""
    return int(status.rpartition(" ")[2])
