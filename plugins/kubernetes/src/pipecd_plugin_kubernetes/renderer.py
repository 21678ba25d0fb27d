# SPDX-License-Identifier: Apache-2.0
"""Renders the manifests of a commit once, also where several deploy targets need the same."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from pipecd_plugin_kubernetes.client import Cluster
from pipecd_plugin_kubernetes.clusters import find_namespaced
from pipecd_plugin_kubernetes.config import KubernetesOptions, KubernetesPluginConfig
from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.rendering import load_manifests
from pipecd_plugin_kubernetes.rendering.arrange import IsNamespaced
from pipecd_sdk import Source, Tools


class Renderer:
    """The manifests of the commits of one call of piped."""

    def __init__(
        self, config: KubernetesPluginConfig, tools: Tools, *, application_name: str
    ) -> None:
        self._config = config
        self._tools = tools
        self._application_name = application_name
        self._done: dict[tuple[str, str, bytes], Sequence[Manifest]] = {}
        self._doing: defaultdict[tuple[str, str, bytes], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def load(
        self,
        source: Source,
        options: KubernetesOptions,
        *,
        cluster: str = "",
        is_namespaced: IsNamespaced | None = None,
    ) -> Sequence[Manifest]:
        """Returns the manifests of a commit; nobody changes them. Raises StageFailedError.

        `is_namespaced` says of kinds that are not built in whether they have namespaces, in the
        cluster of this name.
        """
        key = (
            source.commit_hash,
            f"{source.application_directory}\0{cluster}",
            msgspec.json.encode(options.input),
        )
        async with self._doing[key]:
            if key not in self._done:
                self._done[key] = await load_manifests(
                    source,
                    options,
                    config=self._config,
                    tools=self._tools,
                    application_name=self._application_name,
                    is_namespaced=is_namespaced,
                )
            return self._done[key]


async def load_for(
    renderer: Renderer, source: Source, options: KubernetesOptions, cluster: Cluster, target: str
) -> Sequence[Manifest]:
    """Returns the manifests of a commit for the cluster of a deploy target.

    Where the application names a namespace the cluster is asked which kinds are in one.
    """
    if not options.input.namespace:
        return await renderer.load(source, options)
    kinds = await find_namespaced(cluster)
    return await renderer.load(source, options, cluster=target, is_namespaced=kinds)
