# SPDX-License-Identifier: Apache-2.0
"""Floods: what a hostile client on this machine sends to a server, bounded in number and time.

`floods.py NAME HOST:PORT SOURCE` prints `ready` once every connection of the flood was tried, goes
on until its standard input ends, and then prints how many connections it has had. All of it comes
from the address SOURCE. Only the loopback is a target.
"""

import asyncio
import contextlib
import ipaddress
import resource
import ssl
import struct
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

SECONDS = 60.0
"""After which a flood ends by itself."""

MIB = 1024 * 1024
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 0x1, 0x4
METHOD = "/grpc.service.apiservice.APIService/GetApplication"
WEB = f"POST {METHOD} HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc-web"

Attack = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Flood:
    """How many connections do what, and how often each is made again when the server ends it."""

    attack: Attack
    connections: int
    rounds: int = 3
    under_tls: bool = False
    """Makes the handshake before it attacks."""


async def half_request(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n")


async def nothing(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Only the connection."""


async def slow_headers(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET / HTTP/1.1\r\n")
    while True:
        await send(writer, b"a: b\r\n")
        await asyncio.sleep(0.2)


async def huge_headers(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await send(writer, b"GET /healthz HTTP/1.1\r\nhost: x\r\n")
    for _ in range(144):
        await send(writer, (b"a: " + b"x" * 1020 + b"\r\n") * 1024)
    await send(writer, b"\r\n")


async def one_huge_header(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await send(writer, b"GET /healthz HTTP/1.1\r\nhost: x\r\na: ")
    for _ in range(144):
        await send(writer, b"x" * MIB)
    await send(writer, b"\r\n\r\n")


async def huge_url(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await send(writer, b"GET /healthz?")
    for _ in range(60):
        await send(writer, b"x" * MIB)
    await send(writer, b" HTTP/1.1\r\nhost: x\r\n\r\n")


async def text_bomb(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    size = 13 * MIB
    await send(writer, f"{WEB}-text\r\ncontent-length: {size}\r\n\r\n".encode())
    for _ in range(13):
        await send(writer, b"QQ==" * (MIB // 4))


async def unfinished_body(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    size = 9 * MIB
    await send(writer, f"{WEB}\r\ncontent-length: {size + 6}\r\n\r\n".encode())
    await send(writer, struct.pack(">BI", 0, size + 1))
    for _ in range(9):
        await send(writer, b"x" * MIB)


async def unfinished_form(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = b"POST /auth/login/static HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    await send(writer, head)
    for _ in range(64):
        await send(writer, b"4000\r\n" + b"x" * 0x4000 + b"\r\n")


async def slow_body(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = b"POST /auth/login/static HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n"
    await send(writer, head)
    while True:
        await send(writer, b"x")
        await asyncio.sleep(0.2)


async def chunk_trickle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = b"POST /auth/login/static HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    await send(writer, head)
    while True:
        await send(writer, b"1\r\nx\r\n")
        await asyncio.sleep(0.2)


async def chunk_extensions(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = b"POST /auth/login/static HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    await send(writer, head + b"1;a=")
    for _ in range(64):
        await send(writer, b"x" * MIB)


async def pipelining(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for _ in range(20):
        await send(writer, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * 1000)


async def no_reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ask for a large file, and read nothing of it."""
    reading: asyncio.Transport = writer.transport  # type: ignore[assignment]
    reading.pause_reading()
    await send(writer, b"GET /large.js HTTP/1.1\r\nhost: x\r\n\r\n")


HOOK = (
    b"POST /hooks/v1/default/none HTTP/1.1\r\nhost: x\r\nx-github-event: push\r\n"
    b"x-hub-signature-256: sha256=" + b"0" * 64 + b"\r\n"
)


async def forged_hooks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Deliveries of no git host, as fast as they are answered."""
    for _ in range(5_000):
        await send(writer, HOOK + b"content-length: 2\r\n\r\n{}")
        await reader.readuntil(b"\r\n\r\n")


async def unfinished_hooks(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As large as a hook may be, but for its last byte."""
    await send(writer, HOOK + f"content-length: {4 * MIB}\r\n\r\n".encode())
    for _ in range(3):
        await send(writer, b" " * MIB)
    await send(writer, b" " * (MIB - 1))


async def half_hello(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The beginning of a TLS handshake that never goes on."""
    await send(writer, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")


async def idle_http2(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await send(writer, PREFACE + frame(SETTINGS))


async def half_preface(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await send(writer, b"PR")


async def rapid_reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await idle_http2(_reader, writer)
    for number in range(20_000):
        stream = 2 * number + 1
        reset = frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
        await send(writer, call_head(stream) + reset)


async def settings_flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await idle_http2(_reader, writer)
    for _ in range(200):
        await send(writer, frame(SETTINGS) * 1000)


async def ping_flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await idle_http2(_reader, writer)
    for _ in range(200):
        await send(writer, frame(PING, 0, 0, b"01234567") * 1000)


async def continuation_flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await idle_http2(_reader, writer)
    await send(writer, frame(HEADERS, 0, 1, literal(":method", "POST")))
    for _ in range(20_000):
        await send(writer, frame(CONTINUATION, 0, 1, literal("a", "x" * 100) * 10))


async def empty_frames(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await idle_http2(_reader, writer)
    await send(writer, call_head(1))
    for _ in range(200):
        await send(writer, frame(DATA, 0, 1) * 1000)


async def many_streams(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Calls of nobody, each with a window full of data that ends nowhere, and no window back."""
    await idle_http2(_reader, writer)
    await send(writer, frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
    for number in range(2_000):
        stream = 2 * number + 1
        await send(writer, call_head(stream) + frame(DATA, 0, stream, b"\0" * 16_000))


async def refused_calls(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Calls with a key that is none, as fast as they are answered."""
    await idle_http2(_reader, writer)
    for number in range(20_000):
        stream = 2 * number + 1
        message = frame(DATA, END_STREAM, stream, b"\0\0\0\0\0")
        await send(writer, call_head(stream, ("authorization", "API-KEY a.b")) + message)


async def wrong_keys(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The same over gRPC-Web."""
    head = f"{WEB}\r\nauthorization: API-KEY a.b\r\ncontent-length: 5\r\n\r\n".encode()
    for _ in range(5_000):
        await send(writer, head + b"\0\0\0\0\0")
        await reader.readuntil(b"0\r\n\r\n")


FLOODS = {
    "half-requests": Flood(half_request, 1010),
    "half-open": Flood(nothing, 1010),
    "half-preface": Flood(half_preface, 400),
    "idle-http2": Flood(idle_http2, 340),
    "slow-headers": Flood(slow_headers, 300),
    "huge-headers": Flood(huge_headers, 8),
    "one-huge-header": Flood(one_huge_header, 8),
    "huge-url": Flood(huge_url, 8),
    "text-bombs": Flood(text_bomb, 5),
    "unfinished-bodies": Flood(unfinished_body, 40),
    "unfinished-forms": Flood(unfinished_form, 100),
    "slow-bodies": Flood(slow_body, 300),
    "chunk-trickle": Flood(chunk_trickle, 100),
    "chunk-extensions": Flood(chunk_extensions, 8),
    "pipelining": Flood(pipelining, 20),
    "no-reading": Flood(no_reading, 200),
    "rapid-reset": Flood(rapid_reset, 8, rounds=20),
    "settings-flood": Flood(settings_flood, 8),
    "ping-flood": Flood(ping_flood, 8),
    "continuation-flood": Flood(continuation_flood, 8),
    "empty-frames": Flood(empty_frames, 8),
    "many-streams": Flood(many_streams, 20),
    "refused-calls": Flood(refused_calls, 20),
    "wrong-keys": Flood(wrong_keys, 20),
    "forged-hooks": Flood(forged_hooks, 20),
    "unfinished-hooks": Flood(unfinished_hooks, 40),
    "tls-half-hello": Flood(half_hello, 500),
    "tls-half-open": Flood(nothing, 500),
    "tls-half-requests": Flood(half_request, 200, under_tls=True),
}


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: str, value: str) -> bytes:
    """A header field of HPACK, neither compressed nor remembered."""
    return b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))


def call_head(stream: int, *fields: tuple[str, str]) -> bytes:
    """The head of a call over gRPC."""
    head = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", METHOD),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *fields,
    )
    block = b"".join(literal(name, value) for name, value in head)
    return frame(HEADERS, END_HEADERS, stream, block)


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


class Running:
    """A flood under way."""

    def __init__(self, flood: Flood, host: str, port: int, source: str) -> None:
        self._flood = flood
        self._target = (host, port)
        self._source = source
        self._context: ssl.SSLContext | None = None
        if flood.under_tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE
        self._untried = flood.connections
        self.tried = asyncio.Event()
        self.had = 0

    async def connect_and_attack(self) -> None:
        for attempt in range(self._flood.rounds):
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with self._connected() as (reader, writer):
                    self.had += 1
                    attacking = asyncio.create_task(self._flood.attack(reader, writer))
                    try:
                        await asyncio.wait([attacking], timeout=0.05)
                        if not attempt:
                            self._count_try()
                        await attacking
                        await self._until_closed(reader, writer)
                    finally:
                        attacking.cancel()
                        await asyncio.wait([attacking])
            if not attempt:
                self._count_try()
            await asyncio.sleep(0.05)

    def _count_try(self) -> None:
        self._untried -= 1
        if self._untried <= 0:
            self.tried.set()

    @contextlib.asynccontextmanager
    async def _connected(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(
            *self._target, ssl=self._context, local_addr=(self._source, 0)
        )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def _until_closed(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._flood.attack is no_reading:
            while not writer.transport.is_closing():  # noqa: ASYNC110 - it must not read
                await asyncio.sleep(0.2)
        while await reader.read(MIB):
            pass


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main(name: str, address: str, source: str) -> None:
    host, _, port = address.rpartition(":")
    if not ipaddress.ip_address(host.strip("[]")).is_loopback:
        raise SystemExit(f"only the loopback is a target, not {host}")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    running = Running(FLOODS[name], host, int(port), source)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # connections end as they like
    workers = [
        asyncio.create_task(running.connect_and_attack()) for _ in range(FLOODS[name].connections)
    ]
    try:
        async with asyncio.timeout(SECONDS):
            await running.tried.wait()
            say("ready")
            await loop.run_in_executor(None, sys.stdin.buffer.read)
    except TimeoutError:
        pass
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)
    say(running.had)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
