# SPDX-License-Identifier: Apache-2.0
"""The pool of connections to a server of PostgreSQL."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import asyncpg

from pipecd_controlplane.store.postgres.commit_records import NumberedConnection
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.failures import (
    LOST,
    UnreadablePasswordError,
    describe,
    explain_at_start,
)
from pipecd_model.errors import ConfigError, UnavailableError
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger

log = logger(__name__)

T = TypeVar("T")

BACKOFF: Final = Backoff(first_seconds=0.2, longest_seconds=3.0, jitter=0.5)

CONNECT_SECONDS: Final = 10
CLOSE_SECONDS: Final = 5
SILENCE_SECONDS: Final = 30
"""How long after the limit of a statement the server may still be silent before it counts as gone.
"""

DEAD_PEER: Final = {
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30s",
}
"""For the server: a control plane whose machine is gone keeps its locks no longer than that.

Without them its kernel waits for hours.
"""
DEAD_SERVER: Final = (
    ("SO_KEEPALIVE", socket.SOL_SOCKET, 1),
    ("TCP_KEEPIDLE", socket.IPPROTO_TCP, 5),
    ("TCP_KEEPINTVL", socket.IPPROTO_TCP, 3),
    ("TCP_KEEPCNT", socket.IPPROTO_TCP, 3),
    ("TCP_USER_TIMEOUT", socket.IPPROTO_TCP, 12_000),
)
"""The same for this side: options, their levels and values.

