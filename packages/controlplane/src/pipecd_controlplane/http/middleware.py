# SPDX-License-Identifier: Apache-2.0
"""Middleware around every page: security headers, a request id, metrics and a log line."""

import time
from collections.abc import Callable
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from pipecd_controlplane.auth.calls import REQUEST_ID, request_id
from pipecd_controlplane.http.content_policy import STRICT
from pipecd_runtime.logs import logger

log = logger(__name__)

Count = Callable[[str, str, int, float], None]
"""Called after each request: method, pattern of the path, status, seconds."""

HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "content-security-policy": STRICT,
}
OVER_TLS: Final = "max-age=31536000"


class PageMiddleware:
    """Wraps an ASGI application: adds the headers, and counts and logs each request."""

    def __init__(self, app: Starlette, *, over_tls: bool, count: Count) -> None:
        self._app = app
        self._over_tls = over_tls
        self._count = count

    def paths(self) -> list[str]:
        """Returns the patterns of all routes."""
        return [str(getattr(route, "path", "")) for route in self._app.routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        given = dict(scope["headers"]).get(REQUEST_ID.encode(), b"").decode("latin-1")
        this_id = request_id(given)
        status = 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if self._over_tls:
                    headers.setdefault("strict-transport-security", OVER_TLS)
                headers[REQUEST_ID] = this_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            seconds = time.monotonic() - started
            # The pattern and never the path itself: a client can make up paths.
            route = scope.get("route")
            pattern = getattr(route, "path", "") or "other"
            self._count(scope["method"], pattern, status, seconds)
            log.debug(
                "http.handled",
                method=scope["method"],
                path=pattern,
                status=status,
                seconds=round(seconds, 4),
                request_id=this_id,
                peer=(scope.get("client") or ("",))[0],
            )
