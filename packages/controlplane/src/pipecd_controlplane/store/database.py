# SPDX-License-Identifier: Apache-2.0
"""The contract of a database: what every driver promises, and what a unit of work must keep to.

A unit of work is an `async def` over its view or transaction that awaits nothing else. The driver
runs it to its end in a worker thread, never on the event loop, so a unit may parse what it reads.
A driver whose connection is asynchronous has an event loop in that thread, on which units of other
callers may run between two statements.

Transactions need be no more than READ COMMITTED: between two statements of a unit another one may
have committed. A unit that writes what it made of something it read therefore compares and sets:
its UPDATE names in the WHERE what was read, and it raises StaleReadError when no row is touched.
The driver then rolls back and runs the whole unit again, so a unit keeps nothing outside itself
from one run to the next.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from sqlalchemy import Executable, Table

from pipecd_controlplane.store.changes import Change
from pipecd_model.errors import UnavailableError

T = TypeVar("T")

Value: TypeAlias = str | int | bytes
Row: TypeAlias = tuple[Any, ...]

MAX_RUNS: Final = 10
"""How often a unit whose rows have changed is run before the caller gets an error."""


NEEDS_NO_SNAPSHOT: Final = {"pipecd_needs_no_snapshot": True}
"""The execution option of a statement whose answer is a hint: it may be of an earlier moment."""


class DuplicateError(Exception):
    """A row with this key exists already. It ends the unit: none of its writes are committed."""


class StaleReadError(Exception):
    """A row is not as this unit has read it: the driver runs the whole unit again."""


class ContentionError(UnavailableError):
    """Other units changed the same rows at each run of a unit."""

    def __init__(self) -> None:
        super().__init__(
            f"others changed the same thing at each of {MAX_RUNS} attempts", hint="try again"
        )


class View(Protocol):
    """Read access to the rows."""

    async def one(self, statement: Executable, **parameters: Value) -> Row | None: ...

    async def all(self, statement: Executable, **parameters: Value) -> list[Row]: ...


class Transaction(View, Protocol):
    """A view that can also be written to; all of its writes are committed, or none."""

    async def run(self, statement: Executable, **parameters: Value) -> int:
        """Runs a writing statement; returns how many rows it changed. Raises DuplicateError."""

    async def insert_if_absent(self, table: Table, **values: Value) -> bool:
        """Inserts a row of all columns. Returns False when a unique key of it is taken."""

    async def upsert(self, table: Table, replaced: tuple[str, ...], **values: Value) -> None:
        """Inserts a row of all columns, or replaces some columns of the one with its primary key.

        Raises DuplicateError when the existing row is of another project.
        """

    def publish(self, change: Change) -> None:
        """Publishes a change once this transaction is committed."""


class Database(Protocol):
    """A place to keep rows. Statements are declared once, at module level, and compiled once."""

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        """Returns one row by its primary key; None when there is none."""

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        """Runs `work` in a worker thread, over a consistent snapshot."""

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Runs `work` in a worker thread, retries it on StaleReadError, and commits.

        When this returns, the writes are durable. Raises ContentionError after MAX_RUNS runs.
        Within an audited call what is written is committed with its record, see `auditing`.
        """
