# SPDX-License-Identifier: Apache-2.0
"""Which hosts an address may lead to that somebody else than the operator has written.

A host that is named as it is may be anywhere. One that only `*.example.com` stands for must have
public addresses, unless its network is named too (`10.0.0.0/8`). Whoever connects does so to the
addresses that were looked up here: another answer to the same question must not lead elsewhere.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import urlsplit

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9_.]*[a-z0-9])?")
_SCP: Final = re.compile(r"(?:[^@/:]+@)?([^@/:]+):(?!//).*")
"""`git@host:path`, as git and ssh write it."""
_HINT: Final = "add it to allowedHosts of the plugin in the piped file"
_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")
"""Addresses of IPv4 as a translator (NAT64) writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAddress:
    """Where something is to be fetched from."""

    scheme: str
    """`https`, `http`, `oci`, `ssh`, …"""
    host: str
    """In lower case, without a port."""


class AddressRefusedError(Exception):
    """An address leads to a host that it may not lead to."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def parse_address(text: str) -> FetchAddress | None:
    """Returns where an address leads to; None for what is no address.

    Example:
        >>> parse_address("git@github.com:org/repo")
        FetchAddress(scheme='ssh', host='github.com')
        >>> parse_address("../base") is None
        True
    """
    plain = text.removeprefix("git::")
    if "://" in plain:
        try:
            parts = urlsplit(plain)
            host = (parts.hostname or "").rstrip(".").lower()
        except ValueError:
            return FetchAddress(scheme="", host="")
        return FetchAddress(scheme=parts.scheme.lower(), host=host)
    if found := _SCP.fullmatch(plain):
        return FetchAddress(scheme="ssh", host=found[1].rstrip(".").lower())
    return None


def is_public(address: IpAddress) -> bool:
    """Returns whether an address belongs to the internet: not private, local or of a group.

    One that carries an address of IPv4 in it is as public as that one.
    """
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _TRANSLATED:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        # Nothing on the internet is there, but a host or router may take it for something else:
        # addresses of IPv4 in other disguises (`::127.0.0.1`, `64:ff9b:1::`), old local ones.
        if address.is_reserved or address.is_site_local:
            return False
    return address.is_global and not address.is_multicast


class AllowedHosts:
    """The hosts that are allowed.

    With `public=True` every host with public addresses is, and only the others must be named.
    """

    def __init__(self, allowed: Iterable[str], *, public: bool = False) -> None:
        self._public = public
        self._exact: set[str] = set()
        self._under: set[str] = set()
        self._networks: list[_Network] = []
        for entry in allowed:
            self._add(entry.strip().lower())

    def _add(self, entry: str) -> None:
        if entry.startswith("*."):
            self._under.add(entry[1:].rstrip("."))
            return
        try:
            self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
        except ValueError:
            self._exact.add(entry.rstrip("."))

    async def check(
        self, text: str, what: str, *, schemes: tuple[str, ...] = ("https", "http")
    ) -> list[IpAddress]:
        """Returns the addresses that the host of an address may have; none means any.

        Raises AddressRefusedError when it may not be fetched from.
        """
        address = parse_address(text)
        shown = hide_password(text.partition("?")[0])
        if address is None or address.scheme not in schemes or not address.host:
            raise self._refuse(
                f"{what} {shown!r} cannot be fetched",
                hint=f"an address begins with {' or '.join(f'{each}://' for each in schemes)}",
            )
        return await self.check_host(address.host, f"{what} {shown!r}")

    async def check_host(self, host: str, what: str) -> list[IpAddress]:
        """Returns the addresses that this host may have; none means any.

        Raises AddressRefusedError unless it is allowed, and is where it may be.
        """
        if literal := _read_literal(host):
            if not (self._is_in_network(literal) or (self._public and is_public(literal))):
                raise self._refuse(f"{what}: {host} is not an allowed host", hint=_HINT)
            return [literal]
        if host in self._exact:
            return []
        is_under = self._public or any(host.endswith(end) for end in self._under)
        if not (_NAME.fullmatch(host) and is_under):
            raise self._refuse(f"{what}: {host!r} is not an allowed host", hint=_HINT)
        addresses = await self._look_up(host, what)
        for each in addresses:
            if not (is_public(each) or self._is_in_network(each)):
                raise self._refuse(
                    f"{what}: {host} is at the private address {each}",
                    hint="add the host itself, or its network, to allowedHosts in the piped file",
                )
        return addresses

    async def _look_up(self, host: str, what: str) -> list[IpAddress]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "not a name"
            raise self._refuse(f"{what}: {host} has no address: {reason}", hint="") from None
        return [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]

    def _is_in_network(self, address: IpAddress) -> bool:
        return any(address in network for network in self._networks)

    def _refuse(self, message: str, *, hint: str) -> Exception:
        """Returns the error for a refused host; a subclass may have one of its own."""
        return AddressRefusedError(message, hint=hint)


def _read_literal(host: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def hide_password(text: str) -> str:
    """Returns an address as it may be shown: without who asks and their password, and not long."""
    return re.sub(r"//[^/?#]*@", "//…@", text)[:200]
