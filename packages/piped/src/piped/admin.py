# SPDX-License-Identifier: Apache-2.0
"""The admin port: `/healthz`, `/version` and `/metrics` over HTTP, for probes and scrapers.

It only tells: nothing can be changed through it, so that it may be reachable from outside.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from pipecd_model.errors import StateError

LIMIT: Final = 10.0
"""Seconds for one request."""


@asynccontextmanager
async def serving_admin(port: int, pages: Mapping[str, Callable[[], str]]) -> AsyncIterator[None]:
    """Serve the pages while the block runs; port 0 serves nothing."""
    if port == 0:
        yield
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(LIMIT):
                request = (await reader.readline()).decode("latin-1").split()
                while (await reader.readline()).strip():
                    pass
                writer.write(_response(request, pages))
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            pass  # whoever asked has gone, or is no HTTP client
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, port=port)
    except OSError as error:
        raise StateError(
            f"cannot serve the admin port {port}: {error.strerror}",
            hint="name another one with --admin-port, or 0 for none",
        ) from error
    async with server:
        yield


def _response(request: list[str], pages: Mapping[str, Callable[[], str]]) -> bytes:
    path = request[1].partition("?")[0] if len(request) > 1 else ""
    if request[:1] != ["GET"]:
        status, body = "405 Method Not Allowed", "only GET\n"
    elif path in pages:
        status, body = "200 OK", pages[path]()
    else:
        status, body = "404 Not Found", "".join(f"{page}\n" for page in pages)
    data = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data
