# SPDX-License-Identifier: Apache-2.0
"""The tables in a database of PostgreSQL: created at the first start, migrated by a newer pipecd.

Any number of control planes may start at once: a lock lets one of them do it, the others find it
done. All of it is one transaction, so a start that is killed leaves nothing half made.
"""

import asyncio
from typing import Final, TypeAlias

import asyncpg
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.migrations import MIGRATIONS, Migration
from pipecd_controlplane.store.move_record import MOVE_TABLE, READ_MOVE, MoveRecord, refuse_moved
from pipecd_controlplane.store.postgres.shared_tables import prepare_shared_tables
from pipecd_model.errors import StateError
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger

log = logger(__name__)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

OLDEST_SERVER: Final = 13
"""The major version of PostgreSQL that began to tell by its id whether a transaction still runs."""

LOCK: Final = 0x50694344_0001
"""The advisory lock of those that prepare; reads "PiCD" and a number."""

BACKOFF: Final = Backoff(first_seconds=0.05, longest_seconds=2.0, jitter=0.5)

VERSION_TABLE: Final = "pipecd_schema"


async def prepare_database(
    connection: Connection, dialect: Dialect, *, for_move: bool = False
) -> None:
    """Creates or migrates the tables. Raises StateError when the database cannot be used.

    The target of a move gets the tables alone: `create_missing` adds the indexes when the rows are
    there.
    """
    await check_server(connection)
    async with connection.transaction():
        await _wait_turn(connection)
        if not for_move:
            refuse_moved(await read_move_record(connection))
            await prepare_shared_tables(connection)
        version = await read_version(connection)
        if version == schema.SCHEMA_VERSION:
            await _check_rights(connection)
            return
        if version > schema.SCHEMA_VERSION:
            raise StateError(
                f"the database has schema {version}, this pipecd knows {schema.SCHEMA_VERSION}",
                hint="use the pipecd that wrote it, or a newer one",
            )
        if version == 0:
            await _refuse_foreign_tables(connection)
        else:
            await _migrate(connection, version)
        await create_missing(connection, dialect, with_indexes=not for_move)
        await _write_version(connection)


async def _wait_turn(connection: Connection) -> None:
    """Waits until nobody else prepares; that takes as long as a migration does."""
    attempt = 0
    while not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", LOCK):
        if attempt == 0:
            log.warning("database.prepared_elsewhere", hint="it is waited for")
        attempt += 1
        await asyncio.sleep(BACKOFF.pause_seconds_after(attempt))


async def check_server(connection: Connection) -> None:
    """Raises StateError for a server that is too old, or a database that cannot keep all texts."""
    major = connection.get_server_version().major
    if major < OLDEST_SERVER:
        raise StateError(
            f"the server is PostgreSQL {major}", hint=f"PostgreSQL {OLDEST_SERVER} is the oldest"
        )
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise StateError(
            f"the database is encoded as {encoding}", hint="create it with ENCODING 'UTF8'"
        )


async def _check_rights(connection: Connection) -> None:
    """Raises StateError when a table may not be used: the first write would be too late."""
    rows = await connection.fetch(
        "SELECT name, privilege, to_regclass(name) IS NULL AS is_missing"
        " FROM unnest($1::text[]) AS name,"
        " unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege"
        " WHERE has_table_privilege(to_regclass(name), privilege) IS NOT true"
        " ORDER BY is_missing DESC, name, privilege",
        [table.name for table in schema.metadata.sorted_tables],
    )
    if not rows:
        return
    if rows[0]["is_missing"]:
        raise StateError(
            f"the database lacks the table {rows[0]['name']!r}",
            hint="restore it from a backup, or give pipecd an empty database",
        )
    missing = f"{rows[0]['privilege']} on {rows[0]['name']}"
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    raise StateError(
        f"the user of the database lacks rights: {missing}{more}",
        hint="it must own the tables, or have SELECT, INSERT, UPDATE and DELETE on all of them",
    )


async def read_version(connection: Connection) -> int:
    """Returns the version of the schema; 0 in a database without our tables."""
    if await connection.fetchval("SELECT to_regclass($1)", VERSION_TABLE) is None:
        return 0
    return int(await connection.fetchval(f"SELECT version FROM {VERSION_TABLE}"))  # noqa: S608 - ours


async def read_move_record(connection: Connection) -> MoveRecord | None:
    """Returns what the database knows of its last move; None when it never was in one."""
    if await connection.fetchval("SELECT to_regclass($1)", MOVE_TABLE) is None:
        return None
    row = await connection.fetchrow(READ_MOVE)
    return None if row is None else MoveRecord(**dict(row))


async def _write_version(connection: Connection) -> None:
    await connection.execute(
        f"CREATE TABLE IF NOT EXISTS {VERSION_TABLE}"
        " (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL)"
    )
    await connection.execute(
        f"INSERT INTO {VERSION_TABLE} (version) VALUES ($1)"  # noqa: S608 - ours
        " ON CONFLICT (one) DO UPDATE SET version = excluded.version",
        schema.SCHEMA_VERSION,
    )


async def _refuse_foreign_tables(connection: Connection) -> None:
    """Raises StateError when tables with our names are there that no pipecd has made."""
    found = await connection.fetch(
        "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        " AND tablename = ANY($1::text[]) ORDER BY tablename",
        [table.name for table in schema.metadata.sorted_tables],
    )
    if found:
        names = ", ".join(str(row[0]) for row in found[:3])
        raise StateError(
            f"the database has tables of another program: {names}",
            hint="give pipecd a database, or a schema, of its own",
        )


async def _migrate(connection: Connection, version: int) -> None:
    for migration in MIGRATIONS:
        if migration.version > version:
            await _apply(connection, migration)


async def _apply(connection: Connection, migration: Migration) -> None:
    for column in migration.columns:
        default = f"'{column.default}'" if isinstance(column.default, str) else column.default
        kind = f'{column.type} COLLATE "C"' if column.type == "VARCHAR" else column.type
        await connection.execute(
            f"ALTER TABLE {column.table} ADD COLUMN {column.name} {kind} NOT NULL DEFAULT {default}"
        )
    # Not after new ones are made, although readers of the table could go on until then: that holds
    # writers up, and one of them that has read the table would wait for us, and we for it.
    for index in migration.dropped_indexes:
        await connection.execute(f"DROP INDEX IF EXISTS {index}")


async def create_missing(
    connection: Connection, dialect: Dialect, *, with_indexes: bool = True
) -> None:
    """Creates the tables and indexes that are not there."""
    elements: list[ExecutableDDLElement] = []
    for table in schema.metadata.sorted_tables:
        elements.append(CreateTable(table, if_not_exists=True))
        if with_indexes:
            elements += [
                CreateIndex(index, if_not_exists=True)
                for index in sorted(table.indexes, key=lambda index: str(index.name))
            ]
    for element in elements:
        await connection.execute(str(element.compile(dialect=dialect)))
