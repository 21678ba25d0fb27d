# SPDX-License-Identifier: Apache-2.0
"""The tables as a move sees them: rows in the order of their primary key, in batches.

Both databases compare texts byte by byte and numbers as numbers, so both have the same order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import Column, Integer, LargeBinary, String, Table

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Row

Key: TypeAlias = tuple[Any, ...]
"""The values of the primary key of a row."""

BATCH_ROWS: Final = 5000
BATCH_BYTES: Final = 4 * 1024 * 1024
"""A batch ends with the row that reaches one of these: it is in memory, and one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """How much a table holds."""

    rows: int
    bytes: int
    """Of its texts and messages."""


class MovedTable:
    """One table: its columns in their order, and the texts that statements are made of."""

    def __init__(self, table: Table) -> None:
        self.name = table.name
        self.columns: tuple[Column[Any], ...] = tuple(table.columns)
        self.names = tuple(each.name for each in self.columns)
        keys = [each.name for each in table.primary_key.columns]
        self._key_places = tuple(self.names.index(each) for each in keys)
        self._sized_places = tuple(
            place for place, each in enumerate(self.columns) if is_text(each) or is_binary(each)
        )
        self.quoted = f'"{self.name}"'
        self.all_columns = quote(self.names)
        self.key_columns = quote(keys)
        self.backwards = ", ".join(f'"{each}" DESC' for each in keys)
        self.sized_columns = tuple(f'"{self.names[place]}"' for place in self._sized_places)

    def key_of(self, row: Row) -> Key:
        return tuple(row[place] for place in self._key_places)

    def measure(self, row: Row) -> int:
        """Returns the bytes of a row, as far as they can be many."""
        return sum(len(row[place]) for place in self._sized_places)

    def describe_key(self, key: Key) -> str:
        """Returns a row as an error names it: `deployment 'd1'`."""
        return f"{self.name} {' '.join(map(repr, key))}"


def select_range(
    table: MovedTable,
    columns: str,
    *,
    after: Key | None,
    through: Key | None,
    mark: Callable[[int], str],
) -> tuple[str, Key]:
    """Returns the statement for the rows between two keys, and its values.

    `mark` writes the place of a value, given its number from 1 on.
    """
    conditions: list[str] = []
    values: list[Any] = []
    for order, key in ((">", after), ("<=", through)):
        if key is not None:
            marks = ", ".join(mark(len(values) + number) for number in range(1, len(key) + 1))
            conditions.append(f"({table.key_columns}) {order} ({marks})")
            values += key
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return (
        f"SELECT {columns} FROM {table.quoted}{where} ORDER BY {table.key_columns}",  # noqa: S608 - ours
        tuple(values),
    )


def quote(names: "tuple[str, ...] | list[str]") -> str:
    """Returns names of columns for a statement; some of ours are words of SQL."""
    return ", ".join(f'"{each}"' for each in names)


def is_text(column: "Column[Any]") -> bool:
    return isinstance(column.type, String)


def is_binary(column: "Column[Any]") -> bool:
    return isinstance(column.type, LargeBinary)


def is_small_number(column: "Column[Any]") -> bool:
    """Returns whether a column has 32 bits where columns have sizes."""
    return type(column.type) is Integer


def list_tables() -> list[MovedTable]:
    """Returns every table of the schema: one that is added there is moved."""
    return [MovedTable(each) for each in schema.metadata.sorted_tables]
