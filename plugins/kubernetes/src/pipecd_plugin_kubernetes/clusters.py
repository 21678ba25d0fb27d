# SPDX-License-Identifier: Apache-2.0
"""The clusters of the deploy targets: one client each, made when it is first needed, and kept."""

import asyncio
from collections import defaultdict

from pipecd_plugin_kubernetes.client import Cluster, load_connection
from pipecd_plugin_kubernetes.config import KubernetesTarget
from pipecd_plugin_kubernetes.rendering.arrange import IsNamespaced
from pipecd_sdk import DeployTarget


class Clusters:
    """Clients by the names of deploy targets."""

    def __init__(self) -> None:
        self._made: dict[str, Cluster] = {}
        self._making: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def get(self, target: DeployTarget) -> Cluster:
        """Returns the client of a deploy target. Raises ClusterError when it cannot be made."""
        async with self._making[target.name]:
            if target.name not in self._made:
                config: KubernetesTarget = target.config
                connection = await load_connection(
                    kubeconfig=config.kube_config_path,
                    master_url=config.master_url,
                    context=config.kube_context,
                )
                self._made[target.name] = await Cluster.connect(connection)
            return self._made[target.name]

    async def close(self) -> None:
        """Closes all connections."""
        made, self._made = self._made, {}
        for cluster in made.values():
            await cluster.close()


async def find_namespaced(cluster: Cluster) -> IsNamespaced:
    """Returns what the cluster knows of kinds: whether their objects are in namespaces."""
    discovery = await cluster.discover()
    known = {(each.group, each.kind): each.namespaced for each in discovery.resources}
    return lambda group, kind: known.get((group, kind))
