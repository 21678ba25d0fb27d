# SPDX-License-Identifier: Apache-2.0
"""The proxy that the environment names for a server, by the rules of Go's programs."""

import ipaddress
import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

_VARIABLES: Final = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")


def read_proxy_variables() -> dict[str, str]:
    """Returns what the environment says about proxies, in both spellings."""
    names = (*_VARIABLES, *(name.lower() for name in _VARIABLES))
    return {name: os.environ.get(name, "") for name in names}


def find_proxy(server: str, environment: Mapping[str, str]) -> str:
    """Returns the address of the proxy for a server; empty when it is reached directly.

    `HTTPS_PROXY` or `HTTP_PROXY` by the server's scheme, except what `NO_PROXY` lists: names with
    all below them, addresses, networks. A server on this machine never has a proxy.
    """
    parts = urlsplit(server)
    host = (parts.hostname or "").rstrip(".")
    variable = f"{parts.scheme}_proxy"
    proxy = environment.get(variable.upper()) or environment.get(variable) or ""
    if not proxy or _is_local(host):
        return ""
    listed = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    port = str(parts.port or (443 if parts.scheme == "https" else 80))
    if any(_matches(each.strip().lower(), host, port) for each in listed.split(",")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    address = _read_address(host)
    return address is not None and address.is_loopback


def _matches(rule: str, host: str, port: str) -> bool:
    if not rule:
        return False
    if rule == "*":
        return True
    address = _read_address(host)
    try:
        network = ipaddress.ip_network(rule, strict=False)
    except ValueError:
        pass
    else:
        return address is not None and address.version == network.version and address in network
    name, _, rule_port = rule.rpartition(":")
    if name and rule_port.isdigit():
        if rule_port != port:
            return False
        rule = name.strip("[]")
    if address is not None:
        return _read_address(rule) == address
    rule = rule.removeprefix("*")
    if rule.startswith("."):
        return host.endswith(rule)
    return host == rule or host.endswith(f".{rule}")


def _read_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
