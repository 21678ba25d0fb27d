# SPDX-License-Identifier: Apache-2.0
"""The header of the PROXY protocol, in which a TCP balancer names the client of a connection.

Versions 1 (text) and 2 (binary), by HAProxy's `proxy-protocol.txt`. The header comes before
everything else, also before TLS: not a byte behind it may be read here.
"""

import asyncio
import ipaddress
import re
import socket
from typing import Final

from pipecd_controlplane.http.addresses import parse_address

TEXT_START: Final = b"PROXY "
TEXT_BYTES: Final = 107
"""The longest header of version 1, by its specification."""

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
FIXED_BYTES: Final = 16
"""Of version 2: the signature, version and command, family, length of the rest."""

REST_BYTES: Final = 4096
"""How long the rest may be. Two addresses take 36 bytes; what follows them is skipped."""

LOCAL: Final = 0x20
"""Version 2, and a connection that the balancer opened for itself, e.g. to check health."""

PROXY: Final = 0x21

ADDRESS_BYTES: Final = {0x11: 4, 0x21: 16}
"""Of a client that came by TCP over IPv4 or IPv6."""

NAMELESS: Final = frozenset({0x00, 0x31})
"""Families of clients without an IP address: unspecified, and stream sockets with a path."""

_TEXT: Final = re.compile(
    rb"PROXY TCP([46]) ([0-9A-Fa-f:.]+) ([0-9A-Fa-f:.]+) (0|[1-9]\d{0,4}) (0|[1-9]\d{0,4})\r\n"
)
_HIGHEST_PORT: Final = 65_535


class ProxyHeaderError(Exception):
    """A connection does not begin with a header of the PROXY protocol."""


async def read_proxy_header(client: socket.socket) -> str | None:
    """Returns the address that the header names, None when it names none.

    Raises ProxyHeaderError, and OSError when the connection breaks or ends without a byte. The
    caller limits the time.
    """
    loop = asyncio.get_running_loop()
    header = b""
    while missing := count_missing(header):
        received = await loop.sock_recv(client, missing)
        if not received and not header:
            raise ConnectionResetError
        if not received:
            raise ProxyHeaderError("it is cut off")
        header += received
    return parse_header(header)


def count_missing(start: bytes) -> int:
    """Returns how many bytes can be read without reading past the header; 0 at its end.

    Raises ProxyHeaderError when no header begins like that.
    """
    if not any(start[: len(each)] == each[: len(start)] for each in (SIGNATURE, TEXT_START)):
        raise ProxyHeaderError("something else begins there")
    if len(start) < len(SIGNATURE):  # every header is longer
        return len(SIGNATURE) - len(start)
    if start.startswith(TEXT_START):
        if len(start) >= TEXT_BYTES and not start.endswith(b"\r\n"):
            raise ProxyHeaderError("its line is too long")
        return 0 if start.endswith(b"\r\n") else 1
    if len(start) < FIXED_BYTES:
        return FIXED_BYTES - len(start)
    rest = int.from_bytes(start[FIXED_BYTES - 2 : FIXED_BYTES], "big")
    if rest > REST_BYTES:
        raise ProxyHeaderError("it is too long")
    return FIXED_BYTES + rest - len(start)


def parse_header(header: bytes) -> str | None:
    """Returns the address that a whole header names, None when it names none.

    Raises ProxyHeaderError.
    """
    if header.startswith(SIGNATURE):
        return _parse_binary(header)
    return _parse_text(header)


def _parse_binary(header: bytes) -> str | None:
    command, family = header[len(SIGNATURE) : len(SIGNATURE) + 2]
    if command == LOCAL:
        return None
    if command != PROXY:
        raise ProxyHeaderError("its version or command is unknown")
    if family in NAMELESS:
        return None
    size = ADDRESS_BYTES.get(family)
    if size is None:
        raise ProxyHeaderError("its family is unknown, or not of TCP")
    if len(header) < FIXED_BYTES + 2 * (size + 2):  # two addresses, two ports
        raise ProxyHeaderError("its addresses are cut off")
    return _normalize(ipaddress.ip_address(header[FIXED_BYTES : FIXED_BYTES + size]))


def _parse_text(header: bytes) -> str | None:
    if header == b"PROXY UNKNOWN\r\n" or header.startswith(b"PROXY UNKNOWN "):
        return None
    found = _TEXT.fullmatch(header)
    if found is None or any(int(port) > _HIGHEST_PORT for port in found.group(4, 5)):
        raise ProxyHeaderError("its line cannot be read")
    version = int(found[1])
    parsed = [_parse_exactly(address) for address in found.group(2, 3)]
    if any(each.version != version for each in parsed):
        raise ProxyHeaderError("its addresses are of another family")
    return _normalize(parsed[0])


def _parse_exactly(address: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(address.decode())
    except ValueError:
        raise ProxyHeaderError("it names no address") from None


def _normalize(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Returns an IPv4-mapped address as IPv4: balancers map one when the other is IPv6."""
    return str(parse_address(str(address)))
