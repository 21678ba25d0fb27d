# SPDX-License-Identifier: Apache-2.0
"""The tables in a database of PostgreSQL: created at the first start, migrated by a newer pipecd.

Any number of control planes may start at once: a lock lets one of them do it, the others find it
done. All of it is one transaction, so a start that is killed leaves nothing half made.
"""

from typing import Final, TypeAlias

from asyncpg import Record
from asyncpg.pool import PoolConnectionProxy
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.migrations import MIGRATIONS, Migration
from pipecd_model.errors import StateError

Connection: TypeAlias = "PoolConnectionProxy[Record]"

OLDEST_SERVER: Final = 13
"""The major version of PostgreSQL that began to tell what became of a transaction by its id."""

LOCK: Final = 0x50694344_0001
"""The advisory lock of those that prepare; reads "PiCD" and a number."""

VERSION_TABLE: Final = "pipecd_schema"


async def prepare_database(connection: Connection, dialect: Dialect) -> None:
    """Creates or migrates the tables. Raises StateError when the database cannot be used."""
    await _check_server(connection)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        version = await _read_version(connection)
        if version == schema.SCHEMA_VERSION:
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
        await _create_missing(connection, dialect)
        await _write_version(connection)


async def _check_server(connection: Connection) -> None:
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


async def _read_version(connection: Connection) -> int:
    """Returns the version of the schema; 0 in a database without our tables."""
    if await connection.fetchval("SELECT to_regclass($1)", VERSION_TABLE) is None:
        return 0
    return int(await connection.fetchval(f"SELECT version FROM {VERSION_TABLE}"))  # noqa: S608 - ours


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
    for index in migration.dropped_indexes:
        await connection.execute(f"DROP INDEX IF EXISTS {index}")


async def _create_missing(connection: Connection, dialect: Dialect) -> None:
    elements: list[ExecutableDDLElement] = []
    for table in schema.metadata.sorted_tables:
        elements.append(CreateTable(table, if_not_exists=True))
        elements += [
            CreateIndex(index, if_not_exists=True)
            for index in sorted(table.indexes, key=lambda index: str(index.name))
        ]
    for element in elements:
        await connection.execute(str(element.compile(dialect=dialect)))
