# SPDX-License-Identifier: Apache-2.0
"""Which user of this machine is at the other end of a TCP connection, or listens on a port.

The kernel's table of sockets (`/proc/net/tcp`, `/proc/net/tcp6`) has one row for each end of a
connection over the loopback, with the user who made that socket. Whatever cannot be found out is
an error: a caller whose user is unknown is a stranger.
"""

import ipaddress
import socket
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

TABLES: Final = {"/proc/net/tcp": 8, "/proc/net/tcp6": 32}
"""The tables, and how many digits an address has there."""
LISTENING: Final = "0A"

LOOKS: Final = 3
"""Scans of a table: one can miss a row while sockets change, as the kernel reads in pieces."""

OVERFLOW_UID: Final = Path("/proc/sys/kernel/overflowuid")
UID_MAP: Final = Path("/proc/self/uid_map")


class PeerError(Exception):
    """The peer is not the expected user, or its user cannot be found out."""


class SocketRow(NamedTuple):
    """One socket as the kernel lists it; addresses as `HEX:PORT`."""

    local: str
    remote: str
    state: str
    uid: int
    inode: int


def check_peer(host: str, port: int, *, server_ports: Collection[int], uid: int) -> None:
    """Raises PeerError unless the caller at `host:port` is the user `uid` of this machine.

    `server_ports` are the ports of the server that was called.
    """
    _require_distinct(uid)
    local = {f"{address}:{port:04X}" for address in _spellings(host)}
    remote = tuple(f":{each:04X}" for each in server_ports)
    for _ in range(LOOKS):
        rows = [row for row in _rows(local) if row.remote.endswith(remote)]
        if rows:
            break
    else:
        raise PeerError(f"no process of this machine is at {host} port {port}")
    # A socket that its process has closed has no inode, and its user counts as root: without this,
    # a caller that sends a call and hangs up at once would be root.
    if any(row.inode == 0 for row in rows):
        raise PeerError(f"the caller at {host} port {port} has hung up")
    # All of them: several sockets share an address and a port where they lead to several servers.
    if others := {row.uid for row in rows} - {uid}:
        raise PeerError(f"the caller is the user {min(others)} of this machine, not {uid}")


def check_listeners(hosts: Collection[str], port: int, *, uid: int) -> None:
    """Raises PeerError when another user than `uid` listens on this port of these hosts.

    A port without a listener is no error: a connection to it fails by itself.
    """
    _require_distinct(uid)
    anywhere = ("0.0.0.0", "::")  # noqa: S104 - looked at, not served
    addresses = {spelling for host in (*hosts, *anywhere) for spelling in _spellings(host)}
    rows = _rows({f"{address}:{port:04X}" for address in addresses})
    if others := {row.uid for row in rows if row.state == LISTENING} - {uid}:
        raise PeerError(
            f"the port {port} is served by the user {min(others)} of this machine, not by {uid}"
        )


def has_ipv6() -> bool:
    """Returns whether this machine has the loopback address of IPv6."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _rows(local: Collection[str]) -> Iterator[SocketRow]:
    """Yields the sockets that have one of these local addresses."""
    for table, digits in TABLES.items():
        # A table takes the kernel milliseconds, however few rows it has.
        if fitting := [each for each in local if each.index(":") == digits]:
            text = _read(table)
            for address in fitting:
                yield from _rows_of(address, text)


def _read(table: str) -> str:
    try:
        return Path(table).read_text("ascii")
    except FileNotFoundError as error:
        if Path("/proc/net").is_dir():  # a machine without that family
            return ""
        raise PeerError(f"{table} is not there to tell who is calling") from error
    except (OSError, UnicodeError) as error:
        raise PeerError(f"{table} cannot be read to tell who is calling: {error}") from error


def _rows_of(address: str, text: str) -> Iterator[SocketRow]:
    # Searched, not split: a busy machine has ten thousands of rows. The colon ends a row's number.
    mark = f": {address} "
    at = text.find(mark)
    while at >= 0:
        end = text.find("\n", at)
        yield _row(text[at + 2 : end if end >= 0 else None])
        at = text.find(mark, at + 1)


def _row(text: str) -> SocketRow:
    fields = text.split()
    try:
        return SocketRow(fields[0], fields[1], fields[2], int(fields[6]), int(fields[8]))
    except (IndexError, ValueError) as error:
        raise PeerError(f"a row of the kernel's sockets cannot be read: {text!r}") from error


def _spellings(host: str) -> Iterator[str]:
    """Yields an address as the tables write it; an IPv4 address may be on an IPv6 socket too."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError as error:
        raise PeerError(f"{host!r} is no address of this machine") from error
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            yield _hex(address.packed)
            return
        address = address.ipv4_mapped
    yield _hex(address.packed)
    yield _hex(ipaddress.IPv6Address(f"::ffff:{address}").packed)


def _hex(packed: bytes) -> str:
    """Returns the hex form of the kernel: each four bytes are one number in native byte order."""
    return "".join(f"{number:08X}" for (number,) in struct.iter_unpack("=I", packed))


def _require_distinct(uid: int) -> None:
    """Raises PeerError when `uid` stands for all users outside of this user namespace."""
    try:
        if uid != int(OVERFLOW_UID.read_text()):
            return
        first, _, length = map(int, UID_MAP.read_text().splitlines()[0].split())
    except (OSError, ValueError, IndexError) as error:
        raise PeerError(f"nobody can tell whose the user {uid} is: {error}") from error
    if (first, length) != (0, 2**32 - 1):
        raise PeerError(f"the user {uid} stands for every user outside of this user namespace")
