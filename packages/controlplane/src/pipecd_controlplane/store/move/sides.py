# SPDX-License-Identifier: Apache-2.0
"""The contract of a database that rows are moved from or to, whichever driver it has.

While it is open no server uses it, and none can start with it.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from pipecd_controlplane.store.database import Row
from pipecd_controlplane.store.move.tables import Key, MovedTable, TableSize
from pipecd_controlplane.store.move_record import MoveRecord


class MovableDatabase(Protocol):
    """One side of a move. What fails raises StateError, with words for the operator."""

    @property
    def name(self) -> str:
        """What the database is called, without any secret."""

    async def read_record(self) -> MoveRecord | None: ...

    async def write_record(self, record: MoveRecord | None) -> None:
        """Replaces the record; None removes it."""

    async def write_value(self, name: str, value: str) -> None:
        """Replaces a value of the installation, or adds it."""

    def open_snapshot(self) -> AbstractAsyncContextManager[None]:
        """All reads within the block see the rows of one moment."""

    async def measure(self, table: MovedTable) -> TableSize: ...

    async def list_unfit(self, table: MovedTable, *, limit: int) -> list[str]:
        """Returns what other databases could not keep as it is, each in words."""

    def read_batches(self, table: MovedTable, *, after: Key | None) -> AsyncGenerator[list[Row]]:
        """Yields the rows behind a key, in the order of their keys."""

    async def read_range(
        self, table: MovedTable, *, after: Key | None, through: Key | None, limit: int
    ) -> list[Row]:
        """Returns the rows behind one key and up to another, in the order of their keys."""

    async def insert(self, table: MovedTable, rows: list[Row]) -> None:
        """Inserts rows, outside of a snapshot: all are durable when it returns, or none."""


class MoveTarget(MovableDatabase, Protocol):
    """The side that rows are moved to. Nothing is made before `prepare`."""

    async def has_tables(self) -> bool: ...

    async def check(self) -> None:
        """Raises StateError when it cannot be a target: another program's, or without rights.

        It changes nothing.
        """

    async def prepare(self, record: MoveRecord) -> None:
        """Makes the tables that are not there, and the record with them."""

    async def complete(self) -> None:
        """Makes what rows are found by, once they are there."""

    async def read_last_key(self, table: MovedTable) -> Key | None: ...

    async def clear(self) -> None:
        """Removes all tables, of a move that is begun anew."""
