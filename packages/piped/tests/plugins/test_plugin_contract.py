# SPDX-License-Identifier: Apache-2.0
"""The plugin of the tests of planning and running, and a process of a real one, are alike."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipecd_model.config import PluginConfig
from pipecd_piped.plugins import Plugin
from pipecd_test_support.contracts import PIPELINE, QUICK_SYNC, ROLLBACK, PluginContract
from pipecd_test_support.piped_parts import FakePlugin
from pipecd_test_support.plugin_world import PluginWorld
from pipecd_wire.model.common_pb2 import SyncStrategy
from pipecd_wire.plugin.deploymentapi import api_pb2 as api

DUMMY = Path(sys.executable).parent / "pipecd-plugin-dummy"


class TestFakePlugin(PluginContract):
    @pytest.fixture
    def plugin(self) -> FakePlugin:
        return FakePlugin(
            "dummy",
            *PIPELINE,
            ROLLBACK,
            rollback=ROLLBACK,
            quick=[QUICK_SYNC],
            strategy=api.DetermineStrategyResponse(sync_strategy=SyncStrategy.PIPELINE),
        )


class TestPluginProcess(PluginContract):
    @pytest.fixture
    async def plugin(self, world: PluginWorld) -> AsyncIterator[Plugin]:
        async with world.host(PluginConfig(name="dummy", url=str(DUMMY))) as host:
            yield host.plugins["dummy"]
