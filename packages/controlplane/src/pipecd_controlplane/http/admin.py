# SPDX-License-Identifier: Apache-2.0
"""A second address, for the operator: health and all metrics, over plain HTTP.

It is off by default, and on the loopback address unless configured otherwise. It has connections of
its own, so that it still works when the public address has none left.
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
"""How long a running request may take to finish at the end."""

ANY_DESCRIPTOR: Final = 2**31
"""It may use the reserved descriptors: they are kept for it."""


@asynccontextmanager
async def serve_admin(
    app: ASGIApp, host: str, port: int, limits: FrontLimitsConfig | None = None
) -> AsyncIterator[str]:
    """Serves while the block runs, and yields `host:port`. Raises AddressError if it is taken."""
    limits = limits or FrontLimitsConfig()
    most = limits.max_admin_connections
    # Callers are not authenticated here: all are strangers, and may have all connections.
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
    """A connection that is HTTP/1.1 from the first byte on: no protocol is detected here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.attach(cast(asyncio.Transport, transport))
        super().connection_made(cast(asyncio.Transport, transport))
