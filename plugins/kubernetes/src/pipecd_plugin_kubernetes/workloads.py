# SPDX-License-Identifier: Apache-2.0
"""Chooses manifests by what an application file calls them: its workloads and its Services."""

from collections.abc import Iterable, Sequence

from pipecd_plugin_kubernetes.config import ResourceReference, WorkloadReference
from pipecd_plugin_kubernetes.manifest import Manifest

DEFAULT_WORKLOADS = (WorkloadReference(),)
"""All Deployments."""


def find_workloads(
    manifests: Iterable[Manifest], references: Sequence[WorkloadReference] = ()
) -> list[Manifest]:
    """Returns the workloads that are named, in the order of the manifests; else all Deployments.

    Example:
        >>> web = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
        >>> find_workloads([Manifest(web)])
        [<Manifest apps:Deployment::web>]
    """
    wanted = references or DEFAULT_WORKLOADS
    return [
        manifest
        for manifest in manifests
        if any(
            manifest.kind == (each.kind or "Deployment") and each.name in {"", manifest.name}
            for each in wanted
        )
        and (manifest.group in {"apps", "extensions"} or not _is_builtin(manifest.group))
    ]


def find_services(manifests: Iterable[Manifest], reference: ResourceReference) -> list[Manifest]:
    """Returns the Services that are named; all of them when none is."""
    return [each for each in manifests if each.is_service() and reference.name in {"", each.name}]


def _is_builtin(group: str) -> bool:
    return group == "" or group.endswith(".k8s.io")
