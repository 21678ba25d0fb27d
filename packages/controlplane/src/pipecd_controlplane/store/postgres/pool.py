# SPDX-License-Identifier: Apache-2.0
"""The pool of connections to a server of PostgreSQL."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg

from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.failures import LOST, describe
from pipecd_model.errors import ConfigError, StateError
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger

log = logger(__name__)

BACKOFF: Final = Backoff(first_seconds=0.2, longest_seconds=3.0, jitter=0.5)

SESSION: Final = {
    "application_name": "pipecd",
    "timezone": "UTC",
    # What a dead control plane has left open holds up nobody for ever.
    "idle_in_transaction_session_timeout": "60s",
    "lock_timeout": "20s",
    "statement_timeout": "120s",
}


@asynccontextmanager
async def open_pool(server: PostgresServer) -> AsyncIterator["asyncpg.Pool[asyncpg.Record]"]:
    """Yields the pool. Raises StateError when there is no way in, ConfigError for a bad URL."""
    pool = await _connect(server)
    try:
        yield pool
    finally:
        await pool.close()


async def _connect(server: PostgresServer) -> "asyncpg.Pool[asyncpg.Record]":
    options: dict[str, Any] = {}
    if server.password_file is not None:
        options["password"] = await asyncio.to_thread(_read_password, server.password_file)
    deadline = time.monotonic() + server.wait_seconds
    attempt = 0
    while True:
        try:
            return await asyncpg.create_pool(
                server.url,
                min_size=1,
                max_size=server.connections,
                timeout=10,
                command_timeout=150,
                server_settings=SESSION,
                reset=_reset,
                **options,
            )
        except (asyncpg.ClientConfigurationError, ValueError) as error:
            raise ConfigError(
                f"the URL of the database cannot be used: {describe(error)}",
                hint="postgresql://USER@HOST:5432/DATABASE",
            ) from None
        except asyncpg.InvalidAuthorizationSpecificationError as error:
            raise StateError(
                f"the database refuses the user: {describe(error)}",
                hint="check user, password and pg_hba.conf",
            ) from None
        except asyncpg.InvalidCatalogNameError as error:
            raise StateError(
                f"there is no such database: {describe(error)}",
                hint="create it, with ENCODING 'UTF8', and an owner for pipecd",
            ) from None
        except LOST as error:
            attempt += 1
            pause = BACKOFF.pause_seconds_after(attempt)
            if time.monotonic() + pause > deadline:
                raise StateError(
                    f"the database does not answer: {describe(error)}",
                    hint="is it running, and reachable from here?",
                ) from error
            log.warning("database.waiting", error=describe(error), pause_seconds=pause)
            await asyncio.sleep(pause)


def _read_password(path: Path) -> str:
    try:
        return path.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the password of the database: {error}") from None


async def _reset(connection: asyncpg.Connection) -> None:
    """Makes a connection ready for its next user: nothing of ours outlives a transaction."""
    if connection.is_in_transaction():
        await connection.execute("ROLLBACK")
