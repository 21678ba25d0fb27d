# SPDX-License-Identifier: Apache-2.0
"""uvicorn without its own sockets, signals and loop: how it is set up, ticks, and stops."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, cast

import uvicorn

from pipecd_controlplane.http.accept import Acceptor
from pipecd_controlplane.http.connections import Connections
from pipecd_model.config.frontlimits import FrontLimitsConfig

LAST_BYTES_SECONDS: Final = 1.0
"""How long responses may take to reach their callers when the grace period is over."""

LONGEST_TICK_SECONDS: Final = 1.0
SHORTEST_TICK_SECONDS: Final = 0.02


def make_http_server(app: Any, keep_alive: timedelta) -> uvicorn.Server:
    """Returns a server without a listener: `accept` hands it its connections."""
    config = uvicorn.Config(
        app,
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        # `addresses` decides whose word about addresses is believed, for gRPC as well.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=cast(int, keep_alive.total_seconds()),  # it takes parts of seconds, too
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    server.servers = []
    return server


async def tick(http: uvicorn.Server, connections: Connections, limits: FrontLimitsConfig) -> None:
    """Keeps the `date` header current, and checks the deadlines of all connections."""
    loop = asyncio.get_running_loop()
    shortest = min(
        limits.header_timeout,
        limits.body_idle_timeout,
        limits.body_timeout,
        limits.identify_timeout,
        limits.write_timeout,
    ).total_seconds()
    pause = max(min(shortest / 4, LONGEST_TICK_SECONDS), SHORTEST_TICK_SECONDS)
    while True:
        await http.on_tick(0)
        connections.sweep(loop.time())
        await asyncio.sleep(pause)


@asynccontextmanager
async def accepting(
    acceptor: Acceptor,
    http: uvicorn.Server,
    connections: Connections,
    limits: FrontLimitsConfig,
    tasks: asyncio.TaskGroup,
    *,
    stop: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    """Accepts connections while the block runs.

    At the end no new one is accepted, `stop` lets the running requests finish, and connections
    that are still open then are aborted.
    """
    acceptor.start()
    ticking = tasks.create_task(tick(http, connections, limits), name="http.tick")
    try:
        yield
    finally:
        acceptor.stop()
        await stop()
        ticking.cancel()
        connections.abort()


async def stop_http(http: uvicorn.Server, grace_seconds: float) -> None:
    """Waits up to `grace_seconds` for running requests to finish, then ends them."""
    try:
        async with asyncio.timeout(grace_seconds):
            await http.shutdown()
    except TimeoutError:
        for connection in list(http.server_state.connections):
            connection.transport.abort()
        # An application that sees its caller leave ends by itself; one that does not is cancelled.
        for task in await _wait_for_requests(http):
            task.cancel()
        await _wait_for_requests(http)


async def _wait_for_requests(http: uvicorn.Server) -> set[asyncio.Task[None]]:
    """Returns the requests that are still worked on after a moment."""
    if not (tasks := set(http.server_state.tasks)):
        return set()
    _, running = await asyncio.wait(tasks, timeout=LAST_BYTES_SECONDS)
    return running
