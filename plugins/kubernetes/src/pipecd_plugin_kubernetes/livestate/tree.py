# SPDX-License-Identifier: Apache-2.0
"""The tree of an application as people see it: its objects and what they own. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from pipecd_plugin_kubernetes.client import ApiResource
from pipecd_plugin_kubernetes.livestate.records import LiveObject
from pipecd_sdk import Health, Resource

NAMESPACE_KEY = "Namespace"
API_VERSION_KEY = "API Version"
KIND_KEY = "Kind"


def build_tree(
    records: Iterable[LiveObject], problems: Mapping[ApiResource, str] | None = None
) -> list[Resource]:
    """Returns the resources, owners before what they own, each level by kind and name.

    A kind of `problems`, which cannot be read, is a resource of its own: its objects may be
    missing, and that must not look like health.
    """
    resources = [_make_problem(*each) for each in sorted((problems or {}).items(), key=_sort_key)]
    known = list(records)
    depth = _find_depths(known)
    known.sort(key=lambda each: (depth[each.uid], each.resource.kind, each.namespace, each.name))
    return [*resources, *map(_make_resource, known)]


def make_cluster_problem(name: str, reason: str) -> Resource:
    """Returns a resource that stands for a cluster which cannot be read."""
    return Resource(
        id=f"cluster/{name}",
        name=name,
        kind="Cluster",
        health=Health.UNKNOWN,
        description=reason,
    )


def _make_resource(record: LiveObject) -> Resource:
    created = record.created_seconds
    return Resource(
        id=record.uid,
        name=record.name,
        kind=record.resource.kind,
        parents=record.owners,
        health=record.health,
        description=record.reason,
        metadata={
            NAMESPACE_KEY: record.namespace,
            API_VERSION_KEY: record.resource.api_version,
            KIND_KEY: record.resource.kind,
        },
        created_at=datetime.fromtimestamp(created, tz=UTC) if created > 0 else None,
    )


def _make_problem(resource: ApiResource, reason: str) -> Resource:
    return Resource(
        id=f"kind/{resource.api_version}/{resource.kind}",
        name=f"{resource.plural} cannot be read",
        kind=resource.kind,
        health=Health.UNKNOWN,
        description=reason,
        metadata={API_VERSION_KEY: resource.api_version, KIND_KEY: resource.kind},
    )


def _sort_key(item: tuple[ApiResource, str]) -> tuple[str, str]:
    return item[0].group, item[0].kind


def _find_depths(records: Sequence[LiveObject]) -> dict[str, int]:
    """Returns how many owners of owners each has; they come before what they own."""
    depths: dict[str, int] = {}
    for record in records:
        depths[record.uid] = 1 + max((depths.get(uid, -1) for uid in record.owners), default=-1)
    return depths
