# SPDX-License-Identifier: Apache-2.0
"""Deploy targets of applications that were registered with a provider, before plugins existed.

A provider stands for the deploy target of the same name, of each plugin that has one.
"""

from collections.abc import Iterable

from pipecd_model.config import PluginConfig
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.deployment_pb2 import Deployment


def targets_of(
    owner: Application | Deployment, plugins: Iterable[PluginConfig]
) -> dict[str, list[str]]:
    """Returns the deploy targets by plugin; those named like the provider when none are set."""
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
    """Returns a copy of the deployment with deploy targets; itself when it already has some."""
    if deployment.deploy_targets_by_plugin:
        return deployment
    found = Deployment()
    found.CopyFrom(deployment)
    for name, targets in targets_of(deployment, plugins).items():
        found.deploy_targets_by_plugin[name].deploy_targets.extend(targets)
    return found
