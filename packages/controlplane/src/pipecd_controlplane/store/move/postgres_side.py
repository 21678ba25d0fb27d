# SPDX-License-Identifier: Apache-2.0
"""A database of PostgreSQL as a side of a move.

One connection does everything. It also holds the lock that keeps servers away, so that nothing is
written once the lock is lost.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

import asyncpg
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.engine import Dialect

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Row
from pipecd_controlplane.store.move.tables import (
    BATCH_BYTES,
    BATCH_ROWS,
    Key,
    MovedTable,
    TableSize,
    is_text,
    select_range,
)
from pipecd_controlplane.store.move_record import (
    CLEAR_MOVE,
    CREATE_MOVE_TABLE,
    MOVE_COLUMNS,
    MOVE_TABLE,
    MoveRecord,
    hint_migration,
)
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.failures import LOST, describe, explain_refused
from pipecd_controlplane.store.postgres.pool import connect, wait_answer
from pipecd_controlplane.store.postgres.poolers import refuse_shared_sessions
from pipecd_controlplane.store.postgres.prepare import (
    VERSION_TABLE,
    check_server,
    create_missing,
    prepare_database,
    read_move_record,
    read_version,
)
from pipecd_controlplane.store.postgres.session import claim_alone
from pipecd_controlplane.store.postgres.texts import MARK
from pipecd_model.errors import StateError, UnavailableError

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

GO_ON: Final = "run the same command again, it goes on where it stopped"

FOREIGN_TABLES: Final = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'f') AND c.relname <> ALL($1::text[])
AND c.relname NOT LIKE 'pipecd\\_%'
AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
ORDER BY c.relname LIMIT 3
"""
"""Those that neither a pipecd nor an extension of PostgreSQL has made."""


class MovablePostgres:
    """Implements `MovableDatabase` and `MoveTarget`."""

    def __init__(self, name: str, connection: Connection, dialect: Dialect) -> None:
        self.name = name
        self._connection = connection
        self._dialect = dialect

    async def read_record(self) -> MoveRecord | None:
        with _explaining():
            return await read_move_record(self._connection)

    async def write_record(self, record: MoveRecord | None) -> None:
        with _explaining():
            async with self._connection.transaction():
                await self._write_record(record)

    async def _write_record(self, record: MoveRecord | None) -> None:
        await self._connection.execute(CREATE_MOVE_TABLE)
        await self._connection.execute(CLEAR_MOVE)
        if record is not None:
            values = [getattr(record, each) for each in MOVE_COLUMNS]
            await self._connection.execute(
                f"INSERT INTO {MOVE_TABLE} VALUES ($1, $2, $3, $4, $5)",  # noqa: S608 - ours
                *values,
            )

    async def write_value(self, name: str, value: str) -> None:
        with _explaining():
            await self._connection.execute(
                "INSERT INTO installation (name, value) VALUES ($1, $2)"
                " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                name,
                value,
            )

    @asynccontextmanager
    async def open_snapshot(self) -> AsyncIterator[None]:
        snapshot = self._connection.transaction(isolation="repeatable_read", readonly=True)
        with _explaining():
            await snapshot.start()
        try:
            yield
        finally:
            with contextlib.suppress(*LOST):
                await snapshot.rollback()

    async def measure(self, table: MovedTable) -> TableSize:
        [row] = await self._fetch(
            f"SELECT count(*), coalesce(sum({_size_of(table)}), 0)::bigint FROM {table.quoted}"  # noqa: S608 - ours
        )
        return TableSize(rows=row[0], bytes=row[1])

    async def list_unfit(self, table: MovedTable, *, limit: int) -> list[str]:
        """Texts with a NUL, which PostgreSQL does not keep, are in another form there."""
        texts = [f'"{each.name}"' for each in table.columns if is_text(each)]
        if not texts:
            return []
        found = " OR ".join(f"position($1 IN {each}) > 0" for each in texts)
        rows = await self._fetch(
            f"SELECT {table.key_columns} FROM {table.quoted} WHERE {found} LIMIT {limit}",  # noqa: S608 - ours
            (MARK,),
        )
        return [f"{table.describe_key(key)}: a text holds a NUL character" for key in rows]

    async def read_batches(
        self, table: MovedTable, *, after: Key | None
    ) -> AsyncGenerator[list[Row]]:
        # Sizes first, which PostgreSQL knows without reading: rows of unknown sizes would have to
        # be read one by one.
        while True:
            text, values = _select(
                table, f"{table.key_columns}, {_size_of(table)}", after=after, through=None
            )
            sizes = await self._fetch(f"{text} LIMIT {BATCH_ROWS}", values)
            if not sizes:
                return
            through = _find_end(sizes)
            yield await self.read_range(table, after=after, through=through, limit=BATCH_ROWS)
            after = through

    async def read_range(
        self, table: MovedTable, *, after: Key | None, through: Key | None, limit: int
    ) -> list[Row]:
        text, values = _select(table, table.all_columns, after=after, through=through)
        return await self._fetch(f"{text} LIMIT {limit}", values)

    async def has_tables(self) -> bool:
        with _explaining():
            return await read_version(self._connection) > 0

    async def check(self) -> None:
        with _explaining():
            await check_server(self._connection)
            await self._refuse_foreign_tables()
            version = await read_version(self._connection) or schema.SCHEMA_VERSION
            self._check_version(version, "name an empty database, or begin with --start-over")
            undone = self._connection.transaction()
            await undone.start()
            try:
                await self._make_tables()
            finally:
                await undone.rollback()

    async def prepare(self, record: MoveRecord) -> None:
        with _explaining():
            async with self._connection.transaction():
                await self._make_tables()
                await self._write_record(record)

    async def complete(self) -> None:
        with _explaining():
            await create_missing(self._connection, self._dialect)
            # So that the first lists are not planned for empty tables.
            await self._connection.execute("ANALYZE")

    async def read_last_key(self, table: MovedTable) -> Key | None:
        found = await self._fetch(
            f"SELECT {table.key_columns} FROM {table.quoted} ORDER BY {table.backwards} LIMIT 1"  # noqa: S608 - ours
        )
        return found[0] if found else None

    async def insert(self, table: MovedTable, rows: list[Row]) -> None:
        with _explaining():
            await self._connection.copy_records_to_table(
                table.name, records=rows, columns=table.names
            )

    async def clear(self) -> None:
        names = [each.name for each in schema.metadata.sorted_tables]
        with _explaining():
            async with self._connection.transaction():
                for name in (*names, MOVE_TABLE, VERSION_TABLE):
                    await self._connection.execute(f'DROP TABLE IF EXISTS "{name}"')

    async def check_source(self, *, allows_older: bool = False) -> None:
        """Raises StateError when it holds nothing, or this pipecd would have to migrate it."""
        with _explaining():
            await check_server(self._connection)
            version = await read_version(self._connection)
            record = await read_move_record(self._connection)
        if not version:
            raise StateError(f"{self.name} holds nothing of pipecd", hint="name another database")
        if not allows_older or version > schema.SCHEMA_VERSION:
            self._check_version(version, hint_migration(record))

    def _check_version(self, version: int, hint: str) -> None:
        if version != schema.SCHEMA_VERSION:
            raise StateError(
                f"{self.name} has schema {version}, this pipecd {schema.SCHEMA_VERSION}",
                hint=hint
                if version < schema.SCHEMA_VERSION
                else "use the pipecd that wrote it, or a newer one",
            )

    async def _make_tables(self) -> None:
        await prepare_database(self._connection, self._dialect, for_move=True)

    async def _refuse_foreign_tables(self) -> None:
        ours = [each.name for each in schema.metadata.sorted_tables]
        found = await self._connection.fetch(FOREIGN_TABLES, ours)
        if found:
            names = ", ".join(str(row[0]) for row in found)
            raise StateError(
                f"{self.name} has tables of another program: {names}",
                hint="give pipecd a database, or a schema, of its own",
            )

    async def _fetch(self, text: str, values: Key = ()) -> list[Row]:
        with _explaining():
            return [tuple(row) for row in await self._connection.fetch(text, *values)]


