# SPDX-License-Identifier: Apache-2.0
"""Serve endpoints over gRPC."""

import asyncio
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc
from google.protobuf.message import Message

from pipecd_wire.rpc.authentication import Authenticator
from pipecd_wire.rpc.endpoint import Endpoint, Endpoints, ReadRequest
from pipecd_wire.rpc.guarded import Context, GuardedRouter, RpcHandler, text_metadata
from pipecd_wire.rpc.handlers import PEER, Metadata
from pipecd_wire.rpc.limits import MAX_MESSAGE, CallLimits
from pipecd_wire.rpc.loop import claim_loop
from pipecd_wire.rpc.status import CODES, StatusError

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


class AddressError(OSError):
    """An address that cannot be listened on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """The server's certificate chain and key, as PEM."""

    certificate: bytes
    key: bytes


class RelayedClient(Protocol):
    """A caller whose connection a relay of this process has passed on."""

    def address(self, metadata: Metadata) -> str:
        """Returns the caller's IP address."""

    def identify(self) -> None:
        """Called for each call of it that was let in."""

    def abort(self, reason: str) -> None:
        """Ends its connection: it takes no answers."""


class Server:
    """A gRPC server over endpoints. Made inside the running loop, as grpc.aio wants it.

    `relayed` is for a server behind a relay of this process: the callers, by the name that the
    relay's side of each connection has here (`unix-abstract:NAME`).
    `authenticator` is asked before anything of a call is read, also of an unknown method.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        max_message: int = MAX_MESSAGE,
        limits: CallLimits | None = None,
        relayed: Mapping[str, RelayedClient] | None = None,
        authenticator: Authenticator | None = None,
    ) -> None:
        claim_loop()
        self._ports: set[int] = set()
        limits = limits or CallLimits(max_message=max_message)
        self._server = grpc.aio.server(
            options=(*OPTIONS, *limits.options()), maximum_concurrent_rpcs=limits.max_calls
        )
        # Not `relayed or {}`: it is empty now and is filled while the server runs.
        router = _Router(endpoints, {} if relayed is None else relayed, limits)
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

    def __init__(
        self, endpoints: Endpoints, relayed: Mapping[str, RelayedClient], limits: CallLimits
    ) -> None:
        self._endpoints = endpoints
        self._relayed = relayed
        self._limits = limits
        self._built: dict[str, RpcHandler] = {}

    def service(self, details: grpc.HandlerCallDetails) -> "RpcHandler | None":
        path = details.method
        if path not in self._built:
            endpoint = self._endpoints.find(path)
            if endpoint is None:
                return None  # answered as UNIMPLEMENTED
            self._built[path] = _method_handler(endpoint, self._relayed, self._limits)
        return self._built[path]


def _method_handler(
    endpoint: Endpoint, relayed: Mapping[str, RelayedClient], limits: CallLimits
) -> RpcHandler:
    # Requests are single messages, but gRPC would read one to its end before it calls us. As a
    # stream it is ours to read, once its caller was let in.
    serialize = endpoint.method.response.SerializeToString
    # No deserializer: grpc would answer bytes that are no message with UNKNOWN and a traceback.
    if endpoint.method.streams:
        return grpc.stream_stream_rpc_method_handler(
            _streaming(endpoint, relayed, limits), response_serializer=serialize
        )
    return grpc.stream_unary_rpc_method_handler(
        _unary(endpoint, relayed, limits), response_serializer=_same
    )


def _same(data: bytes) -> bytes:
    return data


def _unary(
    endpoint: Endpoint, relayed: Mapping[str, RelayedClient], limits: CallLimits
) -> Callable[[Any, Context], Awaitable[bytes]]:
    answers = _Answers(limits.answer_seconds)

    async def behaviour(_requests: Any, context: Context) -> bytes:
        client = relayed.get(context.peer())
        try:
            metadata = _metadata(context, client, limits)
            request = _reading(endpoint, context, client, limits.read_seconds)
            answer = (await endpoint.unary(request, metadata)).SerializeToString()
        except StatusError as refusal:
            await context.abort(CODES[refusal.status], refusal.message)
        if client is not None:
            answers.watch(context, client)
        return answer

    return behaviour


def _streaming(
    endpoint: Endpoint, relayed: Mapping[str, RelayedClient], limits: CallLimits
) -> Callable[[Any, Context], Awaitable[None]]:
    # Written with `write` and not as a generator: grpc.aio leaves a generator of a cancelled call
    # to the garbage collector, and the handler's `finally` would run at some time, in some task.
    async def behaviour(_requests: Any, context: Context) -> None:
        client = relayed.get(context.peer())
        try:
            metadata = _metadata(context, client, limits)
            request = _reading(endpoint, context, client, limits.read_seconds)
            async with aclosing(endpoint.stream(request, metadata)) as responses:
                async for response in responses:
                    async with asyncio.timeout(limits.answer_seconds):
                        await context.write(response)
        except TimeoutError:
            await context.abort(CODES["CANCELLED"], "the caller does not take the answer")
        except StatusError as refusal:
            await context.abort(CODES[refusal.status], refusal.message)

    return behaviour


def _reading(
    endpoint: Endpoint, context: Context, client: RelayedClient | None, limit: float | None
) -> ReadRequest:
    """Returns what reads the one message of a request, once its caller was let in."""

    async def read() -> Message:
        if client is not None:
            client.identify()
        try:
            async with asyncio.timeout(limit):
                data = await context.read()
        except TimeoutError:
            raise StatusError(
                "DEADLINE_EXCEEDED", f"the request did not arrive within {limit:g} seconds"
            ) from None
        if data is grpc.aio.EOF:
            raise StatusError("UNIMPLEMENTED", "a request must be exactly one message")
        return endpoint.parse(data)

    return read


class _Answers:
    """Answers on their way. Lets go of callers that do not take theirs, which is held for them.

    One timer looks after all of them: most are gone before it looks for the first time.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._due: dict[Context, tuple[float, RelayedClient]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._forget: Any = lambda context: self._due.pop(context, None)  # Any: its stub is wrong

    def watch(self, context: Context, client: RelayedClient) -> None:
        if self._seconds is None:
            return
        loop = asyncio.get_running_loop()
        self._due[context] = (loop.time() + self._seconds, client)
        context.add_done_callback(self._forget)
        if self._timer is None:
            self._timer = loop.call_later(self._seconds / 2, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for due, client in list(self._due.values()):
            if now >= due:
                client.abort("answer not taken")
        if self._due and self._seconds is not None:
            self._timer = loop.call_later(self._seconds / 2, self._look, loop)


def _metadata(context: Context, client: RelayedClient | None, limits: CallLimits) -> Metadata:
    given = context.invocation_metadata() or ()
    if limits.max_header_fields is not None and len(given) > limits.max_header_fields:
        raise StatusError(
            "RESOURCE_EXHAUSTED", f"more than {limits.max_header_fields} header fields"
        )
    metadata = text_metadata(context)
    metadata[PEER] = client.address(metadata) if client else _address(context.peer())
    return metadata


def _address(peer: str) -> str:
    """The IP address in a name such as `ipv4:10.0.0.7:41808` or `ipv6:%5B::1%5D:41808`."""
    family, _, rest = peer.partition(":")
    if family not in {"ipv4", "ipv6"}:
        return ""
    return urllib.parse.unquote(rest).rpartition(":")[0].strip("[]")
