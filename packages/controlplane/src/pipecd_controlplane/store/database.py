# SPDX-License-Identifier: Apache-2.0
"""The contract of a database: what every driver promises, and what a unit of work must keep to.

A unit of work is an `async def` over its view or transaction that awaits nothing else. The driver
runs it to its end in a worker thread, never on the event loop, so a unit may parse what it reads.
The coroutines of a view never suspend there: a driver whose connection is asynchronous hands each
statement to its event loop and blocks the worker until the rows are there.

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
"""How often a unit that finds its rows changed is run before the caller hears of it."""


class DuplicateError(Exception):
    """A row with this key is there already. It ends the unit: nothing after it would be kept."""


class StaleReadError(Exception):
    """A row is not as this unit has read it: the driver runs the whole unit again."""


class ContentionError(UnavailableError):
    """Others changed the same rows at each run of a unit."""

    def __init__(self) -> None:
        super().__init__(
            f"others changed the same thing at each of {MAX_RUNS} attempts", hint="try again"
        )


class View(Protocol):
    """The rows as they are, to read from."""

    async def one(self, statement: Executable, **parameters: Value) -> Row | None: ...

    async def all(self, statement: Executable, **parameters: Value) -> list[Row]: ...


class Transaction(View, Protocol):
    """A view that can also be changed; all of its writes are kept, or none."""

    async def run(self, statement: Executable, **parameters: Value) -> int:
        """Write; returns how many rows were touched. Raises DuplicateError."""

    async def insert_if_absent(self, table: Table, **values: Value) -> bool:
        """Add a row of all columns; returns False when its key, or another unique one, is taken."""

    async def upsert(self, table: Table, replaced: tuple[str, ...], **values: Value) -> None:
        """Add a row of all columns, or replace some columns of the one with its primary key.

        Raises DuplicateError when that one is of another project.
        """

    def publish(self, change: Change) -> None:
        """Publish a change, if and when this transaction is committed."""


class Database(Protocol):
    """A place to keep rows. Statements are declared once, at module level, and compiled once."""

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        """Read one row by its primary key."""

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        """Run `work` in a worker thread, over one state that does not change meanwhile."""

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run `work` in a worker thread, again when it raises StaleReadError, and commit.

        When this returns, it is durable. Raises ContentionError after MAX_RUNS runs.
        """
