# SPDX-License-Identifier: Apache-2.0
"""The proxy alone, between real sockets: bytes, their speed, and the end of either side."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from pipecd_controlplane.http.grpc_proxy import GrpcProxy

LIMIT = 30.0
MIB = 1024 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ProxyDialer(asyncio.Protocol):
    """Gives every connection to the proxy after its first bytes, as `protocol_detect` does."""

    def __init__(self, proxy: GrpcProxy) -> None:
        self._proxy = proxy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._proxy.take(self.transport, data)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Dial = Callable[[], AbstractAsyncContextManager[Streams]]


@asynccontextmanager
async def proxied(path: str, serve: Serve) -> AsyncIterator[tuple[GrpcProxy, Dial]]:
    """A proxy before a server with this behaviour; the second value connects a client to it."""
    loop = asyncio.get_running_loop()
    serving: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        try:
            await serve(reader, writer)
        finally:
            serving.discard(asyncio.current_task())
            await close(writer)

    @asynccontextmanager
    async def dial() -> AsyncIterator[Streams]:
        reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        try:
            yield reader, writer
        finally:
            await close(writer)

    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        back = await asyncio.start_unix_server(handle, path)
        proxy = GrpcProxy(path, tasks)
        listener = await loop.create_server(lambda: ProxyDialer(proxy), "127.0.0.1", 0)
        async with back, listener:
            yield proxy, dial
            await proxy.wait_ended()
            if left := {task for task in serving if task is not None}:
                await asyncio.wait(left)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_bytes_go_both_ways_in_order(tmp_path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)

    sent = bytes(range(256)) * 4096

    async with proxied(str(tmp_path / "s"), echo) as (_, dial), dial() as (reader, writer):
        writer.write(sent)
        received = await reader.readexactly(len(sent))

    assert received == sent


async def test_a_server_that_speaks_first_is_heard(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"welcome")
        await reader.read()

    async with proxied(str(tmp_path / "s"), greet) as (_, dial), dial() as (reader, writer):
        writer.write(b"P")
        assert await reader.readexactly(7) == b"welcome"


async def test_a_half_close_is_passed_on_and_the_answer_still_comes(tmp_path: Path) -> None:
    async def answer_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        whole = await reader.read()
        writer.write(whole[::-1])

    async with (
        proxied(str(tmp_path / "s"), answer_at_the_end) as (_, dial),
        dial() as (reader, writer),
    ):
        writer.write(b"PRI")
        writer.write_eof()
        assert await reader.read() == b"IRP"


async def test_a_client_that_does_not_read_stops_the_server(tmp_path: Path) -> None:
    """Otherwise one slow reader of a large stream would fill the memory of the control plane."""
    written = 0

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        while written < 64 * MIB:
            writer.write(b"x" * MIB)
            written += MIB
            await writer.drain()

    async with proxied(str(tmp_path / "s"), flood) as (_, dial), dial() as (reader, writer):
        writer.write(b"PRI")
        stuck_at = await settled(lambda: written)
        received = 0
        while data := await reader.read(MIB):
            received += len(data)

    assert stuck_at < 32 * MIB
    assert received == 64 * MIB


async def test_a_server_that_does_not_read_stops_the_client(tmp_path: Path) -> None:
    read_on = asyncio.Event()
    sent = received = 0

    async def lazy(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await read_on.wait()
        while data := await reader.read(MIB):
            received += len(data)

    async def send(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while sent < 64 * MIB:
            writer.write(b"x" * MIB)
            sent += MIB
            await writer.drain()
        writer.write_eof()

    async with (
        proxied(str(tmp_path / "s"), lazy) as (_, dial),
        dial() as (reader, writer),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(send(writer))
        stuck_at = await settled(lambda: sent)
        read_on.set()
        assert await reader.read() == b""

    assert stuck_at < 32 * MIB
    assert received == 64 * MIB


async def settled(count: Callable[[], int]) -> int:
    """The count when it has begun to move and then has not moved for a while."""
    last = 0
    while count() != last or last == 0:
        last = count()
        await asyncio.sleep(0.3)
    return last


async def test_what_the_server_wrote_before_it_closed_arrives(tmp_path: Path) -> None:
    async def seal_wait_seconds(
        _reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"x" * MIB)

    async with (
        proxied(str(tmp_path / "s"), seal_wait_seconds) as (_, dial),
        dial() as (reader, writer),
    ):
        writer.write(b"PRI")
        assert len(await reader.read()) == MIB


async def test_a_client_that_leaves_ends_the_servers_side(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def wait_for_the_end(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()
        left.set()

    async with proxied(str(tmp_path / "s"), wait_for_the_end) as (proxy, dial):
        async with dial() as (_, writer):
            writer.write(b"PRI")
        await left.wait()
        await proxy.wait_ended()
        assert proxy.clients == {}


async def test_a_client_that_leaves_before_the_server_is_reached_leaves_nothing(
    tmp_path: Path,
) -> None:
    async def wait(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with proxied(str(tmp_path / "s"), wait) as (proxy, dial):
        for _ in range(20):
            async with dial() as (_, writer):
                writer.write(b"PRI")
                writer.transport.abort()
        await proxy.wait_ended()
        assert proxy.clients == {}


async def test_the_clients_address_is_kept_under_the_name_that_the_server_sees(
    tmp_path: Path,
) -> None:
    seen = asyncio.Queue[bytes]()

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await seen.put(writer.get_extra_info("peername"))
        await reader.read()

    async with proxied(str(tmp_path / "s"), look) as (proxy, dial), dial() as (_, writer):
        writer.write(b"PRI")
        name = await seen.get()
        [(known_as, client)] = proxy.clients.items()
        assert known_as == f"unix-abstract:{name[1:].decode()}"
        assert client.address({}) == "127.0.0.1"


async def test_a_client_is_cut_off_when_there_is_no_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def nobody(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        raise AssertionError

    path = tmp_path / "s"
    with caplog.at_level(logging.ERROR):
        async with proxied(str(path), nobody) as (_, dial), dial() as (reader, writer):
            path.unlink()
            writer.write(b"PRI")
            assert await reader.read() == b""

    assert [record.message for record in caplog.records] == ["front.dial_failed"]


async def test_an_abort_ends_both_sides_at_once(tmp_path: Path) -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        with contextlib.suppress(ConnectionResetError):
            await reader.read()

    async with proxied(str(tmp_path / "s"), wait) as (proxy, dial), dial() as (reader, writer):
        writer.write(b"PRI")
        await reader.readexactly(4)
        proxy.abort()
        await proxy.wait_ended()
        assert await reader.read() == b""
