# SPDX-License-Identifier: Apache-2.0
"""The rows beneath a control plane: read, and changed behind its back, in either store."""

import asyncio
import hashlib
import itertools
import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import asyncpg
from sqlalchemy import text

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE
from pipecd_test_support.chosen_store import find_postgres, get_chosen_store

StoredRow = dict[str, Any]


class RawConnection(Protocol):
    """Runs statements with `?` for each argument; all that a block does is one transaction."""

    def run(self, statement: str, *arguments: object) -> list[StoredRow]: ...


class _SqliteConnection:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, *arguments: object) -> list[StoredRow]:
        return [dict(row) for row in self._connection.execute(statement, arguments)]


class _PostgresConnection:
    def __init__(
        self,
        connection: "asyncpg.Connection[asyncpg.Record]",
        wait: Callable[[Any], Any],
    ) -> None:
        self._connection = connection
        self._wait = wait

    def run(self, statement: str, *arguments: object) -> list[StoredRow]:
        numbers = itertools.count(1)
        numbered = re.sub(r"\?", lambda _mark: f"${next(numbers)}", statement)
        return [dict(row) for row in self._wait(self._connection.fetch(numbered, *arguments))]


@contextmanager
def opening_rows(folder: Path) -> Iterator[RawConnection]:
    """Yields a connection to the database of a data folder, beside that of its server."""
    found = find_postgres(folder)
    if found is None:
        with closing(sqlite3.connect(folder / DATABASE_FILE)) as connection:
            connection.row_factory = sqlite3.Row
            with connection:
                yield _SqliteConnection(connection)
        return
    # In a thread with a loop of its own: a test's may be running in this one.
    with ThreadPoolExecutor(1) as thread, closing(asyncio.new_event_loop()) as loop:

        def wait(awaited: Any) -> Any:
            async def finish() -> Any:
                return await awaited

            return thread.submit(loop.run_until_complete, finish()).result()

        opened = wait(asyncpg.connect(found.url, loop=loop))
        try:
            wait(opened.execute("BEGIN"))
            yield _PostgresConnection(opened, wait)
            wait(opened.execute("COMMIT"))
        finally:
            wait(opened.close())


def read_tables(folder: Path) -> dict[str, list[StoredRow]]:
    """Returns all rows of all tables."""
    with opening_rows(folder) as rows:
        return {
            table.name: rows.run(f"SELECT * FROM {table.name}")  # noqa: S608 - ours
            for table in schema.metadata.sorted_tables
        }


UNCOUNTED: Final = {"api_key_fact", "audit_record"}
"""When a key was used last, and who was refused, changes nothing."""


def _list_counted() -> list[tuple[str, str]]:
    """Returns the tables that belong to projects, each with the rows of one project."""
    counted = []
    for table in schema.metadata.sorted_tables:
        column = "project_id" if "project_id" in table.c else "id"
        if column not in table.c or table.name in UNCOUNTED:
            continue
        where = f"{column} = :project_id"
        if table.name == "session":  # those that are over are cleaned up while we look
            where += " AND subject = :somebody"
        counted.append((table.name, where))
    return counted


LINES: Final = " UNION ALL ".join(
    f"SELECT '{name} ' || CAST({name} AS text) AS line FROM {name} WHERE {where}"  # noqa: S608 - ours
    for name, where in _list_counted()
)
HASH: Final = text(f"SELECT md5(string_agg(line, '' ORDER BY line)) FROM ({LINES}) AS lines")  # noqa: S608 - ours
"""PostgreSQL writes rows as text itself, in one statement."""


async def hash_project(database: Database, folder: Path, project_id: str) -> str:
    """Returns all that is kept of a project, as one hash."""
    given = {"project_id": project_id, "somebody": f"{project_id}-somebody"}
    if get_chosen_store() == "postgresql":
        row = await database.one(HASH, **given)
        assert row is not None
        return str(row[0])
    digest = hashlib.sha256()
    with closing(sqlite3.connect(folder / DATABASE_FILE)) as connection:
        for name, where in _list_counted():
            rows = connection.execute(f"SELECT * FROM {name} WHERE {where}", given)  # noqa: S608 - ours
            for line in sorted(map(repr, rows)):
                digest.update(f"{name} {line}\n".encode())
    return digest.hexdigest()
