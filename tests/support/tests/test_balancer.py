# SPDX-License-Identifier: Apache-2.0
"""What tests rely on when they put the balancer between programs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from pipecd_test_support.balancer import (
    BalancedConnection,
    Balancer,
    ProxyVersion,
    make_proxy_header,
)
from pipecd_test_support.waiting import wait_answer, wait_soon


class NamedBackend:
    """Says its name to whoever connects, then repeats what it hears."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self.heard = b""
        self.ended = asyncio.Event()
        """Set when a client has gone."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(f"{self.name}\n".encode())
            while data := await reader.read(1000):
                self.heard += data
                writer.write(data)
        except ConnectionError:
            return
        finally:
            self.ended.set()
            writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["NamedBackend"]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        try:
            yield self
        finally:
            server.close()


class Client:
    """One connection through a balancer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read_line(self) -> str:
        return (await wait_soon(self.reader.readline())).decode().strip()

    async def ask(self, text: str) -> str:
        self.writer.write(f"{text}\n".encode())
        return await self.read_line()

    async def is_cut(self) -> bool:
        try:
            return await wait_soon(self.reader.read()) == b""
        except ConnectionError:
            return True


@pytest.fixture
async def opened() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def connect(opened: AsyncExitStack, balancer: Balancer) -> Client:
    host, _, port = balancer.address.rpartition(":")
    reader, writer = await wait_soon(asyncio.open_connection(host, int(port)))
    opened.callback(writer.close)
    return Client(reader, writer)


async def balance(
    opened: AsyncExitStack, *names: str, words: tuple[bytes, ...] = ()
) -> tuple[Balancer, list[NamedBackend]]:
    backends = [await opened.enter_async_context(NamedBackend(name).serving()) for name in names]
    balancer = Balancer((each.address for each in backends), words=words)
    return await opened.enter_async_context(balancer.listening()), backends


async def test_connections_of_one_client_go_to_all_backends_in_turn(
    opened: AsyncExitStack,
) -> None:
    balancer, _ = await balance(opened, "one", "two")

    met = [await (await connect(opened, balancer)).read_line() for _ in range(4)]

    assert met == ["one", "two", "one", "two"]


async def test_a_backend_that_is_gone_is_passed_over(opened: AsyncExitStack) -> None:
    balancer, backends = await balance(opened, "one")
    async with NamedBackend("gone").serving() as gone:
        pass
    balancer.backends = [gone.address, backends[0].address]

    met = [await (await connect(opened, balancer)).read_line() for _ in range(3)]

    assert met == ["one"] * 3


async def test_a_client_is_cut_off_when_nobody_is_there(opened: AsyncExitStack) -> None:
    balancer, _ = await balance(opened)

    assert await (await connect(opened, balancer)).is_cut()


async def test_a_backend_may_listen_on_a_socket_with_a_path(
    opened: AsyncExitStack, tmp_path: Path
) -> None:
    backend = NamedBackend("socket")
    server = await asyncio.start_unix_server(backend.serve, tmp_path / "s")
    opened.callback(server.close)
    balancer = await opened.enter_async_context(Balancer([str(tmp_path / "s")]).listening())

    assert await (await connect(opened, balancer)).read_line() == "socket"


async def test_a_cut_breaks_both_ends_and_the_next_connection_is_carried(
    opened: AsyncExitStack,
) -> None:
    balancer, [backend] = await balance(opened, "one")
    client = await connect(opened, balancer)
    await client.read_line()

    assert balancer.cut() == 1

    assert await client.is_cut()
    await wait_soon(backend.ended.wait())
    assert await (await connect(opened, balancer)).read_line() == "one"


async def test_one_connection_can_be_cut_and_the_others_go_on(opened: AsyncExitStack) -> None:
    balancer, _ = await balance(opened, "one")
    first, second = [await connect(opened, balancer) for _ in range(2)]
    await first.read_line()
    await second.read_line()

    balancer.cut(balancer.connections[:1])

    assert await first.is_cut()
    assert await second.ask("still there") == "still there"


async def test_a_connection_is_known_by_what_its_client_has_said(opened: AsyncExitStack) -> None:
    """The connection that listens is told apart so, also when the word comes in pieces."""
    balancer, [backend] = await balance(opened, "one", words=(b"LISTEN",))
    talker, listener = [await connect(opened, balancer) for _ in range(2)]
    for client in (talker, listener):
        await client.read_line()
    await talker.ask("SELECT")
    listener.writer.write(b"LIS")
    await wait_answer(lambda: as_answer(backend.heard), lambda heard: heard.endswith(b"LIS"))
    await listener.ask("TEN changes")

    assert [each.said for each in balancer.connections] == [set(), {b"LISTEN"}]


async def as_answer(value: bytes) -> bytes:
    return value


@pytest.mark.parametrize("version", [1, 2])
async def test_it_names_its_client_to_the_backend_when_asked_to(
    opened: AsyncExitStack, version: ProxyVersion
) -> None:
    backend = await opened.enter_async_context(NamedBackend("one").serving())
    made = Balancer([backend.address], send_proxy=version)
    balancer = await opened.enter_async_context(made.listening())
    client = await connect(opened, balancer)
    ends = [client.writer.get_extra_info(name) for name in ("sockname", "peername")]
    header = make_proxy_header(version, *ends)
    client.writer.write(b"hello\n")

    await wait_answer(lambda: as_answer(backend.heard), lambda heard: heard == header + b"hello\n")


async def test_silence_holds_back_what_is_said_and_loses_it(opened: AsyncExitStack) -> None:
    balancer, [backend] = await balance(opened, "one")
    client = await connect(opened, balancer)
    await client.read_line()

    with balancer.silent():
        client.writer.write(b"lost\n")
        late = await connect(opened, balancer)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(late.reader.readline(), 0.2)

    assert await client.is_cut()
    assert await (await connect(opened, balancer)).ask("heard") == "one"
    await wait_answer(lambda: as_answer(backend.heard), lambda heard: heard == b"heard\n")


async def test_a_half_open_connection_is_silent_and_new_ones_are_not(
    opened: AsyncExitStack,
) -> None:
    balancer, [backend] = await balance(opened, "one")
    client = await connect(opened, balancer)
    await client.read_line()

    chosen: list[BalancedConnection] = list(balancer.connections)
    with balancer.silent(chosen):
        client.writer.close()
        other = await connect(opened, balancer)
        assert await other.read_line() == "one"
        assert not backend.ended.is_set()

    await wait_soon(backend.ended.wait())
    assert await other.ask("still there") == "still there"


async def test_what_a_backend_said_last_arrives_although_it_has_gone(
    opened: AsyncExitStack,
) -> None:
    long = b"x" * 5_000_000

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(long)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    opened.callback(server.close)
    host, port = server.sockets[0].getsockname()[:2]
    balancer = await opened.enter_async_context(Balancer([f"{host}:{port}"]).listening())
    client = await connect(opened, balancer)

    assert len(await wait_soon(client.reader.read())) == len(long)
