# SPDX-License-Identifier: Apache-2.0
"""Kubeconfig files: contexts, clusters and users, of one file or of several."""

import base64
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipecd_plugin_kubernetes.client.connection import Connection, read_server, split_address
from pipecd_plugin_kubernetes.client.credentials import (
    CertificateMaterials,
    ClusterCredentials,
    StoredCredentials,
)
from pipecd_plugin_kubernetes.client.errors import ConnectionConfigError
from pipecd_plugin_kubernetes.client.execplugin import VERSIONS, ExecCredentials, ExecSettings
from pipecd_plugin_kubernetes.client.materials import InlineMaterial
from pipecd_plugin_kubernetes.client.section import Section
from pipecd_plugin_kubernetes.client.tls import TlsSettings
from pipecd_sdk.kit.yaml import YamlError, load

LARGEST_KUBECONFIG: Final = 16 * 1024 * 1024
PROXIES: Final = frozenset({"http", "https", "socks5", "socks5h"})
EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kubeconfig:
    """What is valid of all files: of each name the first."""

    current: str
    contexts: dict[str, Section]
    clusters: dict[str, Section]
    users: dict[str, Section]
    files: tuple[Path, ...]


def read_kubeconfig(
    paths: Sequence[Path], *, context: str = "", master_url: str = "", may_miss: bool = False
) -> Connection:
    """Reads the files and returns the connection of a context, or of the current one.

    With `may_miss` files that are not there are skipped. Raises ConnectionConfigError.
    """
    merged = _merge([each for path in paths if (each := _read_file(path, may_miss=may_miss))])
    shown = ", ".join(repr(str(path)) for path in merged.files or paths)
    name = context or merged.current
    if not name:
        return _connect_without_context(merged, shown=shown, master_url=master_url)
    if name not in merged.contexts:
        known = ", ".join(sorted(merged.contexts)[:20])
        raise ConnectionConfigError(
            f"{shown}: there is no context {name!r}",
            hint=f"there are: {known}" if known else "",
        )
    chosen = merged.contexts[name]
    cluster = _look_up(merged.clusters, chosen, "cluster", must=not master_url)
    user = _look_up(merged.users, chosen, "user", must=False)
    return _make_connection(
        cluster,
        user,
        namespace=chosen.read_text("namespace") or "default",
        source=f"context {name!r} of {shown}",
        master_url=master_url,
    )


def _connect_without_context(merged: _Kubeconfig, *, shown: str, master_url: str) -> Connection:
    """Returns the connection when there can be only one, as where no context was chosen."""
    if not merged.contexts and len(merged.clusters) == 1 and len(merged.users) <= 1:
        return _make_connection(
            next(iter(merged.clusters.values())),
            next(iter(merged.users.values()), None),
            namespace="default",
            source=shown,
            master_url=master_url,
        )
    raise ConnectionConfigError(
        f"{shown}: current-context is not set",
        hint="kubectl config use-context NAME sets it",
    )


def _read_file(path: Path, *, may_miss: bool) -> Section | None:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_KUBECONFIG + 1)
    except FileNotFoundError:
        if may_miss:
            return None
        raise ConnectionConfigError(f"there is no kubeconfig {str(path)!r}") from None
    except OSError as error:
        raise ConnectionConfigError(
            f"the kubeconfig {str(path)!r} cannot be read: {error.strerror}"
        ) from None
    if len(text) > LARGEST_KUBECONFIG:
        raise ConnectionConfigError(f"{str(path)!r} is too large for a kubeconfig")
    try:
        values = load(text)
    except YamlError as error:
        line = str(error).partition(":")[0]  # not the rest: it may quote a secret
        raise ConnectionConfigError(f"{str(path)!r} is no YAML: {line}") from None
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ConnectionConfigError(f"{str(path)!r} is no kubeconfig: not a map")
    return Section(values, file=path.absolute(), place="")


def _merge(files: Sequence[Section]) -> _Kubeconfig:
    named: dict[str, dict[str, Section]] = {"contexts": {}, "clusters": {}, "users": {}}
    current = ""
    for file in files:
        current = current or file.read_text("current-context")
        for key, inner in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
            for each in file.iter_sections(key):
                named[key].setdefault(each.read_text("name"), each.read_section(inner))
    return _Kubeconfig(
        current=current,
        contexts=named["contexts"],
        clusters=named["clusters"],
        users=named["users"],
        files=tuple(file.file for file in files),
    )


def _look_up(
    among: dict[str, Section], context: Section, key: str, *, must: bool
) -> Section | None:
    name = context.read_text(key)
    found = among.get(name)
    if found is None and (name or must):
        raise ConnectionConfigError(
            f"{context.name_key(key)}: "
            + (f"there is no {key} {name!r}" if name else f"it names no {key}")
        )
    return found


def _make_connection(
    cluster: Section | None, user: Section | None, *, namespace: str, source: str, master_url: str
) -> Connection:
    if master_url:
        server = read_server(master_url, named_by="masterURL")
    elif cluster is not None and cluster.has("server"):
        server = read_server(cluster.read_text("server"), named_by=cluster.name_key("server"))
    else:
        where = cluster.name_key("server") if cluster is not None else source
        raise ConnectionConfigError(f"{where}: there is no address of a server")
    tls = _read_tls(cluster) if cluster is not None else TlsSettings()
    if tls.is_insecure:
        log.warning(
            "kubeconfig.insecure",
            extra={"fields": {"server": server, "source": source, "setting": "skip-tls-verify"}},
        )
    return Connection(
        server=server,
        namespace=namespace,
        tls=tls,
        credentials=_read_credentials(user, cluster, server, tls),
        proxy=_read_proxy(cluster) if cluster is not None else "",
        headers=_read_impersonation(user) if user is not None else {},
        source=source,
    )


