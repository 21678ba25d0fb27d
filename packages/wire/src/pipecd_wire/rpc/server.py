# SPDX-License-Identifier: Apache-2.0
"""Serves endpoints over gRPC."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import grpc

from pipecd_wire.rpc.authentication import Authenticator
from pipecd_wire.rpc.calls import RelayedClient, method_handler
from pipecd_wire.rpc.endpoint import Endpoints
from pipecd_wire.rpc.guarded import GuardedRouter, RpcHandler
from pipecd_wire.rpc.limits import MAX_MESSAGE, CallLimits
from pipecd_wire.rpc.loop import claim_loop

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


class ServerTls(NamedTuple):
    """The server's certificate chain and key, as PEM."""

    certificate: bytes
    key: bytes


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
        """Adds an address (`host:port`, port 0 = a free one; or `unix:PATH`); returns the port.

        Raises AddressError when it cannot be listened on.
        """
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

    async def stop(self, grace_seconds: float) -> None:
        """Accepts no new call, waits `grace_seconds` for running ones, then cancels them."""
        await self._server.stop(grace_seconds)


@asynccontextmanager
async def serving(
    endpoints: Endpoints,
    address: str,
    *,
    tls: ServerTls | None = None,
    grace_seconds: float = 10,
    max_message: int = MAX_MESSAGE,
) -> AsyncIterator[int]:
    """Serves on one address while the block runs; yields the port."""
    server = Server(endpoints, max_message=max_message)
    port = server.listen(address, tls)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace_seconds)


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
                return None  # the caller gets UNIMPLEMENTED
            self._built[path] = method_handler(endpoint, self._relayed, self._limits)
        return self._built[path]
