# SPDX-License-Identifier: Apache-2.0
"""What the nouns need of a database, whichever it is.

A unit of work is an `async def` over its view or transaction and awaits nothing else: an embedded
database runs it to its end in its own thread, a remote one on the event loop.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias, TypeVar

from sqlalchemy import Executable

from pipecd_controlplane.store.changes import Change

T = TypeVar("T")

Value: TypeAlias = str | int | bytes
Row: TypeAlias = tuple[Any, ...]


class DuplicateError(Exception):
    """A row with this key is there already."""


class View(Protocol):
    """One consistent state of everything, to read from."""

    async def one(self, statement: Executable, **parameters: Value) -> Row | None: ...

    async def all(self, statement: Executable, **parameters: Value) -> list[Row]: ...


class Transaction(View, Protocol):
    """A view that can also be changed; all of its writes are kept, or none."""

    async def run(self, statement: Executable, **parameters: Value) -> int:
        """Write; answers how many rows were touched. Raises DuplicateError."""

    def changed(self, change: Change) -> None:
        """Tell of a change, if and when this transaction is committed."""


class Database(Protocol):
    """A place to keep rows. Statements are declared once, at module level, and compiled once."""

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        """Read one row by its primary key."""

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        """Read lists, off the event loop."""

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Write; when this returns, it is on disk. `work` may be run more than once."""
