# SPDX-License-Identifier: Apache-2.0
"""Reads the manifests of a commit: plain files, or what kustomize or helm make of them.

Rendering never runs what a branch brings. Tools get only flags of a list, an environment of their
own, and addresses that the piped file allows.
"""

import asyncio
from typing import Final

from pipecd_plugin_kubernetes.config import KubernetesOptions, KubernetesPluginConfig
from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.rendering.arrange import IsNamespaced, arrange
from pipecd_plugin_kubernetes.rendering.helm import render_chart
from pipecd_plugin_kubernetes.rendering.helm_home import HelmHome
from pipecd_plugin_kubernetes.rendering.hosts import read_allowed_hosts
from pipecd_plugin_kubernetes.rendering.kustomize import find_folder, render_kustomization
from pipecd_plugin_kubernetes.rendering.plain import read_plain
from pipecd_plugin_kubernetes.rendering.programs import Programs
from pipecd_plugin_kubernetes.rendering.scratch import KubernetesScratch
from pipecd_sdk import Source, StageFailedError, Tools
from pipecd_sdk.repository import Folder

__all__ = ["close_homes", "load_manifests"]

_homes: Final[list[tuple[KubernetesPluginConfig, HelmHome]]] = []
"""The homes of helm, for the configurations of this process; in practice there is one."""


async def load_manifests(
    source: Source,
    options: KubernetesOptions,
    *,
    config: KubernetesPluginConfig,
    tools: Tools,
    application_name: str,
    is_namespaced: IsNamespaced | None = None,
) -> list[Manifest]:
    """Returns the manifests of a commit, in their namespace and order.

    They have nothing of what PipeCD adds; `metadata.add_builtin` adds it. `is_namespaced` says of
    kinds that are not built in whether they have namespaces. Raises StageFailedError, also when
    there are none.
    """
    folder = await asyncio.to_thread(Folder.open, source)
    found = await _render(folder, options, config, tools, application_name)
    if not found:
        raise StageFailedError(
            "there are no manifests in what the application renders",
            hint="nothing would be left of the application if that were deployed",
        )
    return arrange(found, namespace=options.input.namespace, is_namespaced=is_namespaced)


async def _render(
    folder: Folder,
    options: KubernetesOptions,
    config: KubernetesPluginConfig,
    tools: Tools,
    application_name: str,
) -> list[Manifest]:
    given = options.input
    start = None
    if given.helm_chart is None:
        start = await asyncio.to_thread(find_folder, folder, given)
        if start is None:
            return await asyncio.to_thread(read_plain, folder, given.manifests)
    hosts = read_allowed_hosts(config)
    with await asyncio.to_thread(KubernetesScratch) as scratch:
        programs = Programs(config, tools, scratch.path)
        if start is not None:
            return await render_kustomization(
                folder, start, given, programs=programs, hosts=hosts, home=scratch.path
            )
        assert given.helm_chart is not None, "one of both is there"  # noqa: S101
        return await render_chart(
            folder,
            given,
            given.helm_chart,
            config=config,
            programs=programs,
            hosts=hosts,
            home=_find_home(config),
            work=scratch.path,
            application_name=application_name,
        )


def _find_home(config: KubernetesPluginConfig) -> HelmHome:
    for known, home in _homes:
        if known == config:
            return home
    home = HelmHome(config)
    _homes.append((config, home))
    return home


def close_homes() -> None:
    """Removes what helm keeps; the end of the process does it too."""
    while _homes:
        _homes.pop()[1].close()
