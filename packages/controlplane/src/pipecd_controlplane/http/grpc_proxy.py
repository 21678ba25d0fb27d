# SPDX-License-Identifier: Apache-2.0
"""Proxies HTTP/2 connections to the gRPC server of this process.

Called by `server` for each connection that turns out to be HTTP/2. The gRPC library listens by
itself and cannot be handed a connection, so each one gets a connection of its own to the server's
unix socket. The two sides live and end together, and neither is read faster than the other is
written. A stranger's frames pass within its limits (`http2`), until a call of it is authenticated.
"""

import asyncio
import socket
from abc import ABC, abstractmethod
from typing import Final, cast

from pipecd_controlplane.http.addresses import TrustedProxies
from pipecd_controlplane.http.connections import GRPC_DESCRIPTORS, ClientConnection
from pipecd_controlplane.http.http2 import (
    ENHANCE_YOUR_CALM,
    NO_ERROR,
    ClientFrames,
    FrameLimitError,
    ServerFrames,
    StrangerCalls,
    goaway,
)
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_runtime.logs import logger
from pipecd_wire.rpc import Metadata, RelayedClient

log = logger(__name__)

DIAL_TIMEOUT_SECONDS: Final = 5.0
"""How long the gRPC server may take to accept a connection; it takes microseconds."""

READ_BYTES: Final = 64 * 1024
"""How much is read at once. All connections are read into the same buffer: a buffer for each read
takes longer to allocate and free than the read itself takes, 10 µs against 1."""

FLUSH_TIMEOUT_SECONDS: Final = 10.0
"""How long a client may take to read the last bytes after the server has closed."""


class GrpcProxy:
    """All connections between clients and the gRPC server at `path`."""

    def __init__(
        self,
        path: str,
        tasks: asyncio.TaskGroup,
        limits: FrontLimitsConfig | None = None,
        proxies: TrustedProxies | None = None,
    ) -> None:
        self.clients: dict[str, RelayedClient] = {}
        """The clients, by the name that the gRPC server sees in their place."""
        self.refusing = False
        self.limits = limits or FrontLimitsConfig()
        self.proxies = proxies or TrustedProxies()
        self.stranger_calls = StrangerCalls(self.limits.max_stranger_calls)
        self._path = path
        self._tasks = tasks
        self._sides: set[_Side] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.buffer = memoryview(bytearray(READ_BYTES))
        """Where a side's bytes are read; what was read before is overwritten."""

    def take(
        self,
        transport: asyncio.Transport,
        first: bytes,
        connection: ClientConnection | None = None,
    ) -> None:
        """Proxies a client's connection from now on; `first` is what was read of it already.

        Without a `connection` it has no limits.
        """
        client = _Client(self, transport, first, connection)
        transport.pause_reading()
        transport.set_protocol(client)
        if connection is not None and not connection.grow(GRPC_DESCRIPTORS):
            connection.abort("no room")
            return
        self._tasks.create_task(self._dial(client), name="grpc_proxy.dial")

    def refuse(self) -> None:
        """Refuses new connections from now on, also those that were accepted just before."""
        self.refusing = True

    def abort(self) -> None:
        """Aborts all open connections; bytes that are not sent yet are lost."""
        for side in list(self._sides):
            side.transport.abort()

    async def wait_ended(self) -> None:
        """Waits until no connection is left."""
        await self._empty.wait()

    def add_side(self, side: "_Side") -> None:
        self._sides.add(side)
        self._empty.clear()

    def remove_side(self, side: "_Side") -> None:
        self._sides.discard(side)
        if not self._sides:
            self._empty.set()

    async def _dial(self, client: "_Client") -> None:
        loop = asyncio.get_running_loop()
        try:
            end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            log.warning("front.exhausted", error=error.strerror)
            client.transport.abort()
            return
        end.setblocking(False)
        try:
            # The kernel picks a free abstract name. It is how the gRPC server names its peer, and
            # so the key under which a call finds the client.
            end.bind("")
            client.name = f"unix-abstract:{end.getsockname()[1:].decode()}"
            self.clients[client.name] = client
            async with asyncio.timeout(DIAL_TIMEOUT_SECONDS):
                while not _try_connect(end, self._path):  # noqa: ASYNC110 - no event to wait for
                    await asyncio.sleep(0.01)
                await loop.create_unix_connection(lambda: _Server(self, client), sock=end)
        except OSError:  # a TimeoutError is one, too
            log.bug("front.dial_failed")
            end.close()
            client.transport.abort()


class _Side(asyncio.BufferedProtocol, ABC):
    """One end of a proxied connection: what it reads, its peer writes."""

    transport: asyncio.Transport

    def __init__(self, proxy: GrpcProxy) -> None:
        self._proxy = proxy
        self._flushing: asyncio.TimerHandle | None = None

    @property
    @abstractmethod
    def peer(self) -> "_Side | None":
        """The other end; None while the gRPC server is not reached yet."""

    @abstractmethod
    def receive(self, data: bytes) -> None:
        """Takes what was read from this end."""

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._proxy.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.receive(self._proxy.buffer[:nbytes].tobytes())

    def read_on(self, *, wanted: bool) -> None:
        """Resumes or pauses reading, as the peer's write buffer has room or not."""
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        if self.peer is not None:
            self.peer.read_on(wanted=False)

    def resume_writing(self) -> None:
        if self.peer is not None:
            self.peer.read_on(wanted=True)

    def connection_lost(self, error: Exception | None) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._proxy.remove_side(self)
        if self.peer is not None:
            self.peer.finish()

    def finish(self) -> None:
        """Drains what is left after the peer has gone, for a limited time, and closes."""
        if not self.transport.is_closing():
            self.transport.close()
            loop = asyncio.get_running_loop()
            self._flushing = loop.call_later(FLUSH_TIMEOUT_SECONDS, self.transport.abort)


