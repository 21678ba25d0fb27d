# SPDX-License-Identifier: Apache-2.0
"""The admin port: a few HTTP pages for probes and scrapers, rendered for each request.

It is read-only, and reachable from other machines only with a flag. The event loop that does all
the work serves it, so a probe fails when the loop hangs.
"""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from pipecd_model.errors import StateError
from pipecd_runtime.logs import logger

log = logger(__name__)

REQUEST_SECONDS: Final = 10.0
"""The timeout of one request in seconds."""

OK: Final = "200 OK"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPage:
    """The response to a request."""

    body: str
    status: str = OK
    content_type: str = "text/plain; charset=utf-8"


AdminPages = Mapping[str, Callable[[], AdminPage]]


@asynccontextmanager
async def serving_admin(host: str, port: int, pages: AdminPages) -> AsyncIterator[None]:
    """Serve the pages while the block runs; port 0 serves nothing."""
    if port == 0:
        yield
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = (await reader.readline()).decode("latin-1").split()
                while (await reader.readline()).strip():
                    pass
                writer.write(_response(request, pages))
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            pass  # the client has disconnected, or does not speak HTTP
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, host, port)
    except OSError as error:
        raise StateError(
            f"cannot serve the admin port {host}:{port}: {_explain(error)}",
            hint="name another one with --admin-port and --admin-host, or 0 for none",
        ) from error
    async with server:
        yield


def _explain(error: OSError) -> str:
    """Returns the cause alone: asyncio's own text repeats the address."""
    if error.errno == errno.EADDRINUSE:
        return "the port is taken by another program"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def _response(request: list[str], pages: AdminPages) -> bytes:
    page = _page(request, pages)
    data = page.body.encode()
    head = (
        f"HTTP/1.1 {page.status}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if request[:1] == ["HEAD"] else data)


def _page(request: list[str], pages: AdminPages) -> AdminPage:
    path = request[1].partition("?")[0] if len(request) > 1 else ""
    index = "".join(f"{page}\n" for page in pages)
    if request[:1] not in (["GET"], ["HEAD"]):
        return AdminPage(status="405 Method Not Allowed", body="only GET\n")
    if path == "/":
        return AdminPage(body=index)
    if path not in pages:
        return AdminPage(status="404 Not Found", body=index)
    try:
        return pages[path]()
    except Exception:  # noqa: BLE001 - an entry point: the client cannot handle it
        log.bug("admin.bug", page=path)
        return AdminPage(status="500 Internal Server Error", body="piped's log has the details\n")
