# SPDX-License-Identifier: Apache-2.0
"""Addresses of control planes as people write them: `HOST:PORT`, `HOST`, or a URL."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pipecd_model.errors import ConfigError

PORTS: Final = {"https": 443, "http": 80}
EXAMPLE: Final = "such as pipecd.example.com:443 or https://pipecd.example.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a control plane, and whether it is without TLS."""

    host: str
    port: int
    insecure: bool

    @property
    def target(self) -> str:
        """`host:port`, as gRPC takes it."""
        return f"{self._quoted_host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL that a browser takes; the port of the scheme is left out."""
        scheme = "http" if self.insecure else "https"
        port = "" if self.port == PORTS[scheme] else f":{self.port}"
        return f"{scheme}://{self._quoted_host}{port}"

    @property
    def _quoted_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_address(text: str, *, insecure: bool = False) -> Address:
    """Returns the address in a text; `insecure` counts for one that is no URL.

    Raises ConfigError with a sentence for what is none.
    """
    scheme, separator, _rest = text.partition("://")
    if separator and scheme.lower() not in PORTS:
        raise _refuse(text, f"it begins with {scheme!r}")
    if separator and scheme.lower() == "https" and insecure:
        raise _refuse(text, "https and --insecure exclude each other")
    if not separator:
        scheme = "http" if insecure else "https"
    if not text.isprintable() or " " in text:
        raise _refuse(text, "it has blanks or control characters")
    try:
        parts = urlsplit(text if separator else f"{scheme}://{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _refuse(text, str(error)) from None
    if not host or port == 0:
        raise _refuse(text, "it has no host" if not host else "it has no port")
    if parts.username is not None or parts.query or parts.fragment or parts.path not in {"", "/"}:
        raise _refuse(text, "it has more than a host and a port")
    return Address(
        host=host,
        port=port or PORTS[parts.scheme],
        insecure=parts.scheme == "http",
    )


def _refuse(text: str, why: str) -> ConfigError:
    return ConfigError(f"{text[:200]!r} is no address of a control plane: {why}", hint=EXAMPLE)
