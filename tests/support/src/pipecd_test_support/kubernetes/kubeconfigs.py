# SPDX-License-Identifier: Apache-2.0
"""Writes files that tell a client how to reach a cluster."""

import base64
import json
from pathlib import Path
from typing import Any


def write_kubeconfig(
    path: Path,
    *,
    server: str,
    authority: Path,
    certificate: tuple[Path, Path] | None = None,
    token: str = "",
    user: dict[str, Any] | None = None,
    namespace: str = "default",
) -> Path:
    """Write a kubeconfig for a certificate and its key, a token, or any user entry; its path."""
    known = dict(user or {})
    if certificate is not None:
        known["client-certificate-data"] = _encode(certificate[0])
        known["client-key-data"] = _encode(certificate[1])
    if token:
        known["token"] = token
    cluster = {"server": server, "certificate-authority-data": _encode(authority)}
    context = {"cluster": "test", "user": "test", "namespace": namespace}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": known}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }
    path.write_text(json.dumps(content, indent=1))  # which is YAML as well
    path.chmod(0o600)
    return path


def _encode(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
