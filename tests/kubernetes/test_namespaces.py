# SPDX-License-Identifier: Apache-2.0
"""An application's namespace, and kinds that have none, of which only the cluster knows."""

from typing import Any

from pipecd_plugin_kubernetes.client import Cluster, load_connection
from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.rendering.arrange import arrange

from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster


def make_class(name: str) -> Manifest:
    body: dict[str, Any] = {
        "apiVersion": "zones.example.com/v1",
        "kind": "Zone",
        "metadata": {"name": name},
    }
    return Manifest(body)


DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "zones.zones.example.com"},
    "spec": {
        "group": "zones.example.com",
        "scope": "Cluster",
        "names": {"kind": "Zone", "plural": "zones", "singular": "zone", "listKind": "ZoneList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


async def test_an_object_of_a_kind_without_namespaces_is_applied_whatever_it_says(
    cluster: RealCluster, namespace: Namespace
) -> None:
    """The definition is not among the manifests: rendering cannot know."""
    connection = await load_connection(kubeconfig=str(cluster.kubeconfig))
    async with await Cluster.connect(connection) as client:
        await client.apply(DEFINITION, force=True)
        await client.find_resource("zones.example.com/v1", "Zone", within_seconds=30)
        (zone,) = arrange([make_class("north")], namespace=namespace.name)
        assert zone.namespace == namespace.name
        for _ in range(2):
            applied = await client.apply(zone.body, force=True)
            assert "namespace" not in applied["metadata"]
        await client.delete(await client.ref_of(DEFINITION))
