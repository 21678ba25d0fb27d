# SPDX-License-Identifier: Apache-2.0
"""Which hosts rendering may fetch from: those that the piped file names, and no others.

A host that is named as it is may be anywhere. One that only `*.example.com` stands for must have
public addresses, unless the piped file names their network too (`10.0.0.0/8`).
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from pipecd_plugin_kubernetes.config import KubernetesPluginConfig
from pipecd_sdk import StageFailedError

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9_.]*[a-z0-9])?")
_SCP: Final = re.compile(r"(?:[^@/:]+@)?([^@/:]+):(?!//).*")
"""`git@host:path`, as git and ssh write it."""
_HINT: Final = "add it to allowedHosts of the plugin in the piped file"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAddress:
    """Where something is to be fetched from."""

    scheme: str
    """`https`, `http`, `oci`, `ssh`, …"""
    host: str
    """In lower case, without a port."""


class HostNotAllowedError(StageFailedError):
    """Something is to be fetched from a host that the piped file does not name."""


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


class Hosts:
    """The hosts that are allowed."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._exact: set[str] = set()
        self._under: set[str] = set()
        self._networks: list[_Network] = []
        for entry in allowed:
            self._add(entry.strip().lower())

    @classmethod
    def from_config(cls, config: KubernetesPluginConfig) -> "Hosts":
        """Returns what the piped file allows: the hosts it lists, and those of its charts."""
        listed = list(config.allowed_hosts)
        for address in (
            *(each.address for each in config.chart_repositories),
            *(each.address for each in config.chart_registries),
        ):
            full = address if "://" in address else f"oci://{address}"
            if (found := parse_address(full)) and found.host:
                listed.append(found.host)
        return cls(listed)

    def _add(self, entry: str) -> None:
        if entry.startswith("*."):
            self._under.add(entry[1:].rstrip("."))
            return
        try:
            self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
        except ValueError:
            self._exact.add(entry.rstrip("."))

    def may_fetch(self) -> bool:
        """Returns whether anything may be fetched at all."""
        return bool(self._exact or self._under or self._networks)

    async def check(
        self, text: str, what: str, *, schemes: tuple[str, ...] = ("https", "http")
    ) -> None:
        """Raises StageFailedError when an address may not be fetched from."""
        address = parse_address(text)
        shown = _hide_password(text)
        if address is None or address.scheme not in schemes or not address.host:
            raise HostNotAllowedError(
                f"{what} {shown!r} cannot be fetched",
                hint=f"an address begins with {' or '.join(f'{each}://' for each in schemes)}",
            )
        await self.check_host(address.host, f"{what} {shown!r}")

    async def check_host(self, host: str, what: str) -> list[IpAddress]:
        """Returns the addresses that this host may have; none means any.

        Raises StageFailedError unless it is allowed, and is where it may be.
        """
        if literal := _read_literal(host):
            if not self._is_in_network(literal):
                raise HostNotAllowedError(f"{what}: {host} is not an allowed host", hint=_HINT)
            return [literal]
        if host in self._exact:
            return []
        is_under = any(host.endswith(end) for end in self._under)
        if not (_NAME.fullmatch(host) and is_under):
            raise HostNotAllowedError(f"{what}: {host!r} is not an allowed host", hint=_HINT)
        addresses = await _look_up(host, what)
        for each in addresses:
            if not (each.is_global or self._is_in_network(each)):
                raise HostNotAllowedError(
                    f"{what}: {host} is at the private address {each}",
                    hint="add the host itself, or its network, to allowedHosts in the piped file",
                )
        return addresses

    def _is_in_network(self, address: IpAddress) -> bool:
        return any(address in network for network in self._networks)


def _read_literal(host: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


async def _look_up(host: str, what: str) -> list[IpAddress]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise HostNotAllowedError(f"{what}: {host} has no address: {error.strerror}") from None
    return [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]


def _hide_password(text: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", text[:200])
