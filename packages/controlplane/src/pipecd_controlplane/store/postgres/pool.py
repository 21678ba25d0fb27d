# SPDX-License-Identifier: Apache-2.0
"""The pool of connections to a server of PostgreSQL."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
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

CONNECT_SECONDS: Final = 10
COMMAND_SECONDS: Final = 150

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
    options = await _read_options(server)
    with _explaining():
        pool = asyncpg.create_pool(
            server.url,
            min_size=0,
            max_size=server.connections,
            command_timeout=COMMAND_SECONDS,
            reset=_reset,
            **options,
        )
        await pool
    try:
        yield pool
    finally:
        await pool.close()


async def connect(server: PostgresServer) -> "asyncpg.Connection[asyncpg.Record]":
    """Returns a connection of its own. Raises StateError, ConfigError, or what LOST names."""
    options = await _read_options(server)
    with _explaining():
        return await asyncpg.connect(server.url, command_timeout=COMMAND_SECONDS, **options)


async def wait_reachable(server: PostgresServer) -> None:
    """Waits until the server answers. Raises StateError when it does not in time."""
    deadline = time.monotonic() + server.wait_seconds
    attempt = 0
    while True:
        try:
            connection = await connect(server)
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
        else:
            await connection.close()
            return


@contextmanager
def _explaining() -> Iterator[None]:
    """Turns what no retry would change into a sentence."""
    try:
        yield
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


async def _read_options(server: PostgresServer) -> dict[str, Any]:
    options: dict[str, Any] = {"timeout": CONNECT_SECONDS, "server_settings": SESSION}
    if server.password_file is not None:
        options["password"] = await asyncio.to_thread(_read_password, server.password_file)
    return options


def _read_password(path: Path) -> str:
    try:
        return path.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the password of the database: {error}") from None


async def _reset(connection: asyncpg.Connection) -> None:
    """Makes a connection ready for its next user: nothing of ours outlives a transaction."""
    if connection.is_in_transaction():
        await connection.execute("ROLLBACK")
