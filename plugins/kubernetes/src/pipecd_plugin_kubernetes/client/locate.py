# SPDX-License-Identifier: Apache-2.0
"""Finds out how to reach a cluster: a kubeconfig, the cluster around us, or an address."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pipecd_plugin_kubernetes.client.connection import Connection, read_server
from pipecd_plugin_kubernetes.client.credentials import StoredCredentials
from pipecd_plugin_kubernetes.client.errors import ConnectionConfigError
from pipecd_plugin_kubernetes.client.kubeconfig import read_kubeconfig
from pipecd_plugin_kubernetes.client.materials import FileMaterial
from pipecd_plugin_kubernetes.client.renewal import RenewedCredentials
from pipecd_plugin_kubernetes.client.tls import TlsSettings

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SOURCE: Final = "the service account of this pod"


async def load_connection(
    *,
    kubeconfig: str = "",
    master_url: str = "",
    context: str = "",
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Finds out how to reach a cluster.

    `kubeconfig` is a path, or several joined by `:`. Without one it is what KUBECONFIG names, else
    the cluster in which this process runs, else `~/.kube/config`. `master_url` is used instead of
    the server that stands there. Raises ConnectionConfigError, which names the file and the key.
    """
    return await asyncio.to_thread(
        find_connection, kubeconfig, master_url, context, service_account
    )


def find_connection(
    kubeconfig: str, master_url: str, context: str, service_account: Path
) -> Connection:
    """Does the same without a loop: reads files."""
    listed = [Path(each).expanduser() for each in kubeconfig.split(os.pathsep) if each]
    if listed:
        return _read_files(listed, context, master_url, may_miss=len(listed) > 1)
    named = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    if named:
        return _read_files(named, context, master_url, may_miss=True)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _read_service_account(service_account, master_url)
    usual = Path("~/.kube/config").expanduser()
    if usual.exists():
        return _read_files([usual], context, master_url, may_miss=False)
    if master_url:
        return Connection(
            server=read_server(master_url, named_by="masterURL"),
            source="masterURL, without credentials",
        )
    raise ConnectionConfigError(
        "there is no kubeconfig, and this process does not run in a cluster",
        hint="set kubeConfigPath of the deploy target",
    )


def _read_files(
    paths: Sequence[Path], context: str, master_url: str, *, may_miss: bool
) -> Connection:
    """Returns the connection of kubeconfig files, whose credentials follow the files."""

    def read() -> Connection:
        return read_kubeconfig(paths, context=context, master_url=master_url, may_miss=may_miss)

    found = read()
    credentials = RenewedCredentials(
        found.credentials, files=paths, load=lambda: read().credentials
    )
    return replace(found, credentials=credentials)


def _read_service_account(folder: Path, master_url: str) -> Connection:
    """Returns the connection to the cluster that runs this process."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if ":" in host:
        host = f"[{host}]"
    server = read_server(
        master_url or f"https://{host}:{port}",
        named_by="masterURL" if master_url else "KUBERNETES_SERVICE_HOST",
    )
    token = FileMaterial(folder / "token", named_by=SOURCE)
    token.read()  # now, so that what is missing is said once, and early
    authority = FileMaterial(folder / "ca.crt", named_by=SOURCE)
    authority.read()
    return Connection(
        server=server,
        namespace=_read_namespace(folder / "namespace"),
        tls=TlsSettings(authority=authority, authority_named_by=str(authority.path)),
        credentials=StoredCredentials(token=token, named_by=str(token.path)),
        source=SOURCE,
    )


def _read_namespace(file: Path) -> str:
    if given := os.environ.get("POD_NAMESPACE"):
        return given
    try:
        return file.read_text(encoding="utf-8").strip() or "default"
    except (OSError, ValueError):
        return "default"
