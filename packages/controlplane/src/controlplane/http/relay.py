# SPDX-License-Identifier: Apache-2.0
"""Carry the bytes of HTTP/2 connections to the gRPC server of this process, and back.

Called by `front` for each connection that turns out to be HTTP/2. The gRPC library listens by
itself and cannot be handed a connection, so each one gets a connection of its own to the server's
unix socket. The two sides live and end together, and neither is read faster than the other is
written.
"""

import asyncio
import socket
from typing import Final, cast

from pipecd_model.oplog import logger

log = logger(__name__)

DIAL_LIMIT: Final = 5.0
"""Seconds until the gRPC server must have taken a connection; it does so in microseconds."""

FLUSH_LIMIT: Final = 10.0
"""Seconds in which a client takes the last bytes of a connection that its server has closed."""


class Relay:
    """All connections between clients and the gRPC server at `path`."""

    def __init__(self, path: str, tasks: asyncio.TaskGroup) -> None:
        self.clients: dict[str, str] = {}
        """IP addresses of the clients, by the name that the gRPC server sees in their place."""
        self.refusing = False
        self._path = path
        self._tasks = tasks
        self._sides: set[_Side] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def take(self, transport: asyncio.Transport, first: bytes) -> None:
        """Take over a client's connection; `first` is what was read of it already."""
        client = _Side(self, transport, early=first)
        transport.pause_reading()
        transport.set_protocol(client)
        self._tasks.create_task(self._dial(client), name="relay.dial")

    def refuse(self) -> None:
        """Take no connection any more: one may still come that was accepted before the end."""
        self.refusing = True

    def abort(self) -> None:
        """End whatever is still open, unsent bytes included."""
        for side in list(self._sides):
            side.transport.abort()

    async def ended(self) -> None:
        """Wait until no connection is left."""
        await self._empty.wait()

    def opened(self, side: "_Side") -> None:
        self._sides.add(side)
        self._empty.clear()

    def closed(self, side: "_Side") -> None:
        self._sides.discard(side)
        if not self._sides:
            self._empty.set()

    async def _dial(self, client: "_Side") -> None:
        loop = asyncio.get_running_loop()
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end.setblocking(False)
        try:
            # The kernel picks a free abstract name. It is how the gRPC server names its peer, and
            # so the key under which a call finds the client's address.
            end.bind("")
            client.name = f"unix-abstract:{end.getsockname()[1:].decode()}"
            self.clients[client.name] = _ip(client.transport)
            async with asyncio.timeout(DIAL_LIMIT):
                while not _connected(end, self._path):  # noqa: ASYNC110 - nothing tells when
                    await asyncio.sleep(0.01)
                await loop.create_unix_connection(lambda: _Side(self, peer=client), sock=end)
        except OSError:  # a TimeoutError is one, too
            log.bug("front.dial_failed")
            end.close()
            client.transport.abort()


class _Side(asyncio.Protocol):
    """One end of a relayed connection: what it reads, its peer writes."""

    transport: asyncio.Transport

    def __init__(
        self,
        relay: Relay,
        transport: asyncio.Transport | None = None,
        *,
        peer: "_Side | None" = None,
        early: bytes = b"",
    ) -> None:
        self.name = ""
        self._relay = relay
        # The gRPC server speaks first, so its side must know where to write from the start.
        self._peer = peer
        self._is_server = peer is not None
        self._early = early
        self._flushing: asyncio.TimerHandle | None = None
        if transport is not None:
            self.transport = transport
            relay.opened(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server's side is connected: let the waiting client through."""
        self.transport = cast(asyncio.Transport, transport)
        self._relay.opened(self)
        client = self._peer
        if client is None or client.transport.is_closing():
            self.transport.abort()
            return
        client._peer = self  # noqa: SLF001 - the other half of the same object
        self.transport.write(client._early)  # noqa: SLF001
        client._early = b""  # noqa: SLF001
        client.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._peer is None:
            self._early += data
        else:
            self._peer.transport.write(data)

    def eof_received(self) -> bool:
        """Pass a client's half-close on and keep its other direction, where its transport can.

        The server closes both directions at once: its end is the end.
        """
        if self._is_server or self._peer is None or not self.transport.can_write_eof():
            return False
        self._peer.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self._peer is not None:
            self._peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._peer is not None:
            self._peer.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._relay.clients.pop(self.name, None)
        self._relay.closed(self)
        if self._peer is not None:
            self._peer.finish()

    def finish(self) -> None:
        """The peer is gone: send what is left, but do not wait for ever for it to be taken."""
        if not self.transport.is_closing():
            self.transport.close()
            loop = asyncio.get_running_loop()
            self._flushing = loop.call_later(FLUSH_LIMIT, self.transport.abort)


def _connected(end: socket.socket, path: str) -> bool:
    """Connect to a unix socket, which happens at once; False when its queue is full right now."""
    try:
        end.connect(path)
    except BlockingIOError:
        return False
    return True


def _ip(transport: asyncio.Transport) -> str:
    return str((transport.get_extra_info("peername") or ("",))[0])
