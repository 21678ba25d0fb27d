# SPDX-License-Identifier: Apache-2.0
"""The address of a caller: that of the connection, or the one that a trusted proxy names.

It names the address in `X-Forwarded-For`, or by the PROXY protocol (`proxy_protocol`).
"""

import ipaddress
from collections.abc import Iterable

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MOST_HOPS = 16
"""Addresses of `X-Forwarded-For` that are read, from its end."""


class TrustedProxies:
    """Networks of proxies that are believed when they name a caller's address."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks: tuple[Network, ...] = tuple(map(ipaddress.ip_network, networks))

    def __bool__(self) -> bool:
        return bool(self._networks)

    def is_trusted(self, address: str) -> bool:
        parsed = parse_address(address)
        return parsed is not None and self._covers(parsed)

    def find_client(self, connected: str, forwarded: str) -> str:
        """Returns the caller's address: the last one that is not a trusted proxy's.

        Everything before it in the header was written by the caller and proves nothing.
        """
        if not forwarded or not self._networks or not self.is_trusted(connected):
            return connected
        for entry in reversed(forwarded.rsplit(",", MOST_HOPS)[-MOST_HOPS:]):
            parsed = parse_address(_strip_port(entry.strip()))
            if parsed is None:
                break
            connected = str(parsed)
            if not self._covers(parsed):
                break
        return connected

    def _covers(self, address: Address) -> bool:
        return any(
            address.version == network.version and address in network for network in self._networks
        )


def parse_address(text: str) -> Address | None:
    """Returns the IP address in a text, an IPv4-mapped one as IPv4; None when it is none."""
    try:
        parsed = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed


def limit_key(address: str) -> str:
    """Returns the key of limits per address: of IPv6 the /64, which belongs to one caller."""
    parsed = parse_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((parsed, 64), strict=False))
    return address if parsed is None else str(parsed)


def _strip_port(entry: str) -> str:
    """Returns the address of `10.0.0.7:4000` or `[::1]:4000`."""
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    host, colon, _port = entry.partition(":")
    return host if colon and ":" not in _port else entry
