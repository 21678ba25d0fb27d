# SPDX-License-Identifier: Apache-2.0
"""The SQLite file of a data folder as a side of a move."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Column
from sqlalchemy.dialects.sqlite.base import SQLiteDialect

from pipecd_controlplane.store.data_folder import owned
from pipecd_controlplane.store.database import Row
from pipecd_controlplane.store.move.tables import (
    BATCH_BYTES,
    BATCH_ROWS,
    Key,
    MovedTable,
    TableSize,
    is_binary,
    is_small_number,
    is_text,
    select_range,
)
from pipecd_controlplane.store.move_record import (
    CLEAR_MOVE,
    CREATE_MOVE_TABLE,
    MOVE_COLUMNS,
    MOVE_TABLE,
    MoveRecord,
)
from pipecd_controlplane.store.postgres.texts import MARK
from pipecd_controlplane.store.sqlite.file import (
    COMPANIONS,
    DATABASE_FILE,
    explain_file,
    open_current_file,
    open_file,
    read_move_record,
)
from pipecd_model.errors import StateError

T = TypeVar("T")

SMALLEST: Final = -(2**31)
LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfitValue:
    """A way in which a value of a column can be one that PostgreSQL cannot keep."""

    words: str
    condition: str
    """As SQL."""


class MovableSqlite:
    """Implements `MovableDatabase` over a connection; nobody else has the file open."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @property
    def name(self) -> str:
        return f"the file {str(self.path)!r}"

    async def read_record(self) -> MoveRecord | None:
        return await self._run(lambda: read_move_record(self._connection))

    async def write_record(self, record: MoveRecord | None) -> None:
        def write() -> None:
            with _committing(self._connection):
                self._connection.execute(CREATE_MOVE_TABLE)
                self._connection.execute(CLEAR_MOVE)
                if record is not None:
                    values = [getattr(record, each) for each in MOVE_COLUMNS]
                    self._connection.execute(
                        f"INSERT INTO {MOVE_TABLE} VALUES (?, ?, ?, ?, ?)",  # noqa: S608 - ours
                        values,
                    )

        await self._run(write)

    async def write_value(self, name: str, value: str) -> None:
        text = (
            "INSERT INTO installation (name, value) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )
        await self._run(lambda: self._connection.execute(text, (name, value)))

    @asynccontextmanager
    async def open_snapshot(self) -> AsyncIterator[None]:
        await self._run(lambda: self._connection.execute("BEGIN"))
        try:
            yield
        finally:
            await self._run(lambda: self._connection.execute("COMMIT"))

    async def measure(self, table: MovedTable) -> TableSize:
        sizes = " + ".join(f"length(CAST({each} AS BLOB))" for each in table.sized_columns)
        found = await self._fetch(
            f"SELECT count(*), coalesce(sum({sizes or '0'}), 0) FROM {table.quoted}"  # noqa: S608 - ours
        )
        return TableSize(rows=found[0][0], bytes=found[0][1])

    async def list_unfit(self, table: MovedTable, *, limit: int) -> list[str]:
        """SQLite keeps a value of any type in any column, and texts with a NUL."""
        faults = [each for column in table.columns for each in _list_faults(column)]
        cases = " ".join(f"WHEN {each.condition} THEN {at}" for at, each in enumerate(faults))
        rows = await self._fetch(
            f"SELECT CASE {cases} END AS fault, {table.key_columns} FROM {table.quoted}"  # noqa: S608 - ours
            f" WHERE fault IS NOT NULL LIMIT {limit}"
        )
        return [f"{table.describe_key(tuple(key))}: {faults[fault].words}" for fault, *key in rows]

    async def read_batches(
        self, table: MovedTable, *, after: Key | None
    ) -> AsyncGenerator[list[Row]]:
        text, values = _select(table, after=after, through=None)
        cursor = await self._run(lambda: self._connection.execute(text, values))

        def read_some() -> list[Row]:
            batch: list[Row] = []
            size = 0
            try:
                for row in cursor:
                    batch.append(row)
                    size += table.measure(row)
                    if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
                        break
            except sqlite3.OperationalError as error:
                if "decode" not in str(error):
                    raise
                last = table.key_of(batch[-1]) if batch else after
                raise self._explain_bad_text(table, last) from None
            return batch

        with contextlib.closing(cursor):
            while batch := await self._run(read_some):
                yield batch
                after = table.key_of(batch[-1])

    async def read_range(
        self, table: MovedTable, *, after: Key | None, through: Key | None, limit: int
    ) -> list[Row]:
        text, values = _select(table, after=after, through=through)
        return await self._fetch(f"{text} LIMIT {limit}", values)

    async def insert(self, table: MovedTable, rows: list[Row]) -> None:
        places = ", ".join("?" * len(table.names))
        text = f"INSERT INTO {table.quoted} ({table.all_columns}) VALUES ({places})"  # noqa: S608 - ours

        def write() -> None:
            with _committing(self._connection):
                self._connection.executemany(text, rows)

        await self._run(write)

    def _explain_bad_text(self, table: MovedTable, after: Key | None) -> StateError:
        """Returns the error for the row behind a key, which holds bytes that are no text."""
        text, values = _select(table, after=after, through=None)
        self._connection.text_factory = bytes
        row = self._connection.execute(f"{text} LIMIT 1", values).fetchone()
        return StateError(
            f"{table.describe_key(table.key_of(row))} holds a text that is not UTF-8",
            hint="no pipecd writes such a row; restore a backup that you trust",
        )

    async def _fetch(self, text: str, values: Key = ()) -> list[Row]:
        return await self._run(lambda: self._connection.execute(text, values).fetchall())

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except sqlite3.Error as error:
            raise explain_file(self.path, error) from error


class SqliteMoveTarget(MovableSqlite):
    """Implements `MoveTarget`."""

    def __init__(self, path: Path) -> None:
        # The file is made by `prepare`.
        super().__init__(path, sqlite3.connect(":memory:", check_same_thread=False))

    async def has_tables(self) -> bool:
        return self.path.exists()

    async def check(self) -> None:
        """The file was checked when it was opened."""

    async def prepare(self, record: MoveRecord) -> None:
        self.use(open_file(self.path, SQLiteDialect(paramstyle="qmark"), for_move=True))
        await self.write_record(record)

    async def complete(self) -> None:
        """The indexes are there."""

    async def read_last_key(self, table: MovedTable) -> Key | None:
        found = await self._fetch(
            f"SELECT {table.key_columns} FROM {table.quoted} ORDER BY {table.backwards} LIMIT 1"  # noqa: S608 - ours
        )
        return found[0] if found else None

    async def clear(self) -> None:
        self.close()
        for name in (DATABASE_FILE, *COMPANIONS):
            self.path.with_name(name).unlink(missing_ok=True)

    def use(self, connection: sqlite3.Connection) -> None:
        """Goes on with another connection."""
        self.close()
        self._connection = connection

    def close(self) -> None:
        self._connection.close()


@contextmanager
def open_sqlite_source(folder: Path, *, allows_older: bool = False) -> Iterator[MovableSqlite]:
    """Yields the database of a data folder, which is locked meanwhile.

    Raises StateError when a server runs in it, or it cannot be used.
    """
    path = folder / DATABASE_FILE
    if not folder.is_dir():
        raise StateError(
            f"there is no folder {str(folder)!r}", hint="name the data folder of the server"
        )
    with owned(folder):
        connection = open_current_file(path, allows_older=allows_older)
        with contextlib.closing(connection):
            yield MovableSqlite(path, connection)


@contextmanager
def open_sqlite_target(folder: Path, *, may_write: bool) -> Iterator[SqliteMoveTarget]:
    """Yields the database of a data folder, which is locked meanwhile; it need not be there.

    Raises StateError when a server runs in it, or it cannot be used.
    """
    path = folder / DATABASE_FILE
    with contextlib.ExitStack() as opened:
        if may_write or folder.exists():
            opened.enter_context(owned(folder))
        target = SqliteMoveTarget(path)
        opened.callback(target.close)
        if path.exists():
            target.use(open_current_file(path))
        yield target


def _select(table: MovedTable, *, after: Key | None, through: Key | None) -> tuple[str, Key]:
    return select_range(
        table, table.all_columns, after=after, through=through, mark=lambda _number: "?"
    )


def _list_faults(column: "Column[Any]") -> list[UnfitValue]:
    """Returns what can be wrong with the values of a column."""
    name = f'"{column.name}"'
    if is_binary(column):
        return [_make_fault(column, "is no message", f"typeof({name}) <> 'blob'")]
    if is_text(column):
        return [
            _make_fault(column, "is no text", f"typeof({name}) <> 'text'"),
            _make_fault(
                column,
                "holds a NUL character, which PostgreSQL cannot keep in a text",
                f"instr({name}, char(0)) > 0",
            ),
            _make_fault(
                column,
                "holds a character that pipecd keeps for itself in PostgreSQL",
                f"instr({name}, char({ord(MARK)})) > 0",
            ),
        ]
    faults = [_make_fault(column, "is no whole number", f"typeof({name}) <> 'integer'")]
    if is_small_number(column):
        outside = f"{name} NOT BETWEEN {SMALLEST} AND {LARGEST}"
        faults.append(_make_fault(column, "does not fit into 32 bits", outside))
    return faults


def _make_fault(column: "Column[Any]", what: str, condition: str) -> UnfitValue:
    return UnfitValue(words=f"{column.name} {what}", condition=condition)


@contextmanager
def _committing(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
