# SPDX-License-Identifier: Apache-2.0
"""Which addresses count as one for rate limits: all that one client can choose from."""

import ipaddress
from typing import Final

IPV6_PREFIX: Final = 64
"""Bits: a site has at least this network, and can use every address in it."""


def network(address: str) -> str:
    """Returns the network that stands for an address: the address itself for IPv4, the /64 of IPv6.

    What is no IP address (a socket of this machine has none) stands for itself.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, IPV6_PREFIX), strict=False))
    return str(parsed)
