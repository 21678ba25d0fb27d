# SPDX-License-Identifier: Apache-2.0
"""A provider of an older application is the deploy target of the same name."""

from pipecd_model.config import DeployTargetConfig, PluginConfig
from pipecd_piped.plan.providers import add_targets
from pipecd_wire.model.deployment_pb2 import Deployment

PLUGINS = [
    PluginConfig(name="wait"),
    PluginConfig(
        name="cluster",
        deploy_targets=(DeployTargetConfig(name="dev"), DeployTargetConfig(name="prod")),
    ),
]


def test_it_is_found_by_its_name() -> None:
    found = add_targets(Deployment(id="d1", platform_provider="prod"), PLUGINS)

    assert found.id == "d1"
    assert list(found.deploy_targets_by_plugin) == ["cluster"]
    assert list(found.deploy_targets_by_plugin["cluster"].deploy_targets) == ["prod"]


def test_the_oldest_name_of_it_counts_too() -> None:
    found = add_targets(Deployment(cloud_provider="dev"), PLUGINS)

    assert list(found.deploy_targets_by_plugin["cluster"].deploy_targets) == ["dev"]


def test_an_application_that_names_its_targets_keeps_them() -> None:
    given = Deployment(platform_provider="prod")
    given.deploy_targets_by_plugin["cluster"].deploy_targets.append("dev")

    assert add_targets(given, PLUGINS) is given


def test_one_that_nobody_has_is_left_to_the_plugin_to_miss() -> None:
    assert not add_targets(Deployment(platform_provider="x"), PLUGINS).deploy_targets_by_plugin
