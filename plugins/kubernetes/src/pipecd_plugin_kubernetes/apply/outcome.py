# SPDX-License-Identifier: Apache-2.0
"""What becomes of manifests that are applied, how long things may take, and how it goes wrong."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from pipecd_plugin_kubernetes.client import Object, ObjectRef
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey
from pipecd_sdk import StageFailedError


class ApplyError(StageFailedError):
    """Manifests could not be brought to the cluster; the message names the object and says why."""


class DeletionRefusedError(ApplyError):
    """What would be deleted is more than was permitted; nothing was deleted."""


class DeletionFailedError(ApplyError):
    """An object could not be deleted, or does not go away."""


class NotReadyError(ApplyError):
    """What was applied did not become ready; the message names the workloads and why."""


class ApplyEffect(Enum):
    """What applying a manifest did; the value is the word of the log."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedObject:
    """A manifest in the cluster."""

    manifest: Manifest
    ref: ObjectRef
    live: Object
    """As the server had it right after."""
    effect: ApplyEffect
    notes: tuple[str, ...] = ()
    """What people should know about it, a line each."""

    @property
    def uid(self) -> str:
        """Returns the uid, empty when the server gave none."""
        return read_uid(self.live)

    @property
    def key(self) -> ResourceKey:
        """Returns the key with the namespace that it really is in."""
        resource = self.ref.resource
        return ResourceKey(resource.group, resource.kind, self.ref.namespace, self.ref.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """All manifests of a stage in the cluster."""

    objects: tuple[AppliedObject, ...]

    def __iter__(self) -> Iterator[AppliedObject]:
        return iter(self.objects)

    def __len__(self) -> int:
        return len(self.objects)

    @property
    def uids(self) -> frozenset[str]:
        """Returns the uids of all objects."""
        return frozenset(each.uid for each in self.objects if each.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long things may take, in seconds, and how many happen at once."""

    definition_seconds: float = 60
    """Until a kind that was just defined can be used."""
    namespace_seconds: float = 120
    """Until a namespace, or an object, that is being deleted is gone, before it is made again."""
    deletion_seconds: float = 300
    """Until a group of deleted objects is gone."""
    most_at_once: int = 8
    """Calls of one stage at the same time."""


def read_uid(body: Mapping[str, object]) -> str:
    """Returns the uid of a live object; empty when it has none."""
    metadata = body.get("metadata")
    found = metadata.get("uid") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, str) else ""


def read_version(body: Mapping[str, object]) -> str:
    """Returns the resource version of a live object; empty when it has none."""
    metadata = body.get("metadata")
    found = metadata.get("resourceVersion") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, str) else ""


def is_being_deleted(body: Mapping[str, object]) -> bool:
    """Returns whether a live object has been deleted and is kept by finalizers or its pods."""
    metadata = body.get("metadata")
    return isinstance(metadata, Mapping) and metadata.get("deletionTimestamp") is not None
