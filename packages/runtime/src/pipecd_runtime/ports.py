# SPDX-License-Identifier: Apache-2.0
"""Picks free ports for programs that take their port as an argument."""

import errno
import random
import socket
from contextlib import closing
from pathlib import Path
from typing import Final

ATTEMPTS: Final = 20
SPAN: Final = 8192


def is_free(port: int) -> bool:
    """Returns whether no process listens on this port, on any address."""
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
    """Returns a free port for a program to serve on.

    It lies below those that the system gives to outgoing connections: one of them could take it
    before the program does, and a connection attempt could even meet itself there.

    Raises `OSError` when every port that was tried is taken.
    """
    lowest = first_ephemeral_port()
    for _ in range(ATTEMPTS):
        port = random.randrange(max(1024, lowest - SPAN), lowest)  # noqa: S311 - guards nothing
        if is_free(port):
            return port
    raise OSError(errno.EADDRINUSE, f"found no free port below {lowest}")


def first_ephemeral_port() -> int:
    """Returns the lowest port that the system gives to outgoing connections."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = 32768
    return first if first > 1024 + SPAN else 32768
