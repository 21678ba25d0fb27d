# SPDX-License-Identifier: Apache-2.0
"""Accepts new connections: as many as there is room for, a few at a time, with TLS handshake.

A balancer that speaks the PROXY protocol names the client before that.

asyncio's own server accepts all that wait, and logs a traceback for each one that it has no
descriptor for. Here a connection is refused or admitted before anything is spent on it.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pipecd_controlplane.http.addresses import TrustedProxies
from pipecd_controlplane.http.connections import ClientConnection, Connections
from pipecd_controlplane.http.listen import BACKLOG
from pipecd_controlplane.http.proxy_protocol import ProxyHeaderError, read_proxy_header
from pipecd_runtime.logs import logger

log = logger(__name__)

AT_ONCE: Final = 16
"""Connections that are accepted before other tasks run."""

PAUSE_SECONDS: Final = 0.2
"""How long none is accepted when the system has no descriptor left."""

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

MakeProtocol = Callable[[ClientConnection], asyncio.Protocol]


class Acceptor:
    """Accepts connections from the listeners, and makes a protocol for each."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        connections: Connections,
        make_protocol: MakeProtocol,
        tasks: asyncio.TaskGroup,
        *,
        highest_descriptor: int,
        tls: ssl.SSLContext | None = None,
        handshake_seconds: float = 10.0,
        balancers: TrustedProxies | None = None,
        header_seconds: float = 10.0,
    ) -> None:
        """`balancers` must send a header of the PROXY protocol, within `header_seconds`."""
        self._listeners = listeners
        self._connections = connections
        self._make_protocol = make_protocol
        self._tasks = tasks
        self._highest_descriptor = highest_descriptor
        self._tls = tls
        self._handshake_seconds = handshake_seconds
        self._balancers = balancers or TrustedProxies()
        self._header_seconds = header_seconds
        self._loop = asyncio.get_running_loop()
        self._is_open = False
        self._opening: set[socket.socket] = set()

    def start(self) -> None:
        self._is_open = True
        for listener in self._listeners:
            listener.listen(BACKLOG)
            self._loop.add_reader(listener, self._accept, listener)

    def stop(self) -> None:
        """Stops accepting, and refuses the connections that still wait."""
        self._is_open = False
        for listener in self._listeners:
            if listener.fileno() >= 0:
                self._loop.remove_reader(listener)
                listener.close()
        for client in self._opening:
            _hang_up(client)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                client, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                log.warning("front.exhausted", error=error.strerror)
                self._loop.remove_reader(listener)
                self._loop.call_later(PAUSE_SECONDS, self._resume, listener)
                return
            self._take(client, str(peer[0]))

    def _resume(self, listener: socket.socket) -> None:
        if self._is_open:
            self._loop.add_reader(listener, self._accept, listener)

    def _take(self, client: socket.socket, peer: str) -> None:
        connection = self._connections.admit(peer, partial(_hang_up, client))
        # The lowest free number is taken: one in the reserve means that all below are in use.
        if connection is None or client.fileno() >= self._highest_descriptor:
            _log_no_room(peer)
            client.close()
            if connection is not None:
                connection.leave()
            return
        client.setblocking(False)
        self._opening.add(client)
        self._tasks.create_task(self._open(client, connection), name="front.open")

    async def _open(self, client: socket.socket, connection: ClientConnection) -> None:
        try:
            if self._balancers.is_trusted(connection.peer) and not await self._find_client(
                client, connection
            ):
                return
            await self._loop.connect_accepted_socket(
                lambda: self._make_protocol(connection),
                client,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_seconds if self._tls else None,
            )
        except OSError as error:  # of the handshake: its limit, its end, or what was no TLS
            # The frames hold the error, and the buffers of TLS: a cycle that would live for long.
            traceback.clear_frames(error.__traceback__)
        finally:
            self._opening.discard(client)
            if connection.transport is None:
                connection.leave()

    async def _find_client(self, client: socket.socket, connection: ClientConnection) -> bool:
        """Reads whose connection it is; closes it and returns False when it cannot be served."""
        has_room = False
        deadline = connection.accepted_at + self._header_seconds
        connection.expect(deadline, partial(connection.abort, "no PROXY header in time"))
        try:
            named = await read_proxy_header(client)
            has_room = connection.readdress(named)
            if not has_room and not connection.is_leaving:
                _log_no_room(named or connection.peer)
        except ProxyHeaderError as error:
            if not connection.is_leaving:
                reason = f"no PROXY header: {error}"
                log.warning("front.refused", reason=reason, peer=connection.peer)
        except OSError:
            pass  # it has gone: a check of a balancer's, or it was ended here
        finally:
            if not has_room:
                client.close()
        connection.relax()
        return has_room


def _log_no_room(peer: str) -> None:
    log.info("front.refused", reason="no room", peer=peer)


def _hang_up(client: socket.socket) -> None:
    """Ends a connection that asyncio is still opening: asyncio then closes the socket itself."""
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
