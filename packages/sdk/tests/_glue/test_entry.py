# SPDX-License-Identifier: Apache-2.0
"""The plugin's entry of the piped file."""

import json
import os

import pytest

from pipecd_sdk import (
    DeploymentPlugin,
    PluginConfig,
    StageContext,
    StagePlugin,
    TargetConfig,
    stage,
)
from pipecd_sdk._glue import flags
from pipecd_sdk._glue.entry import read_entry, set_up
from pipecd_sdk.config import OptionFaultsError


class Options(PluginConfig):
    size: int = 3


class Place(TargetConfig):
    address: str


class Simple(StagePlugin):
    config: Options

    @stage("SIMPLE")
    async def simple(self, ctx: StageContext) -> None: ...


class Platform(DeploymentPlugin):
    target_config = Place

    @stage("SYNC")
    async def sync(self, ctx: StageContext) -> None: ...


def entry(**more: object) -> str:
    return json.dumps({"name": "lab", "url": "file:///plugins/lab", "port": 7001, **more})


def test_the_plugin_gets_its_options() -> None:
    plugin = Simple()

    setup = set_up(plugin, entry(config={"Size": 5}))

    assert plugin.config.size == 5
    assert (setup.name, setup.port) == ("lab", 7001)


def test_options_that_are_left_out_have_their_defaults() -> None:
    plugin = Simple()

    set_up(plugin, entry())

    assert plugin.config.size == 3


def test_deploy_targets_are_read_with_the_plugins_type() -> None:
    targets = [
        {"name": "dev", "labels": {"env": "dev"}, "config": {"address": "10.0.0.1"}},
        {"name": "prod", "config": {"address": "10.0.0.2"}},
    ]

    setup = set_up(Platform(), entry(deployTargets=targets))

    assert setup.targets["dev"].labels == {"env": "dev"}
    assert setup.targets["prod"].config == Place(address="10.0.0.2")


def test_a_deploy_target_without_config_carries_null() -> None:
    setup = set_up(Simple(), entry(deployTargets=[{"name": "dev", "config": None}]))

    assert list(setup.targets) == ["dev"]


def test_a_platform_without_deploy_targets_is_refused() -> None:
    with pytest.raises(OptionFaultsError, match="deployTargets: the plugin 'lab' needs at least"):
        set_up(Platform(), entry())


def test_all_faults_are_told_at_once() -> None:
    targets = [{"name": "dev", "config": {}}, {"name": "prod", "config": {"address": 3}}]

    with pytest.raises(OptionFaultsError) as refused:
        set_up(Platform(), entry(deployTargets=targets))

    assert [fault.path for fault in refused.value.faults] == [
        "deployTargets[0].config.address",
        "deployTargets[1].config.address",
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"port": 1}'])
def test_an_entry_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OptionFaultsError):
        set_up(Simple(), text)


def test_the_entry_is_read_from_an_inherited_descriptor_to_its_end() -> None:
    """A pipe holds 64 KiB; what is longer comes in several pieces."""
    text = entry(config={"note": "x" * 50_000})
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as given:
        given.write(text)
    started = flags.parse(
        ["start", "--piped-plugin-service", "x", "--config-fd", str(reader)],
        name="lab",
        version="1",
    )

    assert read_entry(started) == text
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reader)
