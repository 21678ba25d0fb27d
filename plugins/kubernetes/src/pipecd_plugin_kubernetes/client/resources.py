# SPDX-License-Identifier: Apache-2.0
"""The nouns of the API: kinds, references to objects, lists, changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
U = TypeVar("U")

Object: TypeAlias = dict[str, Any]
"""A plain JSON object of the API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """A kind in one version, and where it is served."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    """Its name in paths: `deployments`."""
    namespaced: bool
    verbs: frozenset[str] = frozenset()
    subresources: frozenset[str] = frozenset()
    """Such as `status` and `scale`."""

    @property
    def api_version(self) -> str:
        """As manifests write it: `apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.kind} ({self.api_version})"


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """One object by its name; the namespace is empty when the kind has none."""

    resource: ApiResource
    namespace: str
    name: str

    def __str__(self) -> str:
        """For people: `Deployment 'web' in namespace 'shop'`."""
        return describe_object(self.resource.kind, self.name, self.namespace)


def describe_object(kind: str, name: str, namespace: str) -> str:
    """Returns an object's name in a sentence."""
    where = f" in namespace {namespace!r}" if namespace else ""
    return f"{kind} {name!r}{where}" if name else f"{kind}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """All objects of a list, as they were at one version of the cluster's state."""

    items: Sequence[T]
    resource_version: str
    """Where a watch that misses nothing begins."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class ChangeType(Enum):
    """What happened to a watched object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """Nothing: the watch can be resumed from this version."""


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One change. `body` is None for a bookmark."""

    type: ChangeType
    body: T | None
    resource_version: str
    """Where a watch can be resumed after this change."""


class PatchType(Enum):
    """How a patch is written; the value is its media type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    """Only for kinds that are built into the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What the server serves."""

    resources: Sequence[ApiResource]
    """In the order of the server: of each group its preferred version first."""
    failed_groups: Mapping[str, str] = field(default_factory=dict)
    """Groups (`metrics.k8s.io`) of which nothing or not everything is known, and why."""

    def find(self, api_version: str, kind: str) -> ApiResource | None:
        """Returns the kind of a manifest; None when it is not known."""
        for each in self.resources:
            if each.kind == kind and each.api_version == api_version:
                return each
        return None

    def select_preferred(self) -> Sequence[ApiResource]:
        """Returns each kind once, in the version that the server prefers."""
        chosen: dict[tuple[str, str], ApiResource] = {}
        for each in self.resources:
            chosen.setdefault((each.group, each.kind), each)
        return tuple(chosen.values())
