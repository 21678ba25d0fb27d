# SPDX-License-Identifier: Apache-2.0
"""A second address, for whoever runs the server: health and all metrics, plain HTTP.

It is not there unless asked for, and then on this machine only, unless told otherwise.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp

from controlplane.http.listen import address_of, listen


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
        for listener in listeners:
            listener.close()
        async with asyncio.timeout(5):
            await server.shutdown(sockets=listeners)