@asynccontextmanager
async def open_postgres_side(server: PostgresServer) -> AsyncIterator[MovablePostgres]:
    """Yields the database of a server. Raises StateError when it cannot be used, or is used."""
    with _explaining():
        await wait_answer(server, lambda: refuse_shared_sessions(server))
        connection = await wait_answer(server, lambda: connect(server, is_patient=True))
    try:
        with _explaining():
            await claim_alone(connection)
            name = await connection.fetchval("SELECT current_database()")
        dialect = PGDialect_asyncpg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call] # SQLAlchemy's
        yield MovablePostgres(_describe_place(server.url, name), connection, dialect)
    finally:
        with contextlib.suppress(*LOST):
            await connection.close(timeout=5)
        connection.terminate()


def _describe_place(url: str, database: str) -> str:
    """Returns what a database is called, without user and password."""
    parts = urlsplit(url)
    host = parts.hostname or parse_qs(parts.query).get("host", ["localhost"])[0]
    return f"the database {database!r} of PostgreSQL at {host!r}"


def _size_of(table: MovedTable) -> str:
    return " + ".join(f"octet_length({each})" for each in table.sized_columns) or "0"


def _find_end(sizes: list[Row]) -> Key:
    """Returns the key of the last row of a batch, given keys with sizes."""
    total = 0
    for *key, size in sizes:
        total += size
        if total >= BATCH_BYTES:
            return tuple(key)
    return tuple(sizes[-1][:-1])


def _select(
    table: MovedTable, columns: str, *, after: Key | None, through: Key | None
) -> tuple[str, Key]:
    return select_range(table, columns, after=after, through=through, mark="${}".format)


@contextmanager
def _explaining() -> Iterator[None]:
    """Turns errors of PostgreSQL into sentences."""
    try:
        yield
    except LOST as error:
        raise StateError(f"the database does not answer: {describe(error)}", hint=GO_ON) from error
    except asyncpg.PostgresError as error:
        explained = explain_refused(error)
        if explained is error:
            raise StateError(f"the database refuses: {describe(error)}", hint=GO_ON) from error
        if isinstance(explained, UnavailableError):
            # A server would go on by itself; a command is run again.
            raise StateError(str(explained), hint=GO_ON) from error
        raise explained from error
