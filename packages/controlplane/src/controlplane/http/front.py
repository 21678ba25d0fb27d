# SPDX-License-Identifier: Apache-2.0
"""One address for everything: gRPC, gRPC-Web and HTTP/1.1, in plain text or under TLS.

Upstream's `apiAddress` expects that, and no proxy is needed before it. A connection is judged once,
by ALPN or by its first bytes: HTTP/2 goes to the gRPC server through `relay`, anything else is
uvicorn's. Requests of gRPC-Web go to the same endpoints as gRPC, others to the ASGI application.

A handler finds its caller's IP address in the metadata under `PEER`, whichever way the call came.
"""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from controlplane.http.listen import BACKLOG, address_of, listen
from controlplane.http.relay import Relay
from pipecd_model.errors import ConfigError
from pipecd_wire.rpc import Endpoints, Server
from pipecd_wire.rpc.web import GrpcWeb, Receive, Scope, Send, is_grpc_web

GRACE: Final = 10.0

# Browsers offer both and get the first of these, because gRPC-Web and pages come over HTTP/1.1.
# gRPC clients offer `h2` alone.
ALPN: Final = ["http/1.1", "h2"]

PREFACE: Final = b"PRI"
"""How every HTTP/2 connection begins, and no request of HTTP/1.1 does."""

LONGEST_SOCKET_PATH: Final = 100
"""The system's limit is 108 bytes, the end of the string included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontTls:
    """The server's certificate chain and key: files with PEM in them."""

    cert_file: Path
    key_file: Path

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(ALPN)
        try:
            context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:  # ssl.SSLError is one, too
            raise ConfigError(
                f"cannot use certificate {str(self.cert_file)!r} with key {str(self.key_file)!r}: "
                f"{error.strerror or error}",
                hint="both must be readable PEM files that belong together",
            ) from error
        return context


@asynccontextmanager
async def serve_front(
    app: Any,
    endpoints: Endpoints,
    host: str,
    port: int,
    *,
    tls: FrontTls | None = None,
    grace: float = GRACE,
    idle: int = 65,
    silent: float = 30,
) -> AsyncIterator[str]:
    """Serve everything on one address while the block runs; the value is `host:port` as bound.

    Port 0 is a free one; AddressError when the address cannot be had. `app` is an ASGI application
    and gets no lifespan: who builds it opens and closes its parts. Signals are left alone.

    At the end no new call is taken, running ones have `grace` seconds. Whoever holds streams open
    without end should end them first, or each stop takes that long. `idle` seconds a kept-alive
    connection of HTTP/1.1 may wait for its next request, `silent` seconds a new connection for its
    first bytes; neither limits gRPC.
    """
    context = tls.context() if tls is not None else None
    async with AsyncExitStack() as opened:
        listeners = await listen(host, port)
        for listener in listeners:
            opened.callback(listener.close)
        folder = opened.enter_context(
            tempfile.TemporaryDirectory(prefix="pipecd-", dir=_short_folder())
        )
        tasks = await opened.enter_async_context(_task_group())
        relay = Relay(f"{folder}/grpc.sock", tasks)
        grpc = Server(endpoints, relayed=relay.clients)
        grpc.listen(f"unix:{folder}/grpc.sock")
        http = _http_server(_dispatch(app, endpoints), _protocol(relay, silent), context, idle)
        await grpc.start()
        await http.startup(sockets=listeners)
        ticking = tasks.create_task(_tick(http), name="front.tick")
        try:
            yield address_of(listeners[0])
        finally:
            async with asyncio.TaskGroup() as stopping:
                stopping.create_task(_stop_http(http, grace))
                stopping.create_task(_stop_grpc(grpc, relay, grace))
            ticking.cancel()


@asynccontextmanager
async def _task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that lets an error of the block itself through as it is, not wrapped."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        try:
            yield tasks
        except Exception as error:  # noqa: BLE001 - raised below
            failure = error
    if failure is not None:
        raise failure


def _dispatch(app: Any, endpoints: Endpoints) -> Any:
    web = GrpcWeb(endpoints)

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        await (web if is_grpc_web(scope) else app)(scope, receive, send)

    return dispatch


def _http_server(
    app: Any, protocol: type[asyncio.Protocol], context: ssl.SSLContext | None, idle: int
) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http=protocol,
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        # An address in a header is believed by nobody here; gRPC would not see it either.
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=idle,
        ssl_context_factory=(lambda _config, _default: context) if context is not None else None,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    return server


async def _tick(http: uvicorn.Server) -> None:
    """Keep the `date` header right. uvicorn's own loop would also wait for its signals."""
    while True:
        await http.on_tick(0)
        await asyncio.sleep(1)


def _protocol(to: Relay, limit: float) -> type[asyncio.Protocol]:
    """The protocol class of this front; uvicorn makes an instance per connection."""

    class BoundSwitch(Switch):
        relay = to
        silent = limit

    return BoundSwitch


class Switch(asyncio.Protocol):
    """Looks at the beginning of a connection, and hands it to the one who can read it."""

    relay: Relay
    silent: float

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._http = partial(HttpToolsProtocol, config, server_state, app_state, _loop)
        # Known to uvicorn while undecided, so that it is closed when uvicorn stops.
        self._undecided = cast(set[Any], server_state.connections)
        self._first = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if secured is not None and secured.selected_alpn_protocol() == "h2":
            self.relay.take(self._transport, b"")
            return
        self._undecided.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.silent, self._transport.close)

    def data_received(self, data: bytes) -> None:
        self._first += data
        if len(self._first) < len(PREFACE) and PREFACE.startswith(self._first):
            return
        self._leave()
        if self._first.startswith(PREFACE):
            self.relay.take(self._transport, self._first)
        else:
            http = self._http()
            self._transport.set_protocol(http)
            http.connection_made(self._transport)
            http.data_received(self._first)

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()

    def shutdown(self) -> None:
        """Called by uvicorn when it stops."""
        self._transport.close()

    def _leave(self) -> None:
        self._undecided.discard(self)
        if self._timer is not None:
            self._timer.cancel()


async def _stop_http(http: uvicorn.Server, grace: float) -> None:
    try:
        async with asyncio.timeout(grace):
            await http.shutdown()
    except TimeoutError:
        for connection in list(http.server_state.connections):
            connection.transport.abort()
        # An application that sees its caller leave ends by itself; one that does not is cancelled.
        if running := set(http.server_state.tasks):
            _, stuck = await asyncio.wait(running, timeout=1)
            for task in stuck:
                task.cancel()


async def _stop_grpc(grpc: Server, relay: Relay, grace: float) -> None:
    await grpc.stop(grace)
    relay.abort()
    await relay.ended()


def _short_folder() -> str | None:
    """Where to make the folder of the socket: the system's choice, unless that is too long."""
    longest = Path(tempfile.gettempdir()) / "pipecd-xxxxxxxx" / "grpc.sock"
    return "/tmp" if len(str(longest)) > LONGEST_SOCKET_PATH else None  # noqa: S108 - mkdtemp's
