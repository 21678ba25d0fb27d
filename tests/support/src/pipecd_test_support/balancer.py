# SPDX-License-Identifier: Apache-2.0
"""A plain TCP balancer whose connections can be cut or fall silent.

Each new connection goes to the next backend that takes it, whoever the client is. With one backend
it is a wire that a test can break, e.g. between a control plane and its database.
"""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Literal

CHUNK_BYTES: Final = 64 * 1024
CONNECT_SECONDS: Final = 10.0

Address = tuple[str, int]
ProxyVersion = Literal[1, 2]


class BalancedConnection:
    """A connection of a client, and the one to the backend that it was given to."""

    def __init__(self, backend: str, ends: tuple[asyncio.StreamWriter, ...]) -> None:
        self.backend = backend
        self.said: set[bytes] = set()
        """Which of the words that the balancer looks for the client has sent."""
        self.through = asyncio.Event()
        """Unset while nothing gets through."""
        self.through.set()
        self._ends = ends

    def cut(self) -> None:
        """Break it, as a router does that forgets it."""
        for end in self._ends:
            end.transport.abort()


class Balancer:
    """Passes on everything, as long as it may."""

    def __init__(
        self,
        backends: Iterable[str] = (),
        *,
        words: Iterable[bytes] = (),
        send_proxy: ProxyVersion | None = None,
        source: str | None = None,
    ) -> None:
        """`backends`: `host:port`, or the path of a socket; more can be added later.

        `words`: what is looked for in all that clients send, see `BalancedConnection.said`.
        `send_proxy`: the version of the PROXY protocol by which it names clients to the backends.
        `source`: the address that it connects to backends from.
        """
        self.backends = list(backends)
        self.address = ""
        """Where it listens, once it does."""
        self.connections: list[BalancedConnection] = []
        """Those that have a backend, the oldest first."""
        self._words = tuple(words)
        self._send_proxy = send_proxy
        self._source = source
        self._turn = 0
        self._through = asyncio.Event()
        self._through.set()
        self._waiting: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Balancer"]:
        """Listen while the block runs."""
        carrying: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as tasks:

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = tasks.create_task(self._carry(reader, writer))
                carrying.add(task)
                task.add_done_callback(carrying.discard)

            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            host, port = server.sockets[0].getsockname()[:2]
            self.address = f"{host}:{port}"
            try:
                yield self
            finally:
                server.close()
                for task in list(carrying):
                    task.cancel()

    def cut(self, chosen: Collection[BalancedConnection] | None = None) -> int:
        """Break the chosen connections, or all. Returns how many there were."""
        found = self.connections if chosen is None else chosen
        for connection in list(found):
            connection.cut()
        if chosen is None:
            for writer in self._waiting:
                writer.transport.abort()
        return len(found)

    @contextmanager
    def silent(self, chosen: Collection[BalancedConnection] | None = None) -> Iterator[None]:
        """Hold back everything while the block runs, and tell nobody; new connections as well.

        With `chosen` those alone: they are half open, new ones are not. What was held back is lost
        with its connection.
        """
        gates = [self._through] if chosen is None else [each.through for each in chosen]
        for gate in gates:
            gate.clear()
        try:
            yield
        finally:
            self.cut(chosen)
            for gate in gates:
                gate.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it, its backend or a test ends that."""
        self._waiting.add(writer)
        try:
            await self._through.wait()
            found = await self._open_backend()
        except BaseException:
            writer.transport.abort()
            raise
        finally:
            self._waiting.discard(writer)
        if found is None or writer.transport.is_closing():
            writer.transport.abort()  # nobody is there, or it was cut meanwhile
            if found is not None:
                found[2].transport.abort()
            return
        backend, answers, upstream = found
        if self._send_proxy is not None:
            ends = [writer.get_extra_info(name)[:2] for name in ("peername", "sockname")]
            upstream.write(make_proxy_header(self._send_proxy, *ends))
        connection = BalancedConnection(backend, (writer, upstream))
        self.connections.append(connection)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_on(connection, reader, upstream, self._words))
                tasks.create_task(self._pass_on(connection, answers, writer))
        except* OSError:
            pass  # one end is gone: so is the other
        finally:
            self.connections.remove(connection)
            for end in (writer, upstream):
                end.close()  # what was read before the end is still sent

    async def _open_backend(
        self,
    ) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Return a connection to the next backend that takes one; None when none does."""
        for _ in range(len(self.backends)):
            backend = self.backends[self._turn % len(self.backends)]
            self._turn += 1
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return (backend, *await _open_connection(backend, self._source))
            except OSError:
                continue
        return None

    async def _pass_on(
        self,
        connection: BalancedConnection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        words: tuple[bytes, ...] = (),
    ) -> None:
        tail = b""
        while data := await reader.read(CHUNK_BYTES):
            await self._through.wait()
            await connection.through.wait()
            connection.said.update(word for word in words if word in tail + data)
            tail = data[-max(map(len, words), default=1) :]
            writer.write(data)
            await writer.drain()
        await self._through.wait()
        await connection.through.wait()
        # The end of one direction is the end of both: nobody here uses half a connection.
        raise ConnectionResetError


def make_proxy_header(version: ProxyVersion, client: Address, server: Address) -> bytes:
    """Returns the header of the PROXY protocol for a client's connection by TCP."""
    hosts = [ipaddress.ip_address(host) for host, _ in (client, server)]
    ports = [port for _, port in (client, server)]
    family = hosts[0].version
    if version == 1:
        words = ["PROXY", f"TCP{family}", *map(str, hosts), *map(str, ports)]
        return f"{' '.join(words)}\r\n".encode()
    addresses = b"".join(each.packed for each in hosts)
    addresses += b"".join(port.to_bytes(2, "big") for port in ports)
    kind = bytes([0x21, 0x11 if family == 4 else 0x21])
    return b"\r\n\r\n\0\r\nQUIT\n" + kind + len(addresses).to_bytes(2, "big") + addresses


async def _open_connection(
    backend: str, source: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if backend.startswith("/"):
        return await asyncio.open_unix_connection(backend)
    host, _, port = backend.rpartition(":")
    local = None if source is None else (source, 0)
    return await asyncio.open_connection(host, int(port), local_addr=local)
