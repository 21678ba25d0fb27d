# SPDX-License-Identifier: Apache-2.0
"""Listening sockets for one address, with an error that its reader understands."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from pipecd_wire.rpc import AddressError

BACKLOG: Final = 2048

# A name such as `localhost` may have an IPv6 address on a machine that has no IPv6.
_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


async def listen(host: str, port: int) -> list[socket.socket]:
    """Listens on every address that the host has; port 0 is a free one, the same on all of them.

    An empty host is every address of the machine. Raises AddressError.
    """
    loop = asyncio.get_running_loop()
    name = f"{host}:{port}"
    try:
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise AddressError(f"cannot listen on {name!r}: unknown host {host!r}") from error
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, _, _, _, address in found:
            try:
                sockets.append(_bind(family, (address[0], port, *address[2:])))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
            else:
                port = sockets[0].getsockname()[1]
        if absent is not None and not sockets:
            raise absent
    except OSError as error:
        for opened in sockets:
            opened.close()
        raise AddressError(f"cannot listen on {name!r}: {_reason(error)}") from error
    return sockets


@asynccontextmanager
async def listening(host: str, port: int) -> AsyncIterator[list[socket.socket]]:
    """Yields the sockets of `listen`, and closes them when the block ends."""
    listeners = await listen(host, port)
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()


def address_of(listener: socket.socket) -> str:
    """Returns the `host:port` of a listener, as a client writes it."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    # The protocol by name: asyncio turns off the delay of small packets (40 ms) only for sockets
    # that say they are TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Otherwise the wildcard of IPv6 would also take the port of IPv4.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "the port is taken (is another server running?)"
        case errno.EACCES:
            return "not permitted (ports below 1024 belong to root)"
        case _:
            return (error.strerror or str(error)).lower()
