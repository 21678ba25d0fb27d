# SPDX-License-Identifier: Apache-2.0
"""One address for everything: gRPC, gRPC-Web and HTTP/1.1, in plain text or under TLS.

Upstream's `apiAddress` expects that, and no proxy is needed before it. `protocol_detect`
finds out whether a connection is HTTP/2, which goes to the gRPC server through `grpc_proxy`;
anything else is uvicorn's (`http1`). Requests of gRPC-Web go to the same endpoints as gRPC, all
others to the ASGI application. `accept` accepts the connections, `connections` enforces their
limits and deadlines.

A handler finds its caller's IP address in the metadata under `PEER`, whichever way the call came.
"""

import asyncio
import os
import shutil
import ssl
import tempfile
from asyncio import sslproto
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn

from pipecd_controlplane.http.accept import Acceptor
from pipecd_controlplane.http.addresses import TrustedProxies
from pipecd_controlplane.http.bodies import BoundedBodies
from pipecd_controlplane.http.connections import ClientConnection, Connections
from pipecd_controlplane.http.descriptors import highest_descriptor, room_for_connections
from pipecd_controlplane.http.grpc_proxy import GrpcProxy
from pipecd_controlplane.http.hooks import HOOKS_PATH
from pipecd_controlplane.http.http1 import CONNECTION, BoundedHttp
from pipecd_controlplane.http.listen import address_of, listening
from pipecd_controlplane.http.origin import screen_cookies
from pipecd_controlplane.http.protocol_detect import ALPN, ProtocolDetector
from pipecd_controlplane.http.uvicorn_server import (
    LAST_BYTES_SECONDS,
    accepting,
    make_http_server,
    stop_http,
)
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_model.errors import ConfigError
from pipecd_runtime.tasks import UnwrappedTaskGroup
from pipecd_wire.rpc import CallLimits, Endpoints, Server
from pipecd_wire.rpc.web import GrpcWeb, Receive, Scope, Send, is_grpc_web

GRACE_SECONDS: Final = 10.0

TLS_BUFFER: Final = 32 * 1024
"""Bytes; the longest record of TLS has 16 KiB."""

WINDOW_BYTES: Final = 64 * 1024
"""How much of a call may arrive before it is authenticated; the initial window of HTTP/2."""

DEFAULT_LIMITS: Final = FrontLimitsConfig()

LONGEST_SOCKET_PATH: Final = 100
"""The system's limit is 108 bytes, the end of the string included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """The server's certificate chain and key: files with PEM in them."""

    cert_file: Path
    key_file: Path

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(ALPN)
        _shrink_tls_buffers()
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
async def serve_public(
    app: Any,
    endpoints: Endpoints,
    host: str,
    port: int,
    *,
    tls: CertificateFiles | None = None,
    grace_seconds: float = GRACE_SECONDS,
    limits: FrontLimitsConfig = DEFAULT_LIMITS,
    trusted_proxies: Iterable[str] = (),
    proxy_protocol: bool = False,
    public_url: str = "",
    own_folder: Path | None = None,
) -> AsyncIterator[str]:
    """Serves everything on one address while the block runs; yields `host:port` as bound.

    Port 0 is a free one. Raises AddressError when the address cannot be listened on. `app` is an
    ASGI application and gets no lifespan: the caller opens and closes its parts. No signal handler
    is set.

    At the end no new call is accepted, running ones have `grace_seconds` to finish. A caller whose
    handlers keep streams open should end them first, or each stop takes that long. `own_folder`
    belongs to this process alone and holds the private socket: what a killed predecessor left there
    is removed. Without it a temporary folder is used. `public_url` is where browsers reach it.
    With `proxy_protocol` the trusted proxies name clients by it, not by `X-Forwarded-For`.
    """
    context = tls.context() if tls is not None else None
    proxies = TrustedProxies(trusted_proxies)
    nobody = TrustedProxies()
    # What comes by the PROXY protocol is as its client wrote it, `X-Forwarded-For` included.
    balancers, forwarders = (proxies, nobody) if proxy_protocol else (nobody, proxies)
    async with AsyncExitStack() as opened:
        listeners = await opened.enter_async_context(listening(host, port))
        address = address_of(listeners[0])
        folder = opened.enter_context(_socket_folder(own_folder))
        tasks = await opened.enter_async_context(UnwrappedTaskGroup())
        highest = highest_descriptor(limits.descriptor_reserve)
        connections = Connections(limits, room_for_connections(limits, highest), proxies)
        proxy = GrpcProxy(f"{folder}/grpc.sock", tasks, limits, forwarders)
        grpc = Server(endpoints, limits=_call_limits(limits), relayed=proxy.clients)
        grpc.listen(f"unix:{folder}/grpc.sock")
        http = make_http_server(
            _dispatch(app, endpoints, limits, public_url),
            limits.keep_alive_timeout,
        )
        acceptor = Acceptor(
            listeners,
            connections,
            _make_detect(proxy, http, limits, forwarders),
            tasks,
            highest_descriptor=highest,
            tls=context,
            handshake_seconds=limits.tls_handshake_timeout.total_seconds(),
            balancers=balancers,
            header_seconds=limits.header_timeout.total_seconds(),
        )
        stop = partial(_stop_all, http, grpc, proxy, grace_seconds)
        await grpc.start()
        async with accepting(acceptor, http, connections, limits, tasks, stop=stop):
            yield address


