# SPDX-License-Identifier: Apache-2.0
"""Where an API server is, and how to prove who we are: what a `Cluster` is made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from pipecd_plugin_kubernetes.client.credentials import ClusterCredentials, StoredCredentials
from pipecd_plugin_kubernetes.client.errors import ConnectionConfigError
from pipecd_plugin_kubernetes.client.tls import TlsSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One server and the credentials for it. Shows no secret when it is printed."""

    server: str
    """`https://host:port`, maybe with a path, without a slash at its end."""
    namespace: str = "default"
    """Where an object goes whose manifest names no namespace."""
    tls: TlsSettings = field(default_factory=TlsSettings)
    credentials: ClusterCredentials = field(default_factory=StoredCredentials, repr=False)
    proxy: str = field(default="", repr=False)
    """Its address, which may hold a password; empty: what the environment says."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request: impersonation."""
    source: str = ""
    """Where all this comes from, for people: `context 'dev' of '/etc/kube/dev'`."""


def read_server(text: str, *, named_by: str) -> str:
    """Returns the address of a server in its one form. Raises ConnectionConfigError."""
    parts = split_address(text if "://" in text else f"https://{text}", named_by=named_by)
    if parts.scheme not in {"http", "https"}:
        raise ConnectionConfigError(
            f"{named_by}: not the address of a server: {text!r}",
            hint="e.g. https://10.0.0.1:6443",
        )
    if parts.username or parts.password:
        raise ConnectionConfigError(
            f"{named_by}: an address has no user and password",
            hint="they belong to the user of the kubeconfig",
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def split_address(text: str, *, named_by: str) -> SplitResult:
    """Returns the parts of an address that has a host and a port that can be one."""
    try:
        parts = urlsplit(text)
        known = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known or not text.isprintable() or " " in text:
        # Not quoted: the address of a proxy may hold a password.
        raise ConnectionConfigError(f"{named_by}: not an address")
    return parts
