# SPDX-License-Identifier: Apache-2.0
"""In which order objects are applied and deleted. Pure.

The annotation `pipecd.dev/order` comes first: what it asks for is kept whatever the kinds are.
Among objects of one order, kinds that others need come before those that need them. What has no
order against each other is applied, or deleted, at the same time.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey
from pipecd_plugin_kubernetes.metadata import read_order

T = TypeVar("T")


FOUNDATION: Final = 0
"""Namespaces and definitions of kinds: waited for before anything else is applied."""
_PARTS: Final = 1
_WORKLOADS: Final = 2
_USERS: Final = 3
"""What acts upon workloads, and custom resources: deleted while their controllers still run."""
_HOOKS: Final = 4
"""What the server calls for every request: last, when that which it calls has been applied."""

_FOUNDATIONS: Final = {("", "Namespace"), ("apiextensions.k8s.io", "CustomResourceDefinition")}
_WORKLOAD_KINDS: Final = {
    ("", "Pod"),
    ("", "ReplicationController"),
    *(("apps", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
    *(("extensions", kind) for kind in ("Deployment", "DaemonSet", "ReplicaSet")),
    ("batch", "Job"),
    ("batch", "CronJob"),
}
_HOOK_KINDS: Final = {
    ("apiregistration.k8s.io", "APIService"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
}
_PART_GROUPS: Final = {
    "",
    "admissionregistration.k8s.io",
    "apps",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
}
_PART_KINDS: Final = {
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
}


def find_rank(key: ResourceKey) -> int:
    """Returns the place of a kind among those of the same order, from 0 (`FOUNDATION`)."""
    kind = (key.group, key.kind)
    if kind in _FOUNDATIONS:
        return FOUNDATION
    if kind in _WORKLOAD_KINDS:
        return _WORKLOADS
    if kind in _HOOK_KINDS:
        return _HOOKS
    if key.group in _PART_GROUPS or kind in _PART_KINDS:
        return _PARTS
    return _USERS


def is_foundation(key: ResourceKey) -> bool:
    """Returns whether this is a Namespace or a CustomResourceDefinition."""
    return find_rank(key) == FOUNDATION


def group_for_apply(manifests: Iterable[Manifest]) -> list[list[list[Manifest]]]:
    """Returns manifests by order, and within each order by rank.

    Those of an inner list are applied at the same time, in the order of git as far as logs go.
    """
    return [
        _group(of_order, lambda each: (find_rank(each.key),))
        for of_order in _group(manifests, lambda each: (read_order(each),))
    ]


def group_for_deletion(objects: Iterable[T], as_manifest: Callable[[T], Manifest]) -> list[list[T]]:
    """Returns live objects in groups, the last to be applied first; the members by their keys."""
    groups = _group(
        sorted(objects, key=lambda each: str(as_manifest(each).key)),
        lambda each: (read_order(as_manifest(each)), find_rank(as_manifest(each).key)),
    )
    return groups[::-1]


def group_variant(objects: Iterable[T], as_manifest: Callable[[T], Manifest]) -> list[list[T]]:
    """Returns the objects of a variant in the groups in which it is taken away.

    Services first, so that no traffic goes there; then what runs; then what it used; what belongs
    to no namespace last.
    """

    def find_step(each: T) -> tuple[int]:
        manifest = as_manifest(each)
        if manifest.is_service():
            return (0,)
        if find_rank(manifest.key) == _WORKLOADS:
            return (1,)
        return (2,) if manifest.namespace else (3,)

    return _group(sorted(objects, key=lambda each: str(as_manifest(each).key)), find_step)


def _group(items: Iterable[T], find_key: Callable[[T], tuple[int, ...]]) -> list[list[T]]:
    """Returns the items by their keys in ascending order; within a key they keep theirs."""
    groups: dict[tuple[int, ...], list[T]] = {}
    for item in items:
        groups.setdefault(find_key(item), []).append(item)
    return [groups[key] for key in sorted(groups)]
