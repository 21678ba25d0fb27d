# SPDX-License-Identifier: Apache-2.0
"""The hash of what pods are configured with; a change of it replaces them.

It is the hash that existing deployments have, byte for byte: otherwise the first deployment by this
program would restart every pod. The `stringData` of Secrets has never been part of it. A second
one, the digest, counts it too: it is written beside the workload's own metadata, where it restarts
nothing, and tells `apply.pod_marks` whether pods have to be replaced.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pipecd_plugin_kubernetes.manifest import Manifest, ManifestError, name_type, open_map
from pipecd_plugin_kubernetes.metadata import CONFIG_DIGEST, CONFIG_HASH, add_annotations
from pipecd_plugin_kubernetes.references import CONFIG_MAP, SECRET, find_references
from pipecd_sdk.kit import gojson

_HASHED_KINDS: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet"})
_LENGTH: Final = 10
_LETTERS: Final = str.maketrans("013ae", "ghkmt")
"""Hex digits that would make words, or look like letters, are others."""


def add_config_hashes(manifests: Sequence[Manifest]) -> None:
    """Writes the hash into the template of pods of each workload, in place. Raises ManifestError.

    The digest goes into the workload's own annotations. A workload that names none of the
    ConfigMaps and Secrets among the manifests gets neither.
    """
    given = [each for each in manifests if each.is_config_map() or each.is_secret()]
    for manifest in manifests:
        if used := find_configuration(manifest, given):
            annotations = open_map(manifest.body, "spec", "template", "metadata", "annotations")
            annotations[CONFIG_HASH] = compute_hash(used)
            add_annotations(manifest, {CONFIG_DIGEST: compute_digest(used)})


def find_configuration(workload: Manifest, manifests: Sequence[Manifest]) -> list[Manifest]:
    """Returns the ConfigMaps among manifests that a workload names, by name, then the Secrets.

    Returns none for what is not a workload whose pods are replaced when these change.
    """
    if workload.kind not in _HASHED_KINDS or workload.group not in {"apps", "extensions"}:
        return []
    named: dict[str, set[str]] = {CONFIG_MAP: set(), SECRET: set()}
    for reference in find_references(workload):
        if reference.is_hashed:
            named[reference.kind].add(reference.name)
    found = {
        CONFIG_MAP: [each for each in manifests if each.is_config_map()],
        SECRET: [each for each in manifests if each.is_secret()],
    }
    used = []
    for kind, names in named.items():
        for name in sorted(names):
            same = [each for each in found[kind] if each.name == name]
            here = workload.key.normalize().namespace
            near = [each for each in same if each.key.normalize().namespace == here]
            used += (near or same)[-1:]
    return used


def compute_hash(manifests: Iterable[Manifest]) -> str:
    """Returns the hash of ConfigMaps and Secrets in this order. Raises ManifestError.

    Example:
        >>> map_ = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        >>> compute_hash([Manifest(map_)])
        '52gkcgmmch'
    """
    hasher = hashlib.sha256()
    for manifest in manifests:
        content = _read_secret(manifest) if manifest.is_secret() else _read_config_map(manifest)
        hasher.update(gojson.dumps({key: content[key] for key in sorted(content)}).encode())
    return encode_digest(hasher.hexdigest())


def compute_digest(manifests: Sequence[Manifest]) -> str:
    """Returns the hash, and another one where Secrets have `stringData`. Raises ManifestError."""
    plain = compute_hash(manifests)
    texts = [
        {"name": each.name, "stringData": found}
        for each in manifests
        if each.is_secret() and (found := _read_texts(each, "stringData"))
    ]
    if not texts:
        return plain
    hasher = hashlib.sha256(plain.encode())
    hasher.update(gojson.dumps(texts).encode())
    return encode_digest(hasher.hexdigest())


def encode_digest(digest: str) -> str:
    """Returns the first digits of a hex digest, without those that make words.

    Example:
        >>> encode_digest("0123456789abcdef")
        'gh2k456789'
    """
    return digest[:_LENGTH].translate(_LETTERS)


def _read_config_map(manifest: Manifest) -> dict[str, Any]:
    content: dict[str, Any] = {
        "kind": CONFIG_MAP,
        "name": manifest.name,
        "data": _read_texts(manifest, "data"),
    }
    _add_immutable(content, manifest)
    if binary := _read_bytes(manifest, "binaryData"):
        content["binaryData"] = binary
    return content


def _read_secret(manifest: Manifest) -> dict[str, Any]:
    content: dict[str, Any] = {
        "kind": SECRET,
        "type": manifest.body.get("type") or "",
        "name": manifest.name,
        "data": _read_bytes(manifest, "data"),
    }
    _add_immutable(content, manifest)
    return content


def _add_immutable(content: dict[str, Any], manifest: Manifest) -> None:
    immutable = manifest.body.get("immutable")
    if isinstance(immutable, bool):
        content["immutable"] = immutable


def _read_map(manifest: Manifest, key: str) -> dict[str, Any] | None:
    found = manifest.body.get(key)
    if found is None or isinstance(found, dict):
        return found
    raise ManifestError(f"{manifest.describe()}: {key} must be a map, it is {name_type(found)}")


def _read_texts(manifest: Manifest, key: str) -> dict[str, str] | None:
    found = _read_map(manifest, key)
    if found is None:
        return None
    for name, value in found.items():
        if value is not None and not isinstance(value, str):
            raise ManifestError(
                f"{manifest.describe()}: {key} {name!r} must be a text, it is {name_type(value)}",
                hint="put the value in quotes",
            )
    return {name: found[name] or "" for name in sorted(found)}


def _read_bytes(manifest: Manifest, key: str) -> dict[str, str | None] | None:
    """Returns base64 texts as an encoder writes them, whatever line breaks they had."""
    found = _read_map(manifest, key)
    if found is None:
        return None
    read: dict[str, str | None] = {}
    for name in sorted(found):
        value = found[name]
        if value is None:
            read[name] = None
            continue
        try:
            plain = "".join(value.split("\n")).replace("\r", "").encode("ascii")
            read[name] = base64.b64encode(base64.b64decode(plain, validate=True)).decode()
        except (AttributeError, UnicodeEncodeError, binascii.Error):
            # The value is not shown: it may be a secret that somebody forgot to encode.
            raise ManifestError(
                f"{manifest.describe()}: {key} {name!r} is not base64",
                hint="write plain texts under stringData" if manifest.is_secret() else "",
            ) from None
    return read
