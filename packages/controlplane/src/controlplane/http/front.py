# SPDX-License-Identifier: Apache-2.0
"""One address for everything: gRPC, gRPC-Web and HTTP/1.1, in plain text or under TLS.

Upstream's `apiAddress` expects that, and no proxy is needed before it. `switch` tells HTTP/2 from
the rest: it goes to the gRPC server through `relay`, anything else is uvicorn's. Requests of
gRPC-Web go to the same endpoints as gRPC, all others to the ASGI application.

A handler finds its caller's IP address in the metadata under `PEER`, whichever way the call came.
"""

import asyncio
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn

from controlplane.http.listen import BACKLOG, address_of, listen
from controlplane.http.relay import Relay
from controlplane.http.switch import ALPN, switch_protocol
from pipecd_model.errors import ConfigError
from pipecd_wire.rpc import Endpoints, Server
from pipecd_wire.rpc.web import GrpcWeb, Receive, Scope, Send, is_grpc_web

GRACE: Final = 10.0

LAST_BYTES: Final = 1.0
"""Seconds for what was answered to reach its caller when the grace is over."""

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
    own_folder: Path | None = None,
) -> AsyncIterator[str]:
    """Serve everything on one address while the block runs; the value is `host:port` as bound.

    Port 0 is a free one; AddressError when the address cannot be had. `app` is an ASGI application
    and gets no lifespan: who builds it opens and closes its parts. Signals are left alone.

    At the end no new call is taken, running ones have `grace` seconds. Whoever holds streams open
    without end should end them first, or each stop takes that long. `idle` seconds a kept-alive
    connection of HTTP/1.1 may wait for its next request, `silent` seconds a new connection for its
    first bytes; neither limits gRPC. `own_folder` belongs to this process alone and takes the
    private socket: what a killed predecessor left there is removed. Without it a temporary does.
    """
    context = tls.context() if tls is not None else None
    async with AsyncExitStack() as opened:
        listeners = await listen(host, port)
        for listener in listeners:
            opened.callback(listener.close)
        folder = opened.enter_context(_socket_folder(own_folder))
        tasks = await opened.enter_async_context(_task_group())
        relay = Relay(f"{folder}/grpc.sock", tasks)
        grpc = Server(endpoints, relayed=relay.clients)
        grpc.listen(f"unix:{folder}/grpc.sock")
        http = _http_server(
            _dispatch(app, endpoints), switch_protocol(relay, silent), context, idle
        )
        await grpc.start()
        await http.startup(sockets=listeners)
        ticking = tasks.create_task(_tick(http), name="front.tick")
        try:
            yield address_of(listeners[0])
        finally:
            relay.refuse()
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


async def _stop_http(http: uvicorn.Server, grace: float) -> None:
    try:
        async with asyncio.timeout(grace):
            await http.shutdown()
    except TimeoutError:
        for connection in list(http.server_state.connections):
            connection.transport.abort()
        # An application that sees its caller leave ends by itself; one that does not is cancelled.
        for task in await _running(http):
            task.cancel()
        await _running(http)


async def _running(http: uvicorn.Server) -> set[asyncio.Task[None]]:
    """The requests that are still worked on after a moment."""
    if not (tasks := set(http.server_state.tasks)):
        return set()
    _, running = await asyncio.wait(tasks, timeout=LAST_BYTES)
    return running


async def _stop_grpc(grpc: Server, relay: Relay, grace: float) -> None:
    await grpc.stop(grace)
    try:
        async with asyncio.timeout(LAST_BYTES):
            await relay.ended()
    except TimeoutError:
        relay.abort()
        await relay.ended()


@contextmanager
def _socket_folder(own: Path | None) -> Iterator[str]:
    """A folder that only this user can enter, for the socket between front and gRPC server."""
    if own is None or len(str(own.resolve() / "grpc.sock")) > LONGEST_SOCKET_PATH:
        with tempfile.TemporaryDirectory(prefix="pipecd-", dir=_short_folder()) as folder:
            yield folder
        return
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(mode=0o700, parents=True)
    try:
        yield str(own.resolve())
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _short_folder() -> str | None:
    """Where to make the folder of the socket: the system's choice, unless that is too long."""
    longest = Path(tempfile.gettempdir()) / "pipecd-xxxxxxxx" / "grpc.sock"
    return "/tmp" if len(str(longest)) > LONGEST_SOCKET_PATH else None  # noqa: S108 - mkdtemp's
