# SPDX-License-Identifier: Apache-2.0
"""Without the lease nothing new starts; what runs goes on, and a rollback longer than the rest."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration

from pipecd_model.errors import StateError, UnavailableError
from pipecd_piped.controlplane.state import StateChange
from pipecd_piped.schedule.queue_reporter import QueueReporter
from pipecd_test_support.piped_parts import (
    FakePlugin,
    FakePlugins,
    FakeSources,
    Hold,
    World,
    application_file,
    cancel,
    deployment,
    done,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import EmergencyStop, ProjectRules
from pipecd_wire.pipecd.push.push_pb2 import Lease
from pipecd_wire.plugin.deploymentapi import api_pb2 as api


def seconds(number: float) -> Duration:
    made = Duration()
    made.FromTimedelta(timedelta(seconds=number))
    return made


def lease(epoch: int = 1, *, held: bool = True, begun_after: float = 0) -> Lease:
    return Lease(
        epoch=epoch,
        held=held,
        time=seconds(60),
        take_over_after=seconds(600),
        begun_after=seconds(begun_after),
    )


def give(world: World, given: Lease) -> None:
    world.lease.apply(given, asked=world.lease_clock.now)


def world_of(*stages: str, plugin: FakePlugin | None = None) -> World:
    plugin = plugin or FakePlugin("steps", "STEP", "UNDO", rollback="UNDO")
    world = World(FakePlugins(plugin), FakeSources({"c1": application_file(stages)}))
    give(world, lease())
    return world


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - others make it true; the world has a limit
        await asyncio.sleep(0.01)


async def turns() -> None:
    """Let everything run that can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_past_the_lease_time_no_deployment_starts_until_it_is_renewed() -> None:
    world = world_of("STEP")
    world.lease_clock.now += 60
    async with world.running():
        world.controller.on_created(deployment())
        await turns()
        assert world.runs == []

        give(world, lease())
        await world.memory.until_completed()


async def test_a_running_stage_goes_on_and_the_next_one_waits() -> None:
    world = world_of("STEP", "STEP")
    held = Hold()
    world.plugins.plugins["steps"].behave["STEP 0"] = held
    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.lease_clock.now += 100
        held.let_go.set()
        await world.memory.until(lambda: "STAGE_SUCCESS" in str(world.stage_reports()))
        await turns()
        assert world.plugins.record == ["STEP 0"]

        give(world, lease())
        await world.memory.until_completed()
    assert world.plugins.record == ["STEP 0", "STEP 1"]


async def test_a_stage_that_was_paused_past_the_lease_time_waits_for_the_lease() -> None:
    world = world_of("STEP", "STEP")
    waits = QueueReporter(None, world.controller, world.turns)  # type: ignore[arg-type]
    held = Hold()
    world.plugins.plugins["steps"].behave["STEP 0"] = held
    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        stop = ProjectRules(emergency_stop=EmergencyStop(by="eve"))
        world.state.merge(StateChange(rules=stop))
        held.let_go.set()
        await until(lambda: bool(waits.list_queued()))
        world.lease_clock.now += 100
        world.state.merge(StateChange(rules=ProjectRules()))
        await turns()
        assert world.plugins.record == ["STEP 0"]

        give(world, lease())
        await world.memory.until_completed()
    assert world.plugins.record == ["STEP 0", "STEP 1"]


async def test_a_rollback_goes_on_past_the_lease_time() -> None:
    world = world_of("STEP")
    held = Hold(done(pb.STAGE_FAILURE))
    world.plugins.plugins["steps"].behave["STEP"] = held
    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.lease_clock.now += 599
        held.let_go.set()
        await world.memory.until_completed()
    assert world.plugins.record == ["STEP 0", "UNDO 0"]


async def test_past_the_take_over_time_not_even_a_rollback_starts() -> None:
    world = world_of("STEP")
    held = Hold(done(pb.STAGE_FAILURE))
    world.plugins.plugins["steps"].behave["STEP"] = held
    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.lease_clock.now += 600
        held.let_go.set()
        await world.memory.until(lambda: "STAGE_FAILURE" in str(world.stage_reports()))
        await turns()
        assert world.plugins.record == ["STEP 0"]

        give(world, lease())
        await world.memory.until_completed()
    assert world.plugins.record == ["STEP 0", "UNDO 0"]


async def test_a_cancel_reaches_a_deployment_that_waits_for_the_lease() -> None:
    """Its rollback may start still."""
    world = world_of("STEP", "STEP")
    held = Hold()
    world.plugins.plugins["steps"].behave["STEP 0"] = held
    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.lease_clock.now += 100
        held.let_go.set()
        await world.memory.until(lambda: "STAGE_SUCCESS" in str(world.stage_reports()))
        world.push(cancel())
        ended = await world.memory.until_completed()
    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert world.plugins.record == ["STEP 0", "UNDO 0"]