class _Client(_Side):
    """The client's end; to the gRPC server it is a `RelayedClient`."""

    def __init__(
        self,
        proxy: GrpcProxy,
        transport: asyncio.Transport,
        early: bytes,
        connection: ClientConnection | None,
    ) -> None:
        super().__init__(proxy)
        self.name = ""
        self.transport = transport
        self.answers: ServerFrames | None = None
        connected = (transport.get_extra_info("peername") or ("",))[0]
        self._ip = str(connected) if connection is None else connection.peer
        self._server: _Server | None = None
        self._waiting = early
        self._is_server_full = False
        self._connection = connection
        self._frames: ClientFrames | None = None
        proxy.add_side(self)
        if connection is not None:
            self._frames = ClientFrames(proxy.limits, proxy.stranger_calls)
            self.answers = ServerFrames(self._end_call)
            limit = proxy.limits.identify_timeout.total_seconds()
            connection.expect(connection.accepted_at + limit, self._expire)

    @property
    def peer(self) -> "_Server | None":
        return self._server

    def connect(self, server: "_Server") -> None:
        """Forwards the bytes that have waited until the gRPC server was connected."""
        self._server = server
        self._pass_waiting()

    def receive(self, data: bytes) -> None:
        if self._waiting or self._server is None:
            self._waiting += data
        else:
            self._pass(data)

    def eof_received(self) -> bool:
        """Forwards a client's half-close and keeps the other direction, if its transport can."""
        if self._waiting or self._server is None or not self.transport.can_write_eof():
            return False
        self._server.transport.write_eof()
        return True

    def read_on(self, *, wanted: bool) -> None:
        self._is_server_full = not wanted
        self._update_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._connection is not None:
            self._connection.stall()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._connection is not None:
            self._connection.flow()

    def connection_lost(self, error: Exception | None) -> None:
        self._proxy.clients.pop(self.name, None)
        self._waiting = b""
        if self._frames is not None:
            self._frames.leave()
        if self._connection is not None:
            self._connection.leave()
        super().connection_lost(error)

    def address(self, metadata: Metadata) -> str:
        if not self._proxy.proxies:
            return self._ip
        return self._proxy.proxies.find_client(self._ip, metadata.get("x-forwarded-for", ""))

    def identify(self) -> None:
        if self.answers is None:
            return  # it was identified before, or has no limits
        self.answers = None
        if self._connection is not None:
            self._connection.identify()
            self._connection.relax()
        if self._frames is not None:
            self._frames.identify()
        self._pass_waiting()

    def abort(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.abort(reason)
        else:
            self.transport.abort()

    def _pass(self, data: bytes) -> None:
        server = self._server
        if server is None or self.transport.is_closing():
            return
        if self._frames is None:
            server.transport.write(data)
            return
        try:
            passed, self._waiting = self._frames.feed(data)
        except FrameLimitError as error:
            self._say_goodbye(ENHANCE_YOUR_CALM, str(error))
            return
        if passed:
            server.transport.write(passed)
        if self._frames.is_known:
            return
        if self._connection is not None:
            self._connection.hold(self._frames.held_bytes)
        if self._waiting:
            self._update_reading()
            if not self._frames.is_full():
                self._proxy.stranger_calls.wait(self._pass_waiting)

    def _pass_waiting(self) -> None:
        if self._server is not None and not self.transport.is_closing():
            data, self._waiting = self._waiting, b""
            if data:
                self._pass(data)
            self._update_reading()

    def _end_call(self, stream: int) -> None:
        if self._frames is not None:
            self._frames.close_stream(stream)
            if self._waiting:
                self._pass_waiting()

    def _update_reading(self) -> None:
        if self._waiting or self._is_server_full:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _expire(self) -> None:
        self._say_goodbye(NO_ERROR, "no call was let in")

    def _say_goodbye(self, code: int, reason: str) -> None:
        """Sends a GOAWAY frame, if no other frame is half sent, and ends the connection."""
        self._waiting = b""
        if self.answers is None or not self.answers.is_between_frames():
            self.abort(reason)
            return
        log.info("front.closed", reason=reason, peer=self._ip)
        self.transport.write(goaway(code))
        self.transport.close()
        if self._server is not None:
            self._server.transport.abort()


class _Server(_Side):
    """The gRPC server's end."""

    def __init__(self, proxy: GrpcProxy, client: _Client) -> None:
        super().__init__(proxy)
        self._client = client

    @property
    def peer(self) -> _Client:
        return self._client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connects the waiting client to the gRPC server."""
        self.transport = cast(asyncio.Transport, transport)
        self._proxy.add_side(self)
        if self._client.transport.is_closing():
            self.transport.abort()
        else:
            self._client.connect(self)

    def receive(self, data: bytes) -> None:
        if self._client.answers is not None:
            self._client.answers.feed(data)
        self._client.transport.write(data)

    def eof_received(self) -> bool:
        """Returns False, which closes: the gRPC server always closes both directions at once."""
        return False


def _try_connect(end: socket.socket, path: str) -> bool:
    """Connects to a unix socket without waiting; returns False when its backlog is full."""
    try:
        end.connect(path)
    except BlockingIOError:
        return False
    return True
