# SPDX-License-Identifier: Apache-2.0
"""Applications that were registered with a provider, as before there were plugins.

A provider is a deploy target today: the one of the same name, of whichever plugin has it.
"""

from collections.abc import Iterable

from pipecd_model.config import PluginConfig
from pipecd_wire.model.deployment_pb2 import Deployment


def add_targets(deployment: Deployment, plugins: Iterable[PluginConfig]) -> Deployment:
    """The deployment with its deploy targets; the same one when it names them itself."""
    provider = deployment.platform_provider or deployment.cloud_provider
    if deployment.deploy_targets_by_plugin or not provider:
        return deployment
    found = Deployment()
    found.CopyFrom(deployment)
    for plugin in plugins:
        if any(target.name == provider for target in plugin.deploy_targets):
            found.deploy_targets_by_plugin[plugin.name].deploy_targets.append(provider)
    return found
