# SPDX-License-Identifier: Apache-2.0
"""Puts manifests into their namespace and their order, before anything else is done with them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from pipecd_plugin_kubernetes.manifest import Manifest, find_map
from pipecd_plugin_kubernetes.metadata import read_order

IsNamespaced: TypeAlias = Callable[[str, str], bool | None]
"""Says of an API group and kind whether its objects are in namespaces; None: not known."""

_CLUSTER_SCOPED: Final[dict[str, frozenset[str]]] = {
    group: frozenset(kinds.split())
    for group, kinds in {
        "": "ComponentStatus Namespace Node PersistentVolume",
        "admissionregistration.k8s.io": (
            "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration "
            "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding "
            "ValidatingWebhookConfiguration"
        ),
        "apiextensions.k8s.io": "CustomResourceDefinition",
        "apiregistration.k8s.io": "APIService",
        "authentication.k8s.io": "SelfSubjectReview TokenReview",
        "authorization.k8s.io": (
            "SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview"
        ),
        "certificates.k8s.io": "CertificateSigningRequest ClusterTrustBundle",
        "extensions": "PodSecurityPolicy",
        "flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
        "gateway.networking.k8s.io": "GatewayClass",
        "internal.apiserver.k8s.io": "StorageVersion",
        "networking.k8s.io": "IPAddress IngressClass ServiceCIDR",
        "node.k8s.io": "RuntimeClass",
        "policy": "PodSecurityPolicy",
        "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding",
        "resource.k8s.io": "DeviceClass DeviceTaintRule ResourceSlice",
        "scheduling.k8s.io": "PriorityClass",
        "storage.k8s.io": ("CSIDriver CSINode StorageClass VolumeAttachment VolumeAttributesClass"),
        "storagemigration.k8s.io": "StorageVersionMigration",
    }.items()
}


def arrange(
    manifests: Sequence[Manifest],
    *,
    namespace: str = "",
    is_namespaced: IsNamespaced | None = None,
) -> list[Manifest]:
    """Returns copies in the namespace that the application names, in the order people gave."""
    placed = [each.copy() for each in manifests]
    if namespace:
        override_namespace(placed, namespace, is_namespaced=is_namespaced)
    return sort_by_order(placed)


def override_namespace(
    manifests: Sequence[Manifest], namespace: str, *, is_namespaced: IsNamespaced | None = None
) -> None:
    """Writes the namespace into all objects that are in one, in place.

    Built-in kinds are known, and those that a CustomResourceDefinition among the manifests defines.
    Of others `is_namespaced` is asked; one that nobody knows is taken to be in a namespace.
    """
    defined = _read_definitions(manifests)
    for manifest in manifests:
        kind = (manifest.group, manifest.kind)
        scoped = is_cluster_scoped(*kind)
        if not scoped and kind in defined:
            scoped = not defined[kind]
        elif not scoped and is_namespaced is not None:
            scoped = is_namespaced(*kind) is False
        if not scoped:
            manifest.metadata["namespace"] = namespace


def is_cluster_scoped(group: str, kind: str) -> bool:
    """Returns whether objects of this built-in kind are in no namespace.

    Example:
        >>> is_cluster_scoped("rbac.authorization.k8s.io", "ClusterRole")
        True
    """
    return kind in _CLUSTER_SCOPED.get(group, ())


def _read_definitions(manifests: Iterable[Manifest]) -> dict[tuple[str, str], bool]:
    """Returns which kinds are defined among the manifests, and whether they are in namespaces."""
    defined = {}
    for manifest in manifests:
        if (manifest.group, manifest.kind) == ("apiextensions.k8s.io", "CustomResourceDefinition"):
            spec = find_map(manifest.body, "spec")
            kind = find_map(spec, "names").get("kind")
            if isinstance(kind, str) and isinstance(spec.get("group"), str):
                defined[spec["group"], kind] = spec.get("scope") != "Cluster"
    return defined


def sort_by_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Returns the manifests by the number in their annotation `pipecd.dev/order`.

    Those without a number count as 0; those with the same keep their order.
    """
    return sorted(manifests, key=read_order)
