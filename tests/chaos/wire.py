# SPDX-License-Identifier: Apache-2.0
"""The wire between piped and the control plane, which can be cut or fall silent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

CHUNK = 64 * 1024


class Wire:
    """Passes everything on, as long as it may."""

    def __init__(self) -> None:
        self.address = ""
        self.upstream = ""
        self._through = asyncio.Event()
        self._through.set()
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Wire"]:
        """Listen while the block runs; `upstream` may be known later."""
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        try:
            yield self
        finally:
            server.close()
            self._through.set()
            self.cut()

    def cut(self) -> None:
        """Break all connections, as a router does that forgets them."""
        for writer in self._writers:
            writer.transport.abort()

    async def silence(self, seconds: float) -> None:
        """Nothing gets through, and nobody is told; then what was held back is lost with its
        connection."""
        self._through.clear()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.cut()
            self._through.set()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        upstream = None
        try:
            await self._through.wait()
            host, _, port = self.upstream.rpartition(":")
            answers, upstream = await asyncio.open_connection(host, int(port))
            self._writers.add(upstream)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_on(reader, upstream))
                tasks.create_task(self._pass_on(answers, writer))
        except* OSError:
            pass  # one end is gone: so is the other
        finally:
            for each in (writer, upstream):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await self._through.wait()
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()
        # The end of one direction is the end of both: gRPC needs no half a connection.
        raise ConnectionResetError
