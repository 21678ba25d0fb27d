# SPDX-License-Identifier: Apache-2.0
"""A second address, for whoever runs the server: health and all metrics, plain HTTP.

It is not there unless asked for, and then on this machine only, unless told otherwise. It has
connections of its own, so that it answers when the other address has none left.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Final, cast

import msgspec
from starlette.types import ASGIApp

from pipecd_controlplane.http.accept import Acceptor
from pipecd_controlplane.http.addresses import TrustedProxies
from pipecd_controlplane.http.bodies import BoundedBodies
from pipecd_controlplane.http.connections import ClientConnection, Connections
from pipecd_controlplane.http.http1 import BoundedHttp
from pipecd_controlplane.http.listen import address_of, listening
from pipecd_controlplane.http.uvicorn_server import accepting, make_http_server, stop_http
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_runtime.tasks import UnwrappedTaskGroup

GRACE_SECONDS: Final = 2.0
"""For a page that is being answered."""

ANY_DESCRIPTOR: Final = 2**31
"""It may use the reserve: that is what it is for."""


@asynccontextmanager
async def serve_admin(
    app: ASGIApp, host: str, port: int, limits: FrontLimitsConfig | None = None
) -> AsyncIterator[str]:
    """Serve while the block runs; the value is `host:port`. AddressError when it is taken."""
    limits = limits or FrontLimitsConfig()
    most = limits.max_admin_connections
    # Nobody shows who they are here: all are strangers, and may have all connections.
    own = msgspec.structs.replace(
        limits, max_strangers_per_address=most, max_stranger_connections=most
    )
    connections = Connections(own, 2 * most)
    http = make_http_server(BoundedBodies(app, limits.max_form_bytes), limits.keep_alive_timeout)

    def speak_http(connection: ClientConnection) -> asyncio.Protocol:
        return _AdminHttp(http.config, http.server_state, connection, own, TrustedProxies())

    def stop() -> Awaitable[None]:
        return stop_http(http, GRACE_SECONDS)

    async with listening(host, port) as listeners, UnwrappedTaskGroup() as tasks:
        acceptor = Acceptor(
            listeners, connections, speak_http, tasks, highest_descriptor=ANY_DESCRIPTOR
        )
        async with accepting(acceptor, http, connections, own, tasks, stop=stop):
            yield address_of(listeners[0])


class _AdminHttp(BoundedHttp):
    """HTTP/1.1 from the first byte on: nothing else is spoken here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.attach(cast(asyncio.Transport, transport))
        super().connection_made(cast(asyncio.Transport, transport))
