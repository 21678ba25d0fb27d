# SPDX-License-Identifier: Apache-2.0
"""Serves endpoints as gRPC-Web: an ASGI application for any HTTP server.

The same chain as over gRPC (`Endpoint`), binary and `-text`, unary and server streaming. When a
caller disconnects its handler is cancelled. A request is read once its caller is admitted. The host
is responsible for cross-origin rules: its `screen` may refuse a request by its head.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message

from pipecd_wire.rpc import frames
from pipecd_wire.rpc.endpoint import Endpoint, Endpoints, ReadRequest
from pipecd_wire.rpc.handlers import PEER, Metadata
from pipecd_wire.rpc.limits import MAX_MESSAGE
from pipecd_wire.rpc.status import StatusError

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BINARY: Final = "application/grpc-web"
TEXT: Final = "application/grpc-web-text"
# With the codec that we speak, or without one, which means the same.
TYPES: Final = {BINARY, f"{BINARY}+proto", TEXT, f"{TEXT}+proto"}


Screen: TypeAlias = Callable[[Scope], None]
"""Raises StatusError for a request that is refused by its head."""

Identified: TypeAlias = Callable[[Scope], None]
"""Called for each request whose caller was admitted."""


class DisconnectedError(Exception):
    """The caller has disconnected; no response can be sent."""

    status = "CANCELLED"


def _nothing(_scope: Scope) -> None:
    """Does nothing: the default for `screen` and `identified`."""


def is_grpc_web(scope: Scope) -> bool:
    """Returns whether a request is for `GrpcWeb`, for a host that serves other requests too."""
    return scope["type"] == "http" and _media_type(scope).startswith(BINARY)


class GrpcWeb:
    """All endpoints of a process as one ASGI application."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        max_message: int = MAX_MESSAGE,
        screen: Screen = _nothing,
        identified: Identified = _nothing,
    ) -> None:
        self._endpoints = endpoints
        self._max_message = max_message
        self._screen = screen
        self._identified = identified

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await _refuse(send, 405, (b"allow", b"POST"))
            return
        if _media_type(scope) not in TYPES:
            await _refuse(send, 415, (b"accept-post", ", ".join(sorted(TYPES)).encode()))
            return
        exchange = _Exchange(scope, receive, send, self._max_message)
        try:
            async with asyncio.timeout(exchange.time_limit()):
                self._screen(scope)
                status, message = await self._answer(exchange, scope)
        except StatusError as refusal:
            status, message = refusal.status, refusal.message
        except TimeoutError:
            status, message = "DEADLINE_EXCEEDED", "the deadline of the call has passed"
        except DisconnectedError:
            return
        await exchange.end(status, message)

    async def _answer(self, exchange: "_Exchange", scope: Scope) -> tuple[str, str]:
        endpoint = self._endpoints.find(exchange.path)
        if endpoint is None:
            raise StatusError("UNIMPLEMENTED", f"unknown method {exchange.path[:200]}")
        ending: tuple[str, str] | None = None
        watching: asyncio.Task[None] | None = None
        try:
            async with asyncio.TaskGroup() as tasks:

                async def read() -> Message:
                    nonlocal watching
                    self._identified(scope)
                    request = endpoint.parse(await exchange.read())
                    watching = tasks.create_task(exchange.wait_disconnected())
                    return request

                ending = await _run(endpoint, read, exchange)
                if watching is not None:
                    watching.cancel()
        except* DisconnectedError:
            pass  # the group has cancelled the handler, and waited for it
        if ending is None or exchange.is_gone:
            raise DisconnectedError
        return ending


async def _run(endpoint: Endpoint, read: ReadRequest, exchange: "_Exchange") -> tuple[str, str]:
    """Calls the handler and sends its responses; returns the final status and message."""
    try:
        if endpoint.method.streams:
            async with aclosing(endpoint.stream(read, exchange.metadata)) as responses:
                async for response in responses:
                    await exchange.write(response)
        else:
            await exchange.write(await endpoint.unary(read, exchange.metadata))
    except StatusError as refusal:
        return refusal.status, refusal.message
    return "OK", ""


class _Exchange:
    """One HTTP request and its response, seen as messages."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_message: int) -> None:
        self.path: str = scope["path"]
        self.metadata = _metadata(scope)
        self._receive = receive
        self._send = send
        self._max_message = max_message
        self._asked_in_text = _media_type(scope).startswith(TEXT)
        accept = self.metadata.get("accept", "")
        self._answer_in_text = TEXT in accept if BINARY in accept else self._asked_in_text
        self._started = False
        self.is_gone = False

    def time_limit(self) -> float | None:
        timeout = self.metadata.get("grpc-timeout")
        return None if timeout is None else frames.seconds(timeout)

    async def read(self) -> bytes:
        """Returns the request's one message. Reads no more than the longest that is allowed.

        Raises StatusError, or DisconnectedError.
        """
        reader = frames.RequestReader(limit=self._max_message, in_text=self._asked_in_text)
        more = True
        while more:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                self.is_gone = True
                raise DisconnectedError
            reader.feed(event.get("body", b""))
            more = event.get("more_body", False)
        return reader.finish()

    async def wait_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        raise DisconnectedError

    async def write(self, response: Message) -> None:
        payload = response.SerializeToString()
        frames.check_size(len(payload), limit=self._max_message)
        await self._write(frames.frame(payload), more=True)

    async def end(self, status: str, message: str) -> None:
        await self._write(frames.trailers(status, message), more=False)

    async def _write(self, data: bytes, *, more: bool) -> None:
        if not self._started:
            content_type = f"{TEXT if self._answer_in_text else BINARY}+proto".encode()
            headers = [(b"content-type", content_type)]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            self._started = True
        body = base64.b64encode(data) if self._answer_in_text else data
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


async def _refuse(send: Send, status: int, header: tuple[bytes, bytes]) -> None:
    """Sends a plain HTTP error for a request that is not gRPC-Web."""
    headers = [header, (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _media_type(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"content-type":
            full: str = value.decode("latin-1")
            return full.partition(";")[0].strip().lower()
    return ""


def _metadata(scope: Scope) -> Metadata:
    # ASGI promises lower-case names.
    text = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
    metadata = {name: value for name, value in text if not name.endswith("-bin")}
    metadata[PEER] = (scope.get("client") or ("",))[0]
    return metadata
