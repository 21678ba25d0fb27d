# SPDX-License-Identifier: Apache-2.0
"""Ports on the loopback: piped's private one for a plugin, and one for a plugin to serve on."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

from pipecd_runtime.peer import has_ipv6
from pipecd_wire.rpc import AddressError, Authenticator, Endpoints, Server

ATTEMPTS: Final = 20
SPAN: Final = 8192


@asynccontextmanager
async def private_port(endpoints: Endpoints, authenticator: Authenticator) -> AsyncIterator[int]:
    """Serve one plugin, and nobody else, on a free port of the loopback while the block runs.

    Plugins are told `localhost`, which may be either loopback address: both are taken, so that
    nobody else can answer on the other one.
    """
    server, port = _listening(endpoints, authenticator)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


def _listening(endpoints: Endpoints, authenticator: Authenticator) -> tuple[Server, int]:
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


def is_free(port: int) -> bool:
    """Does nobody listen on this port, on any address?"""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - looked at, not served
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # the machine does not have this kind of address
        with closing(probe):
            # Connections that have ended linger on a port; only a listener counts.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True


def pick_port() -> int:
    """A free port for a plugin.

    It lies below those that the system gives to outgoing connections: one of them could take it
    before the plugin does, and a connection attempt could even meet itself there.
    """
    lowest = _first_ephemeral()
    for _ in range(ATTEMPTS):
        port = random.randrange(max(1024, lowest - SPAN), lowest)  # noqa: S311 - guards nothing
        if is_free(port):
            return port
    raise AddressError("found no free port for a plugin")


def _first_ephemeral() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = 32768
    return first if first > 1024 + SPAN else 32768


async def accepts(port: int) -> bool:
    """Does somebody accept connections on this port?"""
    for address in ("127.0.0.1", "::1"):
        try:
            _, writer = await asyncio.open_connection(address, port)
        except OSError:
            continue
        # Where the port is one of those for outgoing connections, an attempt can meet itself.
        itself = writer.get_extra_info("sockname") == writer.get_extra_info("peername")
        writer.close()
        if not itself:
            return True
    return False
