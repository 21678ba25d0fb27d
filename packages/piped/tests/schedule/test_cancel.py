# SPDX-License-Identifier: Apache-2.0
"""A person cancels a deployment: while it is planned, queued, running or over."""

import asyncio

from pipecd_test_support.piped_parts import (
    Hold,
    cancel,
    deployment,
)
from pipecd_test_support.schedule_parts import (
    TWO,
    begun_deployment,
    only_plugin,
    world_of,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.command_pb2 import COMMAND_FAILED, COMMAND_SUCCEEDED
from pipecd_wire.plugin.deploymentapi import api_pb2 as api


async def test_a_cancelled_stage_says_who_cancelled_it() -> None:
    world = world_of(TWO)
    held = Hold()
    only_plugin(world).behave["FIRST"] = held

    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.push(cancel(by="alice"))
        await world.memory.until_completed()

    assert world.stage_reports()[-1] == ("FIRST 0", "STAGE_CANCELLED", "cancelled by alice")
    [handled] = world.memory.of("ReportCommandHandled")
    assert (handled.command_id, handled.status) == ("cancel-d1", COMMAND_SUCCEEDED)
    assert dict(world.state.commands) == {}


async def test_a_cancel_while_planning_ends_the_deployment() -> None:
    world = world_of(TWO)
    plugin = only_plugin(world)
    planning = asyncio.Event()

    async def slow(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        planning.set()
        await asyncio.Event().wait()
        raise AssertionError

    plugin.build_quick_sync_stages = slow  # type: ignore[method-assign, assignment]

    async with world.running():
        world.controller.on_created(deployment())
        await planning.wait()
        world.push(cancel(by="alice"))
        ended = await world.memory.until_completed()

    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert ended.status_reason == "cancelled by alice before it began"
    assert world.plugins.record == []


async def test_a_queued_deployment_can_be_cancelled() -> None:
    """At once, and the one that runs goes on (W14)."""
    world = world_of(TWO)
    held = Hold()
    only_plugin(world).behave["FIRST"] = held

    async with world.running():
        world.controller.on_created(deployment("d1"))
        await held.began.wait()
        world.controller.on_created(deployment("d2"))
        world.push(cancel("d2", by="alice"))
        queued = await world.memory.until_completed("d2")
        held.let_go.set()
        running = await world.memory.until_completed("d1")

    assert queued.status == pb.DEPLOYMENT_CANCELLED
    assert running.status == pb.DEPLOYMENT_SUCCESS
    assert world.plugins.record == ["FIRST 0", "SECOND 1"]
    assert [each.deploying for each in world.memory.of("ReportApplicationDeployingStatus")] == [
        True,
        False,
    ]


async def test_a_cancel_for_a_deployment_that_is_over_is_answered() -> None:
    """Else it would be looked at again for a day (W18)."""
    world = world_of(TWO)

    async with world.running():
        world.push(cancel("gone"))
        await world.memory.until(lambda: bool(world.memory.of("ReportCommandHandled")))

    [handled] = world.memory.of("ReportCommandHandled")
    assert handled.status == COMMAND_FAILED
    assert handled.metadata["reason"] == "the deployment is over"


async def test_a_cancel_that_comes_before_its_deployment_is_kept_for_it() -> None:
    """A large snapshot comes in parts, commands first."""
    world = world_of(TWO)
    world.stored["d1"] = deployment()

    async with world.running():
        world.push(cancel("d1", by="alice"))
        await asyncio.sleep(0)
        world.push(deployment("d1"))
        ended = await world.memory.until_completed()

    assert ended.status_reason == "cancelled by alice before it began"


async def test_a_cancel_that_came_with_a_resumed_deployment_stops_it_before_its_stage() -> None:
    world = world_of(["FIRST"])
    begun = begun_deployment(world, started=world.clock() - 5)

    async with world.running():
        world.push(begun, cancel(by="alice"))
        ended = await world.memory.until_completed()

    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert world.runs[0].deployment.stages[0].status == pb.STAGE_CANCELLED
