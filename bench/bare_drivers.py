# SPDX-License-Identifier: Apache-2.0
"""The drivers of both databases, without anything of ours around them."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import asyncpg
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from store_rows import Rows, copy_into_postgres, insert_into_sqlite

from pipecd_controlplane.store.statements import Compiled


@dataclass(slots=True)
class BareRead:
    """A statement with its parameters, whose first column is a message; compiled once."""

    statement: Any
    parameters: dict[str, Any]
    parse: Callable[[bytes], Any]
    _compiled: tuple[str, tuple[Any, ...]] | None = field(default=None, init=False)

    def compile(self, dialect: Any) -> tuple[str, tuple[Any, ...]]:
        if self._compiled is None:
            compiled = Compiled(self.statement, dialect)
            self._compiled = compiled.text, compiled.arguments(self.parameters)
        return self._compiled


class BareDriver(Protocol):
    """The driver of a database, without anything of ours around it."""

    name: str

    async def insert(self, rows: Rows) -> None:
        """Writes rows in bulk."""

    async def finish(self) -> None:
        """Gathers statistics, as the database would by itself some time later."""

    async def read(self, read: BareRead) -> list[Any]:
        """Runs a statement, and returns its messages."""


class BareSqlite:
    """The file in bare sqlite3."""

    name = "sqlite3"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = sqlite3.connect(path)

    async def insert(self, rows: Rows) -> None:
        insert_into_sqlite(self._path, rows)

    async def finish(self) -> None:
        self._connection.execute("ANALYZE")

    async def read(self, read: BareRead) -> list[Any]:
        text, arguments = read.compile(SQLiteDialect(paramstyle="qmark"))
        return [read.parse(row[0]) for row in self._connection.execute(text, arguments)]


class BarePostgres:
    """A connection of bare asyncpg."""

    name = "asyncpg"

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    async def insert(self, rows: Rows) -> None:
        await copy_into_postgres(self._connection, rows)

    async def finish(self) -> None:
        await self._connection.execute("VACUUM ANALYZE")

    async def read(self, read: BareRead) -> list[Any]:
        dialect = PGDialect_asyncpg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call] # SQLAlchemy's
        text, arguments = read.compile(dialect)
        return [read.parse(row[0]) for row in await self._connection.fetch(text, *arguments)]