async def test_what_another_instance_has_begun_waits_while_new_ones_start() -> None:
    world = world_of("STEP")
    give(world, lease(begun_after=500))
    async with world.running():
        world.push(deployment("begun", "begun", status=pb.DEPLOYMENT_PLANNED))
        world.push(deployment("new", "new"))
        await world.memory.until_completed("new")
        assert [run.deployment.id for run in world.runs] == ["new"]

        world.lease_clock.now += 500
        give(world, lease())
        await world.memory.until_completed("begun")


async def test_an_instance_that_waits_leaves_everything_to_the_one_at_work() -> None:
    world = world_of("STEP")
    give(world, lease(2, held=False))
    async with world.running():
        world.push(deployment())
        world.push(cancel())
        await turns()

    assert world.runs == []
    assert world.memory.reports == []
    assert world.controller.queue == {}


async def test_whoever_gets_the_lease_goes_on_from_the_snapshot_that_comes_with_it() -> None:
    """What waited here when the lease went away has been done by the other one, or is told anew."""
    world = world_of("STEP")
    async with world.running():
        world.lease_clock.now += 60
        world.push(deployment("theirs", "theirs"), deployment("ours", "ours"))
        await turns()
        give(world, lease(2, held=False))
        left = deployment("ours", "ours")
        world.state.replace(applications=[], deployments=[left], commands=[])
        give(world, lease(3))
        await world.memory.until_completed("ours")

    assert [run.deployment.id for run in world.runs] == ["ours"]


async def test_a_deployment_that_another_instance_went_on_with_is_read_again() -> None:
    """The lease was away and came back: the other one has run the second stage."""
    world = world_of("STEP", "STEP", "STEP")
    held = Hold()
    world.plugins.plugins["steps"].behave["STEP 0"] = held
    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        give(world, lease(2, held=False))
        theirs = pb.Deployment()
        theirs.CopyFrom(world.runs[0].deployment)
        for stage in theirs.stages[:2]:
            stage.status = pb.STAGE_SUCCESS
        world.stored["d1"] = theirs
        held.let_go.set()
        await turns()
        assert world.plugins.record == ["STEP 0"]

        give(world, lease(3))
        await world.memory.until_completed()
    assert world.plugins.record == ["STEP 0", "STEP 2"]


async def test_a_stage_is_stopped_when_another_instance_is_at_work_on_it() -> None:
    """Nothing is said of it, and nothing rolled back: that is the other one's business."""
    world = world_of("STEP")
    held = Hold()
    world.plugins.plugins["steps"].behave["STEP"] = held
    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        give(world, lease(2, held=False))
        await turns()
        assert world.controller.running == ["d1"]

        world.lease_clock.now += 600
        give(world, lease(2, held=False))
        await until(lambda: world.controller.running == [])

    assert held.cancelled
    assert world.plugins.record == ["STEP 0"]
    assert [status for _, status, _ in world.stage_reports()] == ["STAGE_RUNNING"]
    assert world.memory.of("ReportDeploymentCompleted") == []


async def test_a_plan_that_is_refused_after_the_lease_went_away_fails_no_deployment() -> None:
    class Slow(FakePlugin):
        async def build_quick_sync_stages(
            self, request: api.BuildQuickSyncStagesRequest
        ) -> api.BuildQuickSyncStagesResponse:
            give(world, lease(2, held=False))
            return await super().build_quick_sync_stages(request)

    world = world_of("STEP", plugin=Slow("steps", "STEP"))
    world.memory.refuse["ReportDeploymentPlanned"] = StateError("gone to another instance")
    async with world.running():
        world.controller.on_created(deployment())
        await until(lambda: bool(world.runs) and world.controller.running == [])

    assert world.memory.of("ReportDeploymentCompleted") == []


async def test_reading_again_is_tried_until_the_control_plane_answers() -> None:
    world = world_of("STEP", "STEP")
    held = Hold()
    world.plugins.plugins["steps"].behave["STEP 0"] = held
    world.stored_faults = [UnavailableError("away")]
    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.stored["d1"] = world.runs[0].deployment
        give(world, lease(3))
        held.let_go.set()
        await world.memory.until_completed()

    assert world.stored_faults == []
    assert world.plugins.record == ["STEP 0", "STEP 1"]


async def test_a_stopping_piped_does_not_wait_for_the_lease() -> None:
    world = world_of("STEP")
    world.lease_clock.now += 60
    async with world.running():
        world.controller.on_created(deployment())
        await turns()
        world.controller.stop()
        await world.controller.wait_settled()
    assert world.runs == []
