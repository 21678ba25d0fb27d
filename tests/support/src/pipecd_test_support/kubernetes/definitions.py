# SPDX-License-Identifier: Apache-2.0
"""Kinds that a cluster of tests knows beyond those of Kubernetes: open schemas, written by us.

Istio's VirtualService and DestinationRule and the Gateway API's HTTPRoute and Gateway, whose
controllers are not there: their objects are kept as they are. kwok's own two say which file is the
log of a pod.
"""

from typing import Any

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def list_definitions() -> list[dict[str, Any]]:
    """Return the definitions of all kinds, as objects of the API."""
    return [
        _define("networking.istio.io", "VirtualService", "virtualservices", ["v1", "v1beta1"]),
        _define("networking.istio.io", "DestinationRule", "destinationrules", ["v1", "v1beta1"]),
        _define("gateway.networking.k8s.io", "HTTPRoute", "httproutes", ["v1", "v1beta1"]),
        _define("gateway.networking.k8s.io", "Gateway", "gateways", ["v1", "v1beta1"]),
        _define("kwok.x-k8s.io", "Logs", "logs", ["v1alpha1"]),
        _define("kwok.x-k8s.io", "ClusterLogs", "clusterlogs", ["v1alpha1"], scope="Cluster"),
    ]


def _define(
    group: str, kind: str, plural: str, versions: list[str], *, scope: str = "Namespaced"
) -> dict[str, Any]:
    annotations = {}
    if group.endswith(".k8s.io"):
        # Groups of the project need it; these definitions are none that it has seen.
        annotations["api-approved.kubernetes.io"] = "unapproved, for tests"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": annotations},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[0],
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": _OPEN, "status": _OPEN},
                        }
                    },
                }
                for version in versions
            ],
        },
    }
