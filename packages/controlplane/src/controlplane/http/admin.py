# SPDX-License-Identifier: Apache-2.0
"""A second address, for whoever runs the server: health and all metrics, plain HTTP.

It is not there unless asked for, and then on this machine only, unless told otherwise.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from controlplane.http.listen import address_of, listen

GRACE: Final = 2.0
"""Seconds for a page that is being answered."""


@asynccontextmanager
async def serve_admin(app: ASGIApp, host: str, port: int) -> AsyncIterator[str]:
    """Serve while the block runs; the value is `host:port`. AddressError when it is taken."""
    listeners = await listen(host, port)
    config = uvicorn.Config(
        app,
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=listeners)
    try:
        yield address_of(listeners[0])
    finally:
        try:
            async with asyncio.timeout(GRACE):
                await server.shutdown()
        except TimeoutError:
            for connection in list(server.server_state.connections):
                connection.transport.abort()
        for listener in listeners:
            listener.close()
