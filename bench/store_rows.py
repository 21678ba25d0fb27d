# SPDX-License-Identifier: Apache-2.0
"""Fills a database with many entities: the rows are the store's own, only written in bulk.

The store writes into a transaction that notes the rows; they are then copied in the fastest way
that each database has.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
from sqlalchemy import Executable, Table
from sqlalchemy.sql.dml import Insert

from pipecd_controlplane.store.audit import T, append_in
from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import Row, Value
from pipecd_controlplane.store.units import run_unit
from pipecd_wire.pipecd.api.api_pb2 import AuditRecord

Rows = dict[str, list[dict[str, Value]]]
"""By the name of the table."""


class RowRecorder:
    """A transaction over an empty database that notes what is inserted."""

    def __init__(self) -> None:
        self.rows: Rows = defaultdict(list)

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        return None

    async def all(self, statement: Executable, **parameters: Value) -> list[Row]:
        return []

    async def run(self, statement: Executable, **parameters: Value) -> int:
        if isinstance(statement, Insert):
            table: Any = statement.table
            self.rows[table.name].append(parameters)
        return 1

    async def insert_if_absent(self, table: Table, **values: Value) -> bool:
        self.rows[table.name].append(values)
        return True

    async def upsert(self, table: Table, replaced: tuple[str, ...], **values: Value) -> None:
        self.rows[table.name].append(values)

    def publish(self, change: Change) -> None:
        pass


def record_rows(entities: Any, made: Iterable[Any], *, at_once: int = 20_000) -> Iterator[Rows]:
    """Yields the rows of entities, some at a time, as their store writes them."""
    recorder = RowRecorder()
    for number, entity in enumerate(made, start=1):
        run_unit(entities.add_in(recorder, entity))
        if number % at_once == 0:
            yield recorder.rows
            recorder = RowRecorder()
    yield recorder.rows


class ChainRecorder(RowRecorder):
    """A recorder of one chain of the audit, whose next record needs the one before."""

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        appended = self.rows[T.name]
        return (appended[-1]["data"],) if appended else None


def record_chain(records: Iterable[AuditRecord]) -> Rows:
    """Returns the rows of audit records of one project, sealed as the store does."""
    recorder = ChainRecorder()
    for record in records:
        run_unit(append_in(recorder, record))
    return recorder.rows


def insert_into_sqlite(path: Path, rows: Rows) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for table, inserted in rows.items():
            names = list(inserted[0])
            marks = ", ".join("?" for _ in names)
            connection.executemany(
                f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})",  # noqa: S608 - ours
                [tuple(row.values()) for row in inserted],
            )
        connection.commit()


async def copy_into_postgres(connection: "asyncpg.Connection[asyncpg.Record]", rows: Rows) -> None:
    for table, inserted in rows.items():
        await connection.copy_records_to_table(
            table, columns=list(inserted[0]), records=[tuple(row.values()) for row in inserted]
        )
