# SPDX-License-Identifier: Apache-2.0
"""The private port on which piped serves one program, and a check of a program's own port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from pipecd_runtime.peer import has_ipv6
from pipecd_wire.rpc import AddressError, Authenticator, Endpoints, Server

ATTEMPTS: Final = 20


@asynccontextmanager
async def private_port(endpoints: Endpoints, authenticator: Authenticator) -> AsyncIterator[int]:
    """Serve one program on a free loopback port while the block runs; yields the port.

    Programs connect to `localhost`, which may be either loopback address: piped listens on both, so
    that no other process can serve the same port on the other one.
    """
    server, port = _listen(endpoints, authenticator)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


def _listen(endpoints: Endpoints, authenticator: Authenticator) -> tuple[Server, int]:
    both = has_ipv6()
    for _ in range(ATTEMPTS):
        server = Server(endpoints, authenticator=authenticator)
        port = server.listen("127.0.0.1:0")
        if not both:
            return server, port
        try:
            server.listen(f"[::1]:{port}")
        except AddressError:
            continue
        return server, port
    raise AddressError("found no port that is free on both loopback addresses")


async def accepts(port: int) -> bool:
    """Returns whether a process accepts connections on this port."""
    for address in ("127.0.0.1", "::1"):
        try:
            _, writer = await asyncio.open_connection(address, port)
        except OSError:
            continue
        # A port in the ephemeral range can be connected to itself, without any listener.
        itself = writer.get_extra_info("sockname") == writer.get_extra_info("peername")
        writer.close()
        if not itself:
            return True
    return False
