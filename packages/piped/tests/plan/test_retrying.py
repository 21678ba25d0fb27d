# SPDX-License-Identifier: Apache-2.0
"""A plugin that is lost while a deployment is planned is waited for; one in a crash loop is not."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from pipecd_model.errors import PluginError
from pipecd_piped.plan.retrying import (
    LOSSES,
    retry_on_plugin_loss,
    wait_for_stage_lists,
    wait_ready,
)
from pipecd_piped.plugins.errors import PluginLostError, PluginStoppingError
from pipecd_piped.plugins.state import Phase, PluginState
from pipecd_test_support.piped_parts import (
    FakePlugin,
    FakePlugins,
    FakeSources,
    World,
    application_file,
    deployment,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.plugin.deploymentapi import api_pb2 as api

LIMIT = 20
LOST = PluginLostError("the plugin 'steps' was lost: killed by SIGKILL")
LOOPING = PluginState(phase=Phase.FAILED, sentence="crash loop, 5 times in a row", crash_loop=True)


class Restarting(FakePlugin):
    """Is not there for a while, and is lost in the middle of questions."""

    def __init__(self, *stages: str, away: Iterable[PluginError] = (), **options: Any) -> None:
        super().__init__("steps", *stages, **options)
        self.away = list(away)
        self.lost: dict[str, int] = {}

    async def wait_ready(self, limit: float) -> None:
        if self.away:
            raise self.away.pop(0)

    async def build_quick_sync_stages(
        self, request: api.BuildQuickSyncStagesRequest
    ) -> api.BuildQuickSyncStagesResponse:
        self._die("quick")
        return await super().build_quick_sync_stages(request)

    async def build_pipeline_sync_stages(
        self, request: api.BuildPipelineSyncStagesRequest
    ) -> api.BuildPipelineSyncStagesResponse:
        self._die("pipeline")
        return await super().build_pipeline_sync_stages(request)

    async def determine_versions(self, ask: api.PlanPluginInput) -> api.DetermineVersionsResponse:
        self._die("versions")
        return await super().determine_versions(ask)

    async def determine_strategy(self, ask: api.PlanPluginInput) -> api.DetermineStrategyResponse:
        self._die("strategy")
        return await super().determine_strategy(ask)

    def _die(self, where: str) -> None:
        if self.lost.get(where):
            self.lost[where] -= 1
            raise LOST


def world_of(plugin: FakePlugin) -> World:
    files = {"c0": application_file(["STEP"]), "c1": application_file(["STEP"])}
    return World(FakePlugins(plugin), FakeSources(files))


@pytest.mark.parametrize("where", ["quick", "pipeline", "versions", "strategy"])
async def test_a_plugin_that_dies_at_any_question_is_asked_again(where: str) -> None:
    plugin = Restarting("STEP", "SYNC", quick=["SYNC"])
    plugin.lost = {where: 1}
    world = world_of(plugin)
    world.success("c0")
    async with world.running():
        world.controller.on_created(deployment())
        ended = await world.memory.until_completed()

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert plugin.lost == {where: 0}
    assert world.plugins.record == ["STEP 0"]


async def test_a_plugin_that_is_restarting_is_waited_for() -> None:
    world = world_of(Restarting("STEP", away=[LOST] * 3))
    async with world.running():
        world.controller.on_created(deployment())
        ended = await world.memory.until_completed()

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason


async def test_a_plugin_in_a_crash_loop_fails_the_deployment_with_its_last_words() -> None:
    last = PluginLostError("the plugin 'steps' is not ready: crash loop", hint="no licence")
    plugin = Restarting("STEP", away=[last])
    plugin.state = LOOPING
    world = world_of(plugin)
    async with world.running():
        world.controller.on_created(deployment())
        ended = await world.memory.until_completed()

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.status_reason == "the plugin 'steps' is not ready: crash loop (no licence)"


async def test_questions_that_kill_a_plugin_again_and_again_are_given_up() -> None:
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise LOST

    with pytest.raises(PluginError, match=f"SIGKILL; it was asked {LOSSES} times"):
        await retry_on_plugin_loss(ask)

    assert asked == LOSSES


async def test_a_plugin_that_stops_with_piped_is_not_waited_for() -> None:
    stopping = PluginStoppingError("is stopping")

    async def ask() -> None:
        raise stopping

    with pytest.raises(PluginStoppingError):
        await retry_on_plugin_loss(ask)
    with pytest.raises(PluginStoppingError):
        await wait_ready(Restarting("STEP", away=[stopping]))


async def test_a_stage_that_nobody_offers_is_looked_for_in_plugins_that_come_later() -> None:
    class Late(Restarting):
        async def wait_ready(self, limit: float) -> None:
            await super().wait_ready(limit)
            self.was_ready = True
            self.stages = frozenset({"STEP"})

    late = Late(away=[LOST])
    late.was_ready = False
    world = world_of(late)
    async with world.running():
        world.controller.on_created(deployment())
        ended = await world.memory.until_completed()

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason


async def test_plugins_that_never_come_hold_nobody_up_for_ever() -> None:
    class Never(Restarting):
        async def wait_ready(self, limit: float) -> None:
            await asyncio.Event().wait()

    never = Never()
    never.was_ready = False
    hopeless = Restarting(away=[LOST])
    hopeless.was_ready, hopeless.state = False, LOOPING

    async with asyncio.timeout(LIMIT):
        await wait_for_stage_lists([never, hopeless], 0.05)
