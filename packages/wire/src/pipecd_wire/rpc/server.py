# SPDX-License-Identifier: Apache-2.0
"""Serve endpoints over gRPC."""

import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from pipecd_wire.rpc.authentication import Authenticator
from pipecd_wire.rpc.endpoint import Endpoint, Endpoints
from pipecd_wire.rpc.guarded import Context, GuardedRouter, RpcHandler, text_metadata
from pipecd_wire.rpc.handlers import PEER, Metadata
from pipecd_wire.rpc.loop import claim_loop
from pipecd_wire.rpc.status import CODES, StatusError

MAX_MESSAGE: Final = 10 * 1024 * 1024

OPTIONS: Final = (
    # A taken port must be an error, not a second server that gets half of the calls.
    ("grpc.so_reuseport", 0),
    # A Go client that pings every 15 s is cut off by default. Of the two option names in use for
    # this, `grpc.http2.min_recv_ping_interval_without_data_ms` has no effect in this gRPC.
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A caller whose machine is gone must not keep its watch open for ever: it is asked, too.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
)


def message_limits(size: int) -> tuple[tuple[str, int], ...]:
    """Options for both directions. Give them once: of two equal names gRPC takes the first."""
    return (
        ("grpc.max_receive_message_length", size),
        ("grpc.max_send_message_length", size),
    )


class AddressError(OSError):
    """An address that cannot be listened on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """The server's certificate chain and key, as PEM."""

    certificate: bytes
    key: bytes


class Server:
    """A gRPC server over endpoints. Made inside the running loop, as grpc.aio wants it.

    `relayed` is for a server behind a relay of this process: the IP addresses of the callers, by
    the name that the relay's side of each connection has here (`unix-abstract:NAME`).
    `authenticator` is asked before anything of a call is read, also of an unknown method.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        max_message: int = MAX_MESSAGE,
        relayed: Mapping[str, str] | None = None,
        authenticator: Authenticator | None = None,
    ) -> None:
        claim_loop()
        self._ports: set[int] = set()
        self._server = grpc.aio.server(options=(*OPTIONS, *message_limits(max_message)))
        # Not `relayed or {}`: it is empty now and is filled while the server runs.
        router = _Router(endpoints, {} if relayed is None else relayed)
        if authenticator is None:
            self._server.add_generic_rpc_handlers((router,))
        else:
            guarded = GuardedRouter(router, authenticator, self._ports)
            self._server.add_generic_rpc_handlers((guarded,))

    def listen(self, address: str, tls: ServerTls | None = None) -> int:
        """Add an address (`host:port`, port 0 = a free one; or `unix:PATH`); answers the port."""
        try:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)])
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise AddressError(f"cannot listen on {address!r}; is the port taken?") from error
        self._ports.add(int(port))
        return int(port)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Take no new call, let running ones finish for `grace` seconds, then cancel them."""
        await self._server.stop(grace)


@asynccontextmanager
async def serving(
    endpoints: Endpoints,
    address: str,
    *,
    tls: ServerTls | None = None,
    grace: float = 10,
    max_message: int = MAX_MESSAGE,
) -> AsyncIterator[int]:
    """Serve on one address while the block runs; the value is the port."""
    server = Server(endpoints, max_message=max_message)
    port = server.listen(address, tls)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace)


class _Router(grpc.GenericRpcHandler):
    """Finds the endpoint of a call by its path."""

    def __init__(self, endpoints: Endpoints, relayed: Mapping[str, str]) -> None:
        self._endpoints = endpoints
        self._relayed = relayed
        self._built: dict[str, RpcHandler] = {}

    def service(self, details: grpc.HandlerCallDetails) -> "RpcHandler | None":
        path = details.method
        if path not in self._built:
            endpoint = self._endpoints.find(path)
            if endpoint is None:
                return None  # answered as UNIMPLEMENTED
            self._built[path] = _method_handler(endpoint, self._relayed)
        return self._built[path]


def _method_handler(endpoint: Endpoint, relayed: Mapping[str, str]) -> RpcHandler:
    method = endpoint.method
    make: Callable[..., RpcHandler]
    behaviour: Any
    if method.streams:
        make, behaviour = grpc.unary_stream_rpc_method_handler, _streaming(endpoint, relayed)
    else:
        make, behaviour = grpc.unary_unary_rpc_method_handler, _unary(endpoint, relayed)
    # No deserializer: grpc would answer bytes that are no message with UNKNOWN and a traceback.
    return make(behaviour, response_serializer=method.response.SerializeToString)


def _unary(
    endpoint: Endpoint, relayed: Mapping[str, str]
) -> Callable[[bytes, Context], Awaitable[Message]]:
    async def behaviour(request: bytes, context: Context) -> Message:
        try:
            return await endpoint.unary(endpoint.parse(request), _metadata(context, relayed))
        except StatusError as refusal:
            await context.abort(CODES[refusal.status], refusal.message)

    return behaviour


def _streaming(
    endpoint: Endpoint, relayed: Mapping[str, str]
) -> Callable[[bytes, Context], Awaitable[None]]:
    # Written with `write` and not as a generator: grpc.aio leaves a generator of a cancelled call
    # to the garbage collector, and the handler's `finally` would run at some time, in some task.
    async def behaviour(request: bytes, context: Context) -> None:
        try:
            async with aclosing(
                endpoint.stream(endpoint.parse(request), _metadata(context, relayed))
            ) as responses:
                async for response in responses:
                    await context.write(response)
        except StatusError as refusal:
            await context.abort(CODES[refusal.status], refusal.message)

    return behaviour


def _metadata(context: Context, relayed: Mapping[str, str]) -> Metadata:
    metadata = text_metadata(context)
    peer = context.peer()
    metadata[PEER] = relayed[peer] if peer in relayed else _address(peer)
    return metadata


def _address(peer: str) -> str:
    """The IP address in a name such as `ipv4:10.0.0.7:41808` or `ipv6:%5B::1%5D:41808`."""
    family, _, rest = peer.partition(":")
    if family not in {"ipv4", "ipv6"}:
        return ""
    return urllib.parse.unquote(rest).rpartition(":")[0].strip("[]")
