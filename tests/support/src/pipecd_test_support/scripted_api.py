# SPDX-License-Identifier: Apache-2.0
"""An API server that answers as a test says: over real sockets and TLS, with faults on demand."""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, kw_only=True)
class SeenRequest:
    """What a client sent."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case; several lines are joined by a comma."""
    body: bytes
    connection: int
    """Counts the connections: the same for requests on one."""
    certificate: str
    """The common name in the client's certificate, if it has one."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A whole answer."""

    status: int = 200
    body: Any = None
    """Bytes, or what is sent as JSON."""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass(frozen=True)
class Drop:
    """The connection ends without an answer, after the first bytes of one, or by a reset."""

    first: bytes = b""
    resets: bool = False


@dataclass(frozen=True)
class Chunks:
    """An answer in chunks, as a watch has; it stays open until `ends` unless that is None."""

    chunks: Sequence[bytes]
    ends: asyncio.Event | None = None
    breaks: bool = False
    """Without the last chunk: the connection broke."""


@dataclass(frozen=True)
class Hang:
    """Nothing is answered; the connection stays open until the client leaves."""


AnyReply: TypeAlias = Reply | Drop | Chunks | Hang
Handler: TypeAlias = Callable[[SeenRequest], AnyReply]


class ScriptedApi:
    """Answers by path: each answer of a list once, the last one again and again."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[SeenRequest] = []
        self.connections = 0
        self.most_at_once = 0
        self._at_once = 0
        self._answers: dict[tuple[str, str], list[AnyReply | Handler]] = {}
        self.changed = asyncio.Condition()

    def answer(self, method: str, path: str, *replies: AnyReply | Handler) -> None:
        """Says what a path answers; a function is asked for each request."""
        self._answers[method, path] = list(replies)

    def find(self, method: str, path: str) -> list[SeenRequest]:
        """Returns the requests for a path so far."""
        return [each for each in self.requests if (each.method, each.path) == (method, path)]

    async def wait_for_requests(self, method: str, path: str, count: int) -> None:
        """Waits until a path was asked this often."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.find(method, path)) >= count)

    def choose_reply(self, request: SeenRequest) -> AnyReply:
        """Returns the answer of a request."""
        replies = self._answers.get((request.method, request.path))
        if not replies:
            return refuse(404, "NotFound", f"nothing at {request.method} {request.path}")
        chosen = replies.pop(0) if len(replies) > 1 else replies[0]
        return chosen(request) if callable(chosen) else chosen

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection."""
        self.connections += 1
        number = self.connections
        try:
            while (request := await _read_request(reader, writer, number)) is not None:
                async with self.changed:
                    self.requests.append(request)
                    self.changed.notify_all()
                self._at_once += 1
                self.most_at_once = max(self.most_at_once, self._at_once)
                try:
                    goes_on = await _write_reply(self.choose_reply(request), reader, writer)
                finally:
                    self._at_once -= 1
                if not goes_on:
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def refuse(
    status: int,
    reason: str,
    message: str,
    *,
    causes: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Returns a refusal as the API words it."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": {"causes": list(causes)},
        "code": status,
    }
    return Reply(status=status, body=body, headers=headers or {})


@asynccontextmanager
async def serving_api(context: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedApi]:
    """Serves on a free port of this machine, with TLS when it is given a context."""
    api = ScriptedApi()
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(asyncio.CancelledError):  # the end of the server; asyncio would log it
                await api.serve(reader, writer)
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    api.url = f"{'https' if context else 'http'}://localhost:{port}"
    try:
        yield api
    finally:
        server.close()
        left = set(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await server.wait_closed()


async def _read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
) -> SeenRequest | None:
    first = await reader.readline()
    if not first:
        return None
    method, target, _ = first.decode("latin-1").split(" ")
    headers: dict[str, str] = {}
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        name = name.lower()
        joined = f"{headers[name]},{value.strip()}" if name in headers else value.strip()
        headers[name] = joined
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return SeenRequest(
        method=method,
        path=parts.path,
        query=dict(parse_qsl(parts.query, keep_blank_values=True)),
        headers=headers,
        body=body,
        connection=connection,
        certificate=_read_common_name(writer.get_extra_info("peercert")),
    )


def _read_common_name(certificate: Any) -> str:
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return ""


async def _write_reply(
    reply: AnyReply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Writes an answer; returns whether the connection goes on."""
    match reply:
        case Reply():
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            headers = {"Content-Type": reply.content_type, **reply.headers}
            lines = [f"HTTP/1.1 {reply.status} -", f"Content-Length: {len(body)}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
            await writer.drain()
            return True
        case Chunks():
            return await _write_chunks(reply, writer)
        case Drop():
            writer.write(reply.first)
            await writer.drain()
            if reply.resets:
                linger = struct.pack("ii", 1, 0)
                found = writer.get_extra_info("socket")
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
            return False
        case Hang():
            await reader.read()  # until the client leaves
            return False


async def _write_chunks(reply: Chunks, writer: asyncio.StreamWriter) -> bool:
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    for chunk in reply.chunks:
        writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        await writer.drain()
    if reply.ends is not None:
        await reply.ends.wait()
    if reply.breaks:
        return False
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True
