# SPDX-License-Identifier: Apache-2.0
"""Databases of both kinds for tests of moves: filled once, copied for each test."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg

from pipecd_controlplane.store.blobs.config import FOLDER_NAME
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.database import Row
from pipecd_controlplane.store.move.open import open_source, open_target
from pipecd_controlplane.store.move.rows import RowMove
from pipecd_controlplane.store.move.tables import list_tables
from pipecd_controlplane.store.open import DatabaseConfig, SqliteFolder, open_database
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE
from pipecd_controlplane.store.stores import stores
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.filled_stores import fill_every_table


class HeardProgress:
    """Keeps what a move says."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.rows: dict[str, int] = {}

    def begin(self, step: str, sizes: object) -> None:
        self.rows = {}

    def advance(self, table: str, rows: int) -> None:
        self.rows[table] = self.rows.get(table, 0) + rows

    def end(self) -> None:
        pass

    def say(self, line: str) -> None:
        self.lines.append(line)


async def fill_folder(folder: Path, **sizes: int) -> None:
    """Makes a data folder with rows in every table, and objects."""
    blobs = FolderBlobs(folder / FOLDER_NAME)
    async with open_database(SqliteFolder(folder=folder), lambda _changes: None) as database:
        await blobs.open()
        kept = stores(database, lambda: MessageBuilder.NOON + 60, blobs=blobs)
        await fill_every_table(kept, blobs, **sizes)


@asynccontextmanager
async def opened_move(
    source: DatabaseConfig, target: DatabaseConfig, *, progress: HeardProgress | None = None
) -> AsyncIterator[RowMove]:
    async with open_source(source) as left, open_target(target, may_write=True) as right:
        yield RowMove(
            source=left,
            target=right,
            progress=progress or HeardProgress(),
            now=lambda: MessageBuilder.NOON,
        )


async def read_rows(config: DatabaseConfig) -> dict[str, list[Row]]:
    """Returns every row of every table."""
    async with open_source(config) as side, side.open_snapshot():
        return {
            table.name: [row async for rows in side.read_batches(table, after=None) for row in rows]
            for table in list_tables()
        }


def run_sqlite(folder: Path, statement: str, *values: Any) -> list[Any]:
    """Runs a statement in the file of a data folder, as somebody with a shell does."""
    with closing(sqlite3.connect(folder / DATABASE_FILE, isolation_level=None)) as connection:
        return connection.execute(statement, values).fetchall()


async def run_postgres(url: str, statement: str, *values: Any) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement, *values)]
    finally:
        await connection.close()
