# SPDX-License-Identifier: Apache-2.0
"""What is kept of an object of a cluster: little, because there are many. Pure.

An object that belongs to nobody, that is without a mark of an application and without an owner, is
not kept at all. Of one that an application manages there is a digest of all that people can write,
by which a change is noticed; its body is fetched when it is compared.
"""

import hashlib
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from pipecd_plugin_kubernetes.client import ApiResource, Object
from pipecd_plugin_kubernetes.fields import ShapeError, read_map, read_maps, read_text
from pipecd_plugin_kubernetes.health import assess
from pipecd_plugin_kubernetes.manifest import ResourceKey
from pipecd_plugin_kubernetes.metadata import APPLICATION, MANAGED_BY, MANAGER
from pipecd_sdk import Health

IGNORE_DRIFT: Final = "pipecd.dev/ignore-drift-detection"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_UNWRITTEN_METADATA: Final = frozenset(
    {"managedFields", "resourceVersion", "generation", "selfLink", "creationTimestamp", "uid"}
)
_NO_LABELS: Final[Mapping[str, str]] = {}


class LiveObject(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One object of a cluster, without its body."""

    uid: str
    resource: ApiResource
    namespace: str
    name: str
    owners: tuple[str, ...] = ()
    """The uids of its owners."""
    application: str = ""
    """The application that its own annotation names; dependents have none."""
    created_seconds: int = 0
    """Since 1970; 0 when it is not known."""
    health: Health
    reason: str = ""
    digest: bytes = b""
    """Of everything but its status; empty when no application manages it."""
    labels: Mapping[str, str] = _NO_LABELS
    """Only of one that an application manages."""
    is_ignored: bool = False
    """People said that differences from git do not matter."""

    @property
    def is_managed(self) -> bool:
        """Whether an application applied it: it is marked so, and nobody else owns it."""
        return bool(self.digest)

    @property
    def key(self) -> ResourceKey:
        return ResourceKey(self.resource.group, self.resource.kind, self.namespace, self.name)


def make_record(body: Mapping[str, Any], resource: ApiResource) -> LiveObject | None:
    """Returns what is kept of an object; None when it belongs to nobody, or has no known shape."""
    try:
        metadata = read_map(body, "metadata")
        owners = tuple(
            sys.intern(uid)
            for owner in read_maps(metadata, "ownerReferences")
            if (uid := read_text(owner, "uid"))
        )
        annotations = read_map(metadata, "annotations")
        application = read_text(annotations, APPLICATION)
        if not owners and not application:
            return None
        uid, name = read_text(metadata, "uid"), read_text(metadata, "name")
        if not uid or not name:
            return None
        is_managed = not owners and read_text(annotations, MANAGED_BY) == MANAGER
        # A list leaves out the kind of its items.
        health, reason = assess({**body, **_kind_of(resource)})
        return LiveObject(
            uid=sys.intern(uid),
            resource=resource,
            namespace=sys.intern(read_text(metadata, "namespace")),
            name=name,
            owners=owners,
            application=sys.intern(application),
            created_seconds=_read_time(read_text(metadata, "creationTimestamp")),
            health=health,
            reason=reason,
            digest=compute_digest(body) if is_managed else b"",
            labels=_read_labels(metadata) if is_managed else _NO_LABELS,
            is_ignored=annotations.get(IGNORE_DRIFT) == "true",
        )
    except ShapeError:
        return None


def read_uid(body: Mapping[str, Any]) -> str:
    """Returns the uid of an object; an empty text when it has none."""
    try:
        return read_text(body, "metadata", "uid")
    except ShapeError:
        return ""


def compute_digest(body: Mapping[str, Any]) -> bytes:
    """Returns the digest of what can be written of an object: not its status, not its versions.

    A status changes all the time, and never makes a difference from git.
    """
    metadata = body.get("metadata")
    kept = {
        key: value
        for key, value in body.items()
        if key not in {"status", "metadata", "apiVersion", "kind"}
    }
    if isinstance(metadata, Mapping):
        kept["metadata"] = {
            key: value for key, value in metadata.items() if key not in _UNWRITTEN_METADATA
        }
    encoded = msgspec.json.encode(kept, order="deterministic")
    return hashlib.blake2b(encoded, digest_size=16).digest()


def strip_unwritten(body: Mapping[str, Any]) -> Object:
    """Returns an object as it is compared: without status, versions and bookkeeping of tools."""
    stripped = {key: value for key, value in body.items() if key != "status"}
    metadata = stripped.get("metadata")
    if isinstance(metadata, Mapping):
        kept = {key: value for key, value in metadata.items() if key not in _UNWRITTEN_METADATA}
        annotations = kept.get("annotations")
        if isinstance(annotations, Mapping):
            kept["annotations"] = {k: v for k, v in annotations.items() if k != LAST_APPLIED}
        stripped["metadata"] = kept
    return stripped


def _kind_of(resource: ApiResource) -> dict[str, str]:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def _read_labels(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    labels = read_map(metadata, "labels")
    return {str(key): value for key, value in labels.items() if isinstance(value, str)}


def _read_time(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        return 0
