# SPDX-License-Identifier: Apache-2.0
"""Calls to plugins: limits, errors, cancellation."""

import asyncio
import time
from dataclasses import replace

import pytest

from pipecd_piped.plugins import PluginError, PluginLimits, PluginLostError
from pipecd_runtime.orphans import start_of
from pipecd_test_support.plugin_world import PluginWorld, wait_for
from pipecd_wire.plugin.deploymentapi.api_pb2 import (
    BuildPipelineSyncStagesRequest,
    BuildQuickSyncStagesRequest,
    ExecutePluginInput,
    PlanPluginInput,
)
from pipecd_wire.plugin.livestateapi.api_pb2 import GetLivestateRequest
from pipecd_wire.plugin.planpreviewapi.api_pb2 import GetPlanPreviewRequest


async def test_a_plugin_is_asked_for_versions(world: PluginWorld) -> None:
    request = PlanPluginInput(deployment=world.run_input("SUCCEED").deployment)
    async with world.host(world.odd(manners="go")) as host:
        await host.plugins["odd"].wait_ready(20)

        await host.plugins["odd"].determine_versions(request)

    assert world.facts(about="versions") == [["versions", "d1"]]


async def test_a_planning_call_that_hangs_ends_in_time(
    world: PluginWorld, quick: PluginLimits
) -> None:
    request = PlanPluginInput(deployment=world.run_input("SUCCEED").deployment)
    async with world.host(world.odd(), limits=quick) as host:
        await host.plugins["odd"].wait_ready(20)

        with pytest.raises(PluginError, match="'odd' did not answer DetermineStrategy in time"):
            await host.plugins["odd"].determine_strategy(request)


async def test_an_error_of_a_plugin_keeps_its_message(world: PluginWorld) -> None:
    """W11: the person deploying has to see it."""
    async with world.host(world.odd()) as host:
        await host.plugins["odd"].wait_ready(20)

        with pytest.raises(
            PluginError, match=r"'odd' failed at BuildQuickSyncStages: .*no cluster"
        ):
            await host.plugins["odd"].build_quick_sync_stages(BuildQuickSyncStagesRequest())


async def test_an_answer_that_is_too_large_is_an_error(world: PluginWorld) -> None:
    async with world.host(world.odd()) as host:
        await host.plugins["odd"].wait_ready(20)

        with pytest.raises(
            PluginError, match="'odd' answered BuildPipelineSyncStages with more than 10 MiB"
        ):
            await host.plugins["odd"].build_pipeline_sync_stages(BuildPipelineSyncStagesRequest())


async def test_a_request_that_breaks_the_rules_is_refused_by_the_plugin(world: PluginWorld) -> None:
    async with world.host(world.odd(manners="go")) as host:
        await host.plugins["odd"].wait_ready(20)

        with pytest.raises(PluginError, match="INVALID_ARGUMENT"):
            await host.plugins["odd"].execute_stage(ExecutePluginInput())


async def test_what_a_plugin_does_not_offer_is_not_an_error(world: PluginWorld) -> None:
    async with world.host(world.odd(manners="go")) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)

        assert await plugin.get_livestate(GetLivestateRequest(), deadline=10) is None
        assert await plugin.get_plan_preview(GetPlanPreviewRequest(), deadline=10) is None


async def test_a_status_that_is_no_end_is_an_error(world: PluginWorld) -> None:
    """W15: taken as it is, the deployment would stop silently and count as a success."""
    async with world.host(world.odd()) as host:
        await host.plugins["odd"].wait_ready(20)

        with pytest.raises(PluginError, match="with the status 1, which is not an end"):
            await host.plugins["odd"].execute_stage(world.run_input("RUN_ON"))


async def test_a_cancelled_stage_has_ended_when_the_call_returns(world: PluginWorld) -> None:
    """W13: a rollback must not work beside the stage that it undoes."""
    async with world.host(world.odd()) as host:
        await host.plugins["odd"].wait_ready(20)
        async with asyncio.TaskGroup() as tasks:
            stage = tasks.create_task(host.plugins["odd"].execute_stage(world.run_input("WAIT")))
            await wait_for(lambda: world.facts(about="stage"))

            stage.cancel()
            await asyncio.wait({stage}, timeout=20)

            assert stage.cancelled()
            assert world.facts(about="cleaned up")


async def test_a_second_cancel_does_not_shorten_the_wait_for_the_stage(world: PluginWorld) -> None:
    async with world.host(world.odd()) as host:
        await host.plugins["odd"].wait_ready(20)
        async with asyncio.TaskGroup() as tasks:
            stage = tasks.create_task(host.plugins["odd"].execute_stage(world.run_input("WAIT")))
            await wait_for(lambda: world.facts(about="stage"))

            for _ in range(5):
                stage.cancel()
                await asyncio.wait({stage}, timeout=0.02)
            await asyncio.wait({stage}, timeout=20)

            assert stage.cancelled()
            assert world.facts(about="cleaned up")


async def test_a_stage_that_does_not_end_after_its_cancel_ends_with_its_process(
    world: PluginWorld, quick: PluginLimits
) -> None:
    """It answers pings, but neither ExecuteStage nor WaitStage: only a restart helps."""
    async with world.host(
        world.odd(), world.odd("other"), limits=replace(quick, handler_end_seconds=0.5)
    ) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)
        await host.plugins["other"].wait_ready(20)
        [[_, _, _, pid, _]] = world.facts(about="started")
        seen: list[str] = []
        host.on_change = lambda plugin: seen.append(plugin.state.sentence)
        async with asyncio.TaskGroup() as tasks:
            stage = tasks.create_task(plugin.execute_stage(world.run_input("HANG")))
            await wait_for(lambda: world.facts(about="stage"))

            stage.cancel()
            await asyncio.wait({stage}, timeout=20)

            assert stage.cancelled()
            assert not start_of(pid)
        assert "did not end a stage within 0.5s after it was cancelled" in seen[0]
        await plugin.wait_ready(20)
        await plugin.execute_stage(world.run_input("SUCCEED"))
    assert len(world.facts(about="started")) == 2
    assert len(world.facts("other", about="started")) == 1


async def test_a_stage_that_cannot_be_waited_for_gets_a_moment(world: PluginWorld) -> None:
    """A plugin of upstream's does not say when its handler has ended."""
    limits = PluginLimits(silent_end_seconds=1.5)
    async with world.host(world.odd(manners="go"), limits=limits) as host:
        await host.plugins["odd"].wait_ready(20)
        async with asyncio.TaskGroup() as tasks:
            stage = tasks.create_task(host.plugins["odd"].execute_stage(world.run_input("WAIT")))
            await wait_for(lambda: world.facts(about="stage"))
            began = time.monotonic()

            stage.cancel()
            await asyncio.wait({stage}, timeout=20)

            assert 1.4 < time.monotonic() - began < 10
            assert stage.cancelled()


async def test_a_stage_whose_plugin_dies_while_it_is_cancelled_ends(
    world: PluginWorld, quick: PluginLimits
) -> None:
    async with world.host(world.odd(), limits=quick) as host:
        await host.plugins["odd"].wait_ready(20)
        async with asyncio.TaskGroup() as tasks:
            stage = tasks.create_task(host.plugins["odd"].execute_stage(world.run_input("WAIT")))
            await wait_for(lambda: world.facts(about="stage"))

            stage.cancel()
            with pytest.raises(PluginLostError):
                await host.plugins["odd"].execute_stage(world.run_input("DIE"))
            await asyncio.wait({stage}, timeout=20)

            assert stage.cancelled()
            assert not world.facts(about="cleaned up")
