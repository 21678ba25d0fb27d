# SPDX-License-Identifier: Apache-2.0
"""Tables for what control planes that share a database tell each other, and nobody else keeps.

They are not part of the schema: nothing in them is moved, migrated or backed up. Most are unlogged,
so PostgreSQL empties them when it crashes or another server takes over; whatever uses them copes
with that. A column is only ever added, so that two versions can run side by side.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import asyncpg

from pipecd_controlplane.store.postgres import commit_records
from pipecd_controlplane.store.postgres.pool import ConnectionPool
from pipecd_controlplane.store.postgres.texts import escape_texts, restore_row

T = TypeVar("T")

Value: TypeAlias = str | int | float | bytes | bool | list[str] | list[bytes]
SharedRow: TypeAlias = tuple[Any, ...]

TABLES: Final = (
    # The control planes that run. `public_key` encrypts messages to it.
    """CREATE UNLOGGED TABLE IF NOT EXISTS pipecd_replica (
        id text PRIMARY KEY, seen_at timestamptz NOT NULL, public_key bytea NOT NULL)""",
    # What is open between agents and control planes: watches, questions, hints.
    """CREATE UNLOGGED TABLE IF NOT EXISTS pipecd_channel (
        id text PRIMARY KEY, replica_id text NOT NULL, kind text NOT NULL,
        project_id text NOT NULL, piped_id text NOT NULL, opened_at timestamptz NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS pipecd_channel_of_piped ON pipecd_channel (piped_id, kind)",
    """CREATE UNLOGGED TABLE IF NOT EXISTS pipecd_disconnection (
        piped_id text PRIMARY KEY, ended_at timestamptz NOT NULL)""",
    """CREATE UNLOGGED TABLE IF NOT EXISTS pipecd_message (
        id text PRIMARY KEY, data bytea NOT NULL, sent_at timestamptz NOT NULL)""",
    # Who waits for the answer to a question; neither is here.
    """CREATE UNLOGGED TABLE IF NOT EXISTS pipecd_question (
        id text PRIMARY KEY, replica_id text NOT NULL, project_id text NOT NULL,
        piped_id text NOT NULL, asked_at timestamptz NOT NULL)""",
    """CREATE UNLOGGED TABLE IF NOT EXISTS pipecd_sighting (
        piped_id text NOT NULL, method text NOT NULL, mark text NOT NULL, peer text NOT NULL,
        under_lease boolean NOT NULL, number bigint NOT NULL, seen_at timestamptz NOT NULL,
        PRIMARY KEY (piped_id, method, mark))""",
    "CREATE SEQUENCE IF NOT EXISTS pipecd_sighting_number",
    """CREATE UNLOGGED TABLE IF NOT EXISTS pipecd_attempt (
        name text NOT NULL, key bytea NOT NULL, full_at timestamptz NOT NULL,
        PRIMARY KEY (name, key))""",
    "CREATE INDEX IF NOT EXISTS pipecd_attempt_by_time ON pipecd_attempt (name, full_at)",
    """CREATE UNLOGGED TABLE IF NOT EXISTS pipecd_familiar_network (
        account bytea NOT NULL, network bytea NOT NULL, used_at timestamptz NOT NULL,
        PRIMARY KEY (account, network))""",
    """CREATE UNLOGGED TABLE IF NOT EXISTS pipecd_login_request (
        user_code text PRIMARY KEY, device_hash text NOT NULL UNIQUE, client text NOT NULL,
        address text NOT NULL, network text NOT NULL, session_id text NOT NULL,
        is_refused boolean NOT NULL, added_at timestamptz NOT NULL, forget_at timestamptz NOT NULL)
    """,
    # Two that last. The name of the key that secrets at rest are encrypted with:
    """CREATE TABLE IF NOT EXISTS pipecd_encryption_key (
        one boolean PRIMARY KEY, name text NOT NULL)""",
    # The last transaction of each connection:
    commit_records.TABLE,
)


class SharedStatements(Protocol):
    """Runs statements in a transaction."""

    async def row(self, statement: str, *values: Value) -> SharedRow | None: ...

    async def rows(self, statement: str, *values: Value) -> list[SharedRow]: ...

    async def run(self, statement: str, *values: Value) -> None: ...


class SharedTables:
    """Access to the tables; a database that is gone is waited for, as by units of work.

    A statement whose answer was lost is run again, so each of them may be run twice.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        ask: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
    ) -> None:
        self._pool = pool
        self._ask = ask

    async def row(self, statement: str, *values: Value) -> SharedRow | None:
        return await self._run_alone(lambda statements: statements.row(statement, *values))

    async def rows(self, statement: str, *values: Value) -> list[SharedRow]:
        return await self._run_alone(lambda statements: statements.rows(statement, *values))

    async def run(self, statement: str, *values: Value) -> None:
        await self._run_alone(lambda statements: statements.run(statement, *values))

    async def run_together(self, work: Callable[[SharedStatements], Awaitable[T]]) -> T:
        """Runs several statements in one transaction."""

        async def ask() -> T:
            async with self._pool.acquired() as connection, connection.transaction():
                return await work(_Statements(connection))

        result: T = await self._ask(ask)
        return result

    async def _run_alone(self, work: Callable[[SharedStatements], Awaitable[T]]) -> T:
        async def ask() -> T:
            async with self._pool.acquired() as connection:
                return await work(_Statements(connection))

        result: T = await self._ask(ask)
        return result


class _Statements:
    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    async def row(self, statement: str, *values: Value) -> SharedRow | None:
        found = await self._connection.fetchrow(statement, *escape_texts(values))
        return None if found is None else restore_row(found)

    async def rows(self, statement: str, *values: Value) -> list[SharedRow]:
        found = await self._connection.fetch(statement, *escape_texts(values))
        return [restore_row(each) for each in found]

    async def run(self, statement: str, *values: Value) -> None:
        await self._connection.execute(statement, *escape_texts(values))


async def prepare_shared_tables(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Creates what is missing; where nothing is, nothing is written."""
    for statement in TABLES:
        name = statement.partition("IF NOT EXISTS ")[2].split()[0]
        if await connection.fetchval("SELECT to_regclass($1)", name) is None:
            await connection.execute(statement)