def _read_tls(cluster: Section) -> TlsSettings:
    key, data_key = "certificate-authority", "certificate-authority-data"
    return TlsSettings(
        authority=cluster.read_material(key, data_key=data_key),
        authority_named_by=cluster.name_key(data_key if cluster.has(data_key) else key),
        is_insecure=cluster.read_flag("insecure-skip-tls-verify"),
        server_name=cluster.read_text("tls-server-name"),
    )


def _read_proxy(cluster: Section) -> str:
    address = cluster.read_text("proxy-url")
    if not address:
        return ""
    named_by = cluster.name_key("proxy-url")
    if split_address(address, named_by=named_by).scheme not in PROXIES:
        raise ConnectionConfigError(f"{named_by}: not a proxy: only {', '.join(sorted(PROXIES))}")
    return address


def _read_impersonation(user: Section) -> dict[str, str]:
    """Returns the headers by which we act as somebody else."""
    headers = {}
    for key, header in (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid")):
        if user.has(key):
            headers[header] = user.read_text(key)
    if groups := user.read_texts("as-groups"):
        # One header with commas would be one group: the transport sends it once for each line.
        headers["Impersonate-Group"] = "\n".join(groups)
    extra = user.read_section("as-user-extra")
    for name in extra.read_keys():
        headers[f"Impersonate-Extra-{name}"] = "\n".join(extra.read_texts(name))
    for header, value in headers.items():
        if not f"{header}{value}".replace("\n", "").isprintable():
            raise ConnectionConfigError(f"{user.name_key('as')}: not printable")
    return headers


def _read_credentials(
    user: Section | None, cluster: Section | None, server: str, tls: TlsSettings
) -> ClusterCredentials:
    if user is None:
        return StoredCredentials()
    certificate = _read_certificate(user)
    if user.has("exec"):
        settings = _read_exec(user.read_section("exec"), cluster, server, tls)
        return ExecCredentials(settings, certificate=certificate)
    if user.has("auth-provider"):
        raise ConnectionConfigError(
            f"{user.name_key('auth-provider')}: no longer a part of Kubernetes",
            hint="use a credential plugin (exec), a token or a certificate",
        )
    token = user.read_material("tokenFile")
    key = "tokenFile" if token else "token"
    if token is None and user.has("token"):
        token = InlineMaterial(user.read_text("token").encode())
    basic = None
    if user.has("username"):
        basic = (user.read_text("username"), user.read_text("password"))
    return StoredCredentials(
        token=token, basic=basic, certificate=certificate, named_by=user.name_key(key)
    )


def _read_certificate(user: Section) -> CertificateMaterials | None:
    certificate = user.read_material("client-certificate", data_key="client-certificate-data")
    key = user.read_material("client-key", data_key="client-key-data")
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        there, missing = (
            ("client-certificate", "client-key")
            if key is None
            else ("client-key", "client-certificate")
        )
        raise ConnectionConfigError(f"{user.name_key(there)}: there is no {missing} beside it")
    return CertificateMaterials(
        certificate=certificate, key=key, named_by=user.name_key("client-certificate")
    )


def _read_exec(
    section: Section, cluster: Section | None, server: str, tls: TlsSettings
) -> ExecSettings:
    command = section.read_text("command")
    if not command:
        raise ConnectionConfigError(f"{section.name_key('command')}: there is no command")
    api_version = section.read_text("apiVersion")
    if api_version not in VERSIONS:
        raise ConnectionConfigError(
            f"{section.name_key('apiVersion')}: not a known version: {api_version!r}",
            hint=" or ".join(VERSIONS),
        )
    if section.read_text("interactiveMode") == "Always":
        raise ConnectionConfigError(
            f"{section.name_key('interactiveMode')}: Always, but there is nobody to answer",
            hint="use credentials that need no terminal",
        )
    if os.sep in command:
        command = str(section.file.parent / command)
    variables = {}
    for each in section.iter_sections("env"):
        variables[each.read_text("name")] = each.read_text("value")
    return ExecSettings(
        command=command,
        arguments=section.read_texts("args"),
        env=variables,
        api_version=api_version,
        cluster=(
            _describe_cluster(cluster, server, tls)
            if section.read_flag("provideClusterInfo")
            else None
        ),
        install_hint=section.read_text("installHint"),
        named_by=section.name_key("command"),
    )


def _describe_cluster(cluster: Section | None, server: str, tls: TlsSettings) -> dict[str, Any]:
    """Returns what a credential plugin is told about the cluster."""
    told: dict[str, Any] = {"server": server}
    if tls.server_name:
        told["tls-server-name"] = tls.server_name
    if tls.is_insecure:
        told["insecure-skip-tls-verify"] = True
    if tls.authority is not None:
        told["certificate-authority-data"] = base64.b64encode(tls.authority.read()).decode()
    told["config"] = None
    if cluster is not None:
        if cluster.has("proxy-url"):
            told["proxy-url"] = cluster.read_text("proxy-url")
        for each in cluster.iter_sections("extensions"):
            if each.read_text("name") == EXEC_EXTENSION:
                told["config"] = each.read_value("extension")
    return told
