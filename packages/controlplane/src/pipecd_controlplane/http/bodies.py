# SPDX-License-Identifier: Apache-2.0
"""Limits the bodies of requests to pages: they are small, but for those of git hosts."""

from typing import Any

from starlette.requests import ClientDisconnect

from pipecd_wire.rpc.web import Receive, Scope, Send


class BoundedBodies:
    """ASGI middleware that responds with 413 to a body over the limit."""

    def __init__(self, app: Any, limit: int, *, refusal: str = "Content Too Large") -> None:
        """`refusal` is what the client is told."""
        self._app = app
        self._limit = limit
        self._refusal = f"{refusal}\n".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(receive, send, self._limit, self._refusal)
        if _read_content_length(scope) > self._limit:
            await body.refuse()
            return
        try:
            await self._app(scope, body.receive, body.send)
        except ClientDisconnect:
            return  # refused above, or gone: no client reads a response


class _Body:
    """One request, whose body the wrapped application reads within the limit."""

    def __init__(self, receive: Receive, send: Send, limit: int, refusal: bytes) -> None:
        self._receive = receive
        self._send = send
        self._left = limit
        self._refusal = refusal
        self._is_answered = False
        self.is_refused = False

    async def receive(self) -> Any:
        if self.is_refused:
            return {"type": "http.disconnect"}
        event = await self._receive()
        self._left -= len(event.get("body", b""))
        if self._left < 0:
            await self.refuse()
            return {"type": "http.disconnect"}
        return event

    async def send(self, event: Any) -> None:
        if not self.is_refused:
            self._is_answered = True
            await self._send(event)

    async def refuse(self) -> None:
        self.is_refused = not self._is_answered
        if self.is_refused:
            text = self._refusal
            headers = [
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", str(len(text)).encode()),
            ]
            await self._send({"type": "http.response.start", "status": 413, "headers": headers})
            await self._send({"type": "http.response.body", "body": text, "more_body": False})


def _read_content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