def _make_detect(
    proxy: GrpcProxy, http: uvicorn.Server, limits: FrontLimitsConfig, proxies: TrustedProxies
) -> Callable[[ClientConnection], ProtocolDetector]:
    """Returns what makes the detector of a new connection."""

    def speak_http(connection: ClientConnection) -> BoundedHttp:
        return BoundedHttp(http.config, http.server_state, connection, limits, proxies)

    def detect(connection: ClientConnection) -> ProtocolDetector:
        header_seconds = limits.header_timeout.total_seconds()
        return ProtocolDetector(connection, proxy, speak_http, header_seconds)

    return detect


def _dispatch(app: Any, endpoints: Endpoints, limits: FrontLimitsConfig, public_url: str) -> Any:
    def identify(scope: Scope) -> None:
        scope[CONNECTION].identify()

    web = GrpcWeb(
        endpoints,
        max_message=limits.max_message_bytes,
        screen=screen_cookies(public_url),
        identified=identify,
    )
    pages = BoundedBodies(app, limits.max_form_bytes)
    hooks = BoundedBodies(
        app,
        limits.max_hook_bytes,
        refusal=f"refused: the body has more than {limits.max_hook_bytes} bytes (maxHookBytes)."
        " The agents look by themselves at their next poll",
    )

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        if is_grpc_web(scope):
            await web(scope, receive, send)
        elif scope["type"] == "http" and scope["path"].startswith(HOOKS_PATH):
            await hooks(scope, receive, send)
        else:
            await pages(scope, receive, send)

    return dispatch


def _call_limits(limits: FrontLimitsConfig) -> CallLimits:
    return CallLimits(
        max_message=limits.max_message_bytes,
        max_header_bytes=limits.max_header_bytes,
        max_header_fields=limits.max_header_fields,
        max_streams_per_connection=limits.max_streams_per_connection,
        max_calls=limits.max_calls,
        read_seconds=limits.body_timeout.total_seconds(),
        answer_seconds=limits.answer_timeout.total_seconds(),
        idle_seconds=limits.grpc_idle_timeout.total_seconds(),
        window_bytes=WINDOW_BYTES,
    )


async def _stop_all(
    http: uvicorn.Server, grpc: Server, proxy: GrpcProxy, grace_seconds: float
) -> None:
    proxy.refuse()
    async with asyncio.TaskGroup() as stopping:
        stopping.create_task(stop_http(http, grace_seconds))
        stopping.create_task(_stop_grpc(grpc, proxy, grace_seconds))


async def _stop_grpc(grpc: Server, proxy: GrpcProxy, grace_seconds: float) -> None:
    await grpc.stop(grace_seconds)
    try:
        async with asyncio.timeout(LAST_BYTES_SECONDS):
            await proxy.wait_ended()
    except TimeoutError:
        proxy.abort()
        await proxy.wait_ended()


def _shrink_tls_buffers() -> None:
    """Makes asyncio allocate less for each TLS connection than its default of 256 KiB.

    A thousand connections that never finish their handshake would take a quarter of a gigabyte.
    """
    sslproto.SSLProtocol.max_size = min(sslproto.SSLProtocol.max_size, TLS_BUFFER)


@contextmanager
def _socket_folder(own: Path | None) -> Iterator[str]:
    """Yields a folder that only this user can enter, for the proxy's socket to the gRPC server.

    A path that is too long for a socket is named by its open descriptor: both ends of the socket
    are in this process. A temporary folder would be left there by each server that is killed.
    """
    if own is None:
        with tempfile.TemporaryDirectory(prefix="pipecd-", dir=_short_folder()) as folder:
            yield folder
        return
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(mode=0o700, parents=True)
    try:
        if len(str(own.resolve() / "grpc.sock")) <= LONGEST_SOCKET_PATH:
            yield str(own.resolve())
            return
        descriptor = os.open(own, os.O_PATH | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _short_folder() -> str | None:
    """Returns where to make the socket's folder: None is the default, unless that is too long."""
    longest = Path(tempfile.gettempdir()) / "pipecd-xxxxxxxx" / "grpc.sock"
    return "/tmp" if len(str(longest)) > LONGEST_SOCKET_PATH else None  # noqa: S108 - mkdtemp's
