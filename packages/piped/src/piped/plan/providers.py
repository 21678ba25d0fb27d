# SPDX-License-Identifier: Apache-2.0
"""Applications that were registered with a provider, as before there were plugins.

A provider is a deploy target today: the one of the same name, of whichever plugin has it.
"""

from collections.abc import Iterable

from pipecd_model.config import PluginConfig
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.deployment_pb2 import Deployment


def targets_of(
    owner: Application | Deployment, plugins: Iterable[PluginConfig]
) -> dict[str, list[str]]:
    """Returns the deploy targets by plugin; an older application names a provider instead."""
    if owner.deploy_targets_by_plugin:
        return {
            name: list(chosen.deploy_targets)
            for name, chosen in owner.deploy_targets_by_plugin.items()
            if chosen.deploy_targets
        }
    provider = owner.platform_provider or owner.cloud_provider
    if not provider:
        return {}
    return {
        plugin.name: [provider]
        for plugin in plugins
        if any(target.name == provider for target in plugin.deploy_targets)
    }


def add_targets(deployment: Deployment, plugins: Iterable[PluginConfig]) -> Deployment:
    """Returns the deployment with its deploy targets; the same one when it names them itself."""
    if deployment.deploy_targets_by_plugin:
        return deployment
    found = Deployment()
    found.CopyFrom(deployment)
    for name, targets in targets_of(deployment, plugins).items():
        found.deploy_targets_by_plugin[name].deploy_targets.extend(targets)
    return found
