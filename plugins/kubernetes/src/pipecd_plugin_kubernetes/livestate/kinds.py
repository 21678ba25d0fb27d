# SPDX-License-Identifier: Apache-2.0
"""Which kinds of a cluster are watched: the usual ones, and what the piped file says. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from pipecd_plugin_kubernetes.client import ApiResource, Discovery
from pipecd_plugin_kubernetes.config import AppStateInformer, ResourceKind

USUAL_KINDS: Final = frozenset(
    {
        *("Service", "Endpoints", "EndpointSlice", "Deployment", "DaemonSet", "StatefulSet"),
        *("ReplicationController", "ReplicaSet", "Pod", "Job", "CronJob", "ConfigMap", "Secret"),
        *("Ingress", "IngressClass", "NetworkPolicy", "StorageClass", "PersistentVolume"),
        *("PersistentVolumeClaim", "HorizontalPodAutoscaler", "ServiceAccount", "Role"),
        *("RoleBinding", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"),
        *("PodDisruptionBudget", "PodSecurityPolicy", "APIService", "LocalSubjectAccessReview"),
        *("SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"),
        *("ResourceQuota", "PodTemplate", "Namespace"),
    }
)
USUAL_GROUPS: Final = frozenset(
    {
        *("", "apps", "extensions", "batch", "storage.k8s.io", "autoscaling", "networking.k8s.io"),
        *("apiextensions.k8s.io", "rbac.authorization.k8s.io", "policy", "discovery.k8s.io"),
        *("apiregistration.k8s.io", "authorization.k8s.io"),
    }
)
USUAL_VERSIONS: Final = frozenset({"v1", "v1beta1", "v1beta2", "v2"})
_NEEDED_VERBS: Final = frozenset({"list", "watch"})


def choose_kinds(
    discovery: Discovery,
    informer: AppStateInformer,
    *,
    wanted: Iterable[tuple[str, str]] = (),
) -> Sequence[ApiResource]:
    """Returns the kinds to watch, each in one version.

    An excluded kind is never watched; an included one is, and so is one of `wanted` (API version
    and kind), which manifests of applications name; otherwise the usual ones are. A kind must be
    able to be listed and watched. With a namespace only kinds that have namespaces are watched.
    """
    manifests = {(_group_of(api_version), kind) for api_version, kind in wanted}
    chosen: dict[tuple[str, str], ApiResource] = {}
    for resource in discovery.resources:
        place = (resource.group, resource.kind)
        if place in chosen or not _can_be_watched(resource, informer):
            continue
        if is_excluded(resource.api_version, resource.kind, informer):
            continue
        if (
            any(
                _is_meant(resource.api_version, resource.kind, each)
                for each in informer.include_resources
            )
            or place in manifests
            or _is_usual(resource)
        ):
            chosen[place] = resource
    return tuple(chosen.values())


def _can_be_watched(resource: ApiResource, informer: AppStateInformer) -> bool:
    is_in_reach = resource.namespaced or not informer.namespace
    return is_in_reach and resource.verbs >= _NEEDED_VERBS


def is_excluded(api_version: str, kind: str, informer: AppStateInformer) -> bool:
    """Returns whether the piped file says that a kind is not looked at."""
    return any(_is_meant(api_version, kind, each) for each in informer.exclude_resources)


def _is_meant(api_version: str, kind: str, reference: ResourceKind) -> bool:
    """An empty API version or kind means any; one of the two must be given."""
    if not reference.api_version and not reference.kind:
        return False
    return reference.api_version in {"", api_version} and reference.kind in {"", kind}


def _is_usual(resource: ApiResource) -> bool:
    return (
        resource.kind in USUAL_KINDS
        and resource.group in USUAL_GROUPS
        and resource.version in USUAL_VERSIONS
    )


def _group_of(api_version: str) -> str:
    return api_version.rpartition("/")[0]