A server that is only slow still confirms what its machine gets.
"""

PATIENT: Final = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}
"""For what reads or indexes a whole table, in one transaction."""


class ConnectionPool:
    """Connections of one event loop, opened when they are needed and kept.

    A driver's own pool takes longer to hand out a connection than most of our statements take.
    """

    def __init__(self, server: PostgresServer, most: int) -> None:
        self._server = server
        self._free = asyncio.Semaphore(most)
        self._idle: list[NumberedConnection] = []
        self.most = most
        self.used = 0
        """How many are in use."""

    @property
    def idle(self) -> int:
        return len(self._idle)

    @asynccontextmanager
    async def acquired(self) -> AsyncIterator[NumberedConnection]:
        """Yields a connection.

        Raises UnavailableError when none gets free in time, and the errors of the driver.
        """
        await self._wait_free()
        self.used += 1
        connection: NumberedConnection | None = None
        try:
            connection = self._take_idle() or await _connect(self._server)
            yield connection
        except asyncio.CancelledError:
            if connection is not None:
                connection.terminate()  # a statement of it may still be running
            raise
        except UnreadablePasswordError:
            raise  # those that are open are as good as before
        except LOST:
            # The others have lost their server as well, and would fail one after the other.
            self._drop_idle()
            raise
        finally:
            self.used -= 1
            self._free.release()
            if connection is not None:
                self._give_back(connection)

    async def aclose(self) -> None:
        """Closes the connections, none of which is in use."""
        while self._idle:
            with contextlib.suppress(*LOST):
                await self._idle.pop().close(timeout=CLOSE_SECONDS)

    async def _wait_free(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        seconds = self._server.acquire_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
        except TimeoutError:
            raise UnavailableError(
                f"no connection to the database got free in {seconds:g} s",
                hint="it is slow, or has more to do than it can; try again later",
            ) from None

    def _take_idle(self) -> NumberedConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def _give_back(self, connection: "NumberedConnection") -> None:
        if connection.is_closed():
            return
        if connection.is_in_transaction():
            connection.terminate()  # its user was cut off in the middle of it
            return
        self._idle.append(connection)

    def _drop_idle(self) -> None:
        for connection in self._idle:
            connection.terminate()
        self._idle.clear()


async def connect(
    server: PostgresServer, *, is_patient: bool = False
) -> "asyncpg.Connection[asyncpg.Record]":
    """Returns a connection of its own, on which a patient caller's statements have no time limit.

    Raises StateError, ConfigError, or what LOST names.
    """
    with _explaining():
        return await _connect(server, is_patient=is_patient)


async def connect_plain(server: PostgresServer) -> "asyncpg.Connection[asyncpg.Record]":
    """Returns a connection without our settings, which leaves no trace in a session of others.

    Raises as `connect`.
    """
    with _explaining():
        return await _open(server)


async def _connect(server: PostgresServer, *, is_patient: bool = False) -> NumberedConnection:
    settings = _list_settings(server)
    if is_patient:
        settings |= PATIENT
    connection = await _open(server, is_patient=is_patient)
    try:
        # Poolers refuse most settings when a connection begins, and pass on those of a session.
        await connection.execute(
            "".join(f"SET {name} = '{value}';" for name, value in settings.items()),
            timeout=CONNECT_SECONDS,
        )
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _open(server: PostgresServer, *, is_patient: bool = False) -> NumberedConnection:
    options = await _read_options(server)
    if is_patient:
        options["command_timeout"] = None
    connection: NumberedConnection = await asyncpg.connect(
        server.url, connection_class=NumberedConnection, **options
    )
    _watch_server(connection)
    return connection


def _watch_server(connection: NumberedConnection) -> None:
    """Makes the kernel end the connection when the machine at its other end is gone."""
    # The driver has no way to set them.
    end = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined] # noqa: SLF001
    if end is None or end.family not in (socket.AF_INET, socket.AF_INET6):
        return
    for name, level, value in DEAD_SERVER:
        if (option := getattr(socket, name, None)) is not None:  # not every system has each
            end.setsockopt(level, option, value)


async def wait_answer(server: PostgresServer, ask: Callable[[], Awaitable[T]]) -> T:
    """Asks until the server answers, while this process starts.

    Raises StateError when it does not in time. What is asked for may be done twice.
    """
    deadline = 0.0
    attempt = 0
    while True:
        try:
            return await ask()
        except LOST as error:
            if attempt == 0:  # what was asked for may have taken its time
                deadline = time.monotonic() + server.wait_seconds
            attempt += 1
            pause = BACKOFF.pause_seconds_after(attempt)
            if time.monotonic() + pause > deadline:
                raise explain_at_start(error) from error
            log.warning("database.waiting", error=describe(error), pause_seconds=pause)
            await asyncio.sleep(pause)


@contextmanager
def _explaining() -> Iterator[None]:
    """Turns what no retry would change into a sentence."""
    try:
        yield
    except UnreadablePasswordError as error:
        raise ConfigError(f"cannot read the password of the database: {error}") from None
    except asyncpg.ClientConfigurationError as error:
        raise _refuse_url(f": {describe(error)}") from None
    except ValueError:
        # What it says quotes the URL, perhaps at the password.
        raise _refuse_url("") from None
    except (
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
        asyncpg.InsufficientPrivilegeError,
    ) as error:
        raise explain_at_start(error) from None


def _refuse_url(why: str) -> ConfigError:
    return ConfigError(
        f"the URL of the database cannot be used{why}",
        hint="postgresql://USER@HOST:5432/DATABASE; a password is in passwordFile, or has its"
        " special characters percent-encoded",
    )


def _list_settings(server: PostgresServer) -> dict[str, str]:
    return {
        # What a dead control plane has left open holds up nobody for ever.
        "idle_in_transaction_session_timeout": "60s",
        "lock_timeout": f"{round(server.lock_seconds * 1000)}ms",
        "statement_timeout": f"{round(server.statement_seconds * 1000)}ms",
        **DEAD_PEER,
    }


async def _read_options(server: PostgresServer) -> dict[str, Any]:
    options: dict[str, Any] = {
        "timeout": CONNECT_SECONDS,
        "command_timeout": server.statement_seconds + SILENCE_SECONDS,
        "server_settings": {"application_name": "pipecd", "timezone": "UTC"},
    }
    path = server.password_file
    if path is not None:
        await asyncio.to_thread(_read_password, path)

        async def read_password() -> str:
            # Anew for each connection: a password that is changed there needs no restart.
            return await asyncio.to_thread(_read_password, path)

        options["password"] = read_password
    return options


def _read_password(path: Path) -> str:
    try:
        return path.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadablePasswordError(str(error)) from None
