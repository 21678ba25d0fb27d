# SPDX-License-Identifier: Apache-2.0
"""`onFailure: wait`: a failed deployment stays open for a person, for a limited time."""

import asyncio
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_model.deployment import WAITS_FOR_DECISION, find_stage_to_decide
from pipecd_piped.controlplane.client import OWN_COMMAND_HANDLED
from pipecd_piped.controlplane.state import StateChange
from pipecd_test_support.piped_parts import FakePlugin, World, cancel, deployment, done
from pipecd_test_support.schedule_parts import TWO, failing, only_plugin, world_of
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.plugin.deploymentapi import api_pb2 as api

WAIT = {"onFailure": "wait"}


class Flaky:
    """A stage that fails so often, then succeeds; keeps the number of each attempt."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.attempts: list[int] = []

    async def __call__(self, given: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        self.attempts.append(given.stage.retried_count)
        self.left -= 1
        return done(pb.STAGE_FAILURE, "broken") if self.left >= 0 else done()


def waiting_world(failures: int, **spec: Any) -> tuple[World, Flaky]:
    steps = FakePlugin("steps", *TWO, "STEPS_ROLLBACK", rollback="STEPS_ROLLBACK")
    world = world_of(TWO, plugin=steps, **{**WAIT, **spec})
    flaky = Flaky(failures)
    only_plugin(world).behave["FIRST"] = flaky
    return world, flaky


def command(world: World, kind: int, *, attempt: int = 0, id: str = "r1", stage: str = "") -> None:
    made = push.Command(
        id=id,
        type=push.Command.Type.ValueType(kind),
        application_id="web",
        deployment_id="d1",
        stage_id=stage,
        attempt=attempt,
        commander="ann",
        created_at=Timestamp(seconds=1),
    )
    world.state.merge(StateChange(own_commands=(made,)))


def retry(world: World, attempt: int, id: str = "r1", stage: str = "") -> None:
    stage = stage or world.runs[-1].deployment.stages[0].id
    command(world, push.Command.RETRY_STAGE, attempt=attempt, id=id, stage=stage)


async def until_waiting(world: World) -> pb.Deployment:
    """Wait until the control plane knows that the deployment waits for a person."""

    def waits() -> bool:
        reports = world.memory.of("ReportDeploymentStatusChanged")
        return bool(reports) and WAITS_FOR_DECISION in reports[-1].status_reason

    await world.memory.until(waits)
    found = world.runs[-1].deployment
    assert find_stage_to_decide(found) is not None
    return found


def outcomes(world: World) -> dict[str, bool]:
    return {each.command_id: each.succeeded for each in world.memory.of(OWN_COMMAND_HANDLED)}


async def test_a_retry_is_a_new_attempt_and_the_deployment_goes_on() -> None:
    world, flaky = waiting_world(failures=2)

    async with world.running():
        world.controller.on_created(deployment())
        await until_waiting(world)
        retry(world, 1)
        await world.memory.until(lambda: "r1" in outcomes(world))
        await until_waiting(world)
        retry(world, 2, "r2")
        await world.memory.until_completed()

    ended = world.runs[0].deployment
    assert ended.status == pb.DEPLOYMENT_SUCCESS
    assert flaky.attempts == [0, 1, 2]
    assert ended.stages[0].retried_count == 2
    assert outcomes(world) == {"r1": True, "r2": True}
    counts = [
        (each.retried_count, each.status) for each in world.memory.of("ReportStageStatusChanged")
    ]
    assert counts[:4] == [
        (0, pb.STAGE_RUNNING),
        (0, pb.STAGE_FAILURE),
        (1, pb.STAGE_RUNNING),
        (1, pb.STAGE_FAILURE),
    ]


async def test_a_retry_is_reported_as_done_when_its_attempt_begins_not_when_it_ends() -> None:
    """The attempt may take hours, and whoever asked for it waits for the answer."""
    world, flaky = waiting_world(failures=1)
    released = asyncio.Event()

    async def begin(given: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        if given.stage.retried_count:
            await released.wait()
        return await flaky(given)

    only_plugin(world).behave["FIRST"] = begin
    async with world.running():
        world.controller.on_created(deployment())
        await until_waiting(world)
        retry(world, 1)
        await world.memory.until(lambda: outcomes(world) == {"r1": True})
        assert world.runs[0].deployment.stages[0].status == pb.STAGE_RUNNING
        released.set()
        await world.memory.until_completed()


async def test_one_attempt_is_begun_once_however_often_it_is_asked_for() -> None:
    """Two people click at the same time, or the control plane repeats the command."""
    world, flaky = waiting_world(failures=2)

    async with world.running():
        world.controller.on_created(deployment())
        await until_waiting(world)
        retry(world, 1)
        retry(world, 1, "again")
        await world.memory.until(lambda: outcomes(world) == {"r1": True, "again": True})
        await until_waiting(world)
        assert flaky.attempts == [0, 1]
        command(world, push.Command.ROLL_BACK, id="back")
        await world.memory.until_completed()

    assert flaky.attempts == [0, 1]


async def test_a_person_rolls_it_back() -> None:
    world, _ = waiting_world(failures=1)

    async with world.running():
        world.controller.on_created(deployment())
        await until_waiting(world)
        command(world, push.Command.ROLL_BACK)
        await world.memory.until_completed()

    ended = world.runs[0].deployment
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.status_reason == "FIRST failed: broken; ann chose to roll back; rolled back"
    assert ended.stages[-1].status == pb.STAGE_SUCCESS
    assert outcomes(world) == {"r1": True}


async def test_a_person_cancels_it() -> None:
    world, _ = waiting_world(failures=1)

    async with world.running():
        world.controller.on_created(deployment())
        await until_waiting(world)
        world.push(cancel())
        await world.memory.until_completed()

    ended = world.runs[0].deployment
    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert "after FIRST had failed; rolled back" in ended.status_reason


async def test_when_nobody_decides_it_is_rolled_back() -> None:
    world, _ = waiting_world(failures=1, onFailureTimeout="10m")
    world.clock.now += 3600  # the failure is reported with an earlier time than this

    async with world.running():
        world.controller.on_created(deployment())
        await until_waiting(world)
        world.clock.now += 601
        world.state.merge(StateChange())  # anything that happens
        await world.memory.until_completed()

    ended = world.runs[0].deployment
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "nobody decided within 10m" in ended.status_reason
    assert ended.status_reason.endswith("rolled back")


async def test_a_restarted_piped_waits_until_the_same_time() -> None:
    world, flaky = waiting_world(failures=1)

    async with world.running():
        world.controller.on_created(deployment())
        left = await until_waiting(world)
        said = left.status_reason
        world.controller.stop()
        await world.controller.wait_settled()
    assert left.status == pb.DEPLOYMENT_RUNNING

    resumed, again = waiting_world(failures=0)
    resumed.clock.now = world.clock.now + 60
    resumed.stored["d1"] = left
    async with resumed.running():
        retry(resumed, 1, stage=left.stages[0].id)
        resumed.push(left)
        await resumed.memory.until_completed()

    assert flaky.attempts == [0]
    assert again.attempts == [1]
    assert resumed.runs[-1].deployment.status == pb.DEPLOYMENT_SUCCESS
    reasons = [each.status_reason for each in resumed.memory.of("ReportDeploymentStatusChanged")]
    assert all(each == said for each in reasons if WAITS_FOR_DECISION in each)


async def test_a_retry_whose_report_was_lost_is_not_begun_again() -> None:
    """piped died after the new attempt had begun: the command comes again with the next piped."""
    world, _ = waiting_world(failures=0)
    running = deployment(
        status=pb.DEPLOYMENT_RUNNING,
        stages=[
            pb.PipelineStage(
                id="s1",
                name="FIRST",
                status=pb.STAGE_RUNNING,
                retried_count=1,
                completed_at=int(world.clock.now),
                created_at=int(world.clock.now),
                updated_at=int(world.clock.now),
                metadata={"pipecd/plugin": "steps"},
            )
        ],
    )
    flaky = Flaky(0)
    only_plugin(world).behave["FIRST"] = flaky
    async with world.running():
        retry(world, 1, stage="s1")
        world.push(running)
        await world.memory.until_completed()

    assert flaky.attempts == [1]
    assert outcomes(world) == {"r1": True}


@pytest.mark.parametrize(
    ("spec", "first", "waits"),
    [
        ({}, {"name": "FIRST", "onFailure": "wait"}, True),
        ({"onFailure": "wait"}, {"name": "FIRST", "onFailure": "rollback"}, False),
        ({"onFailure": "rollback"}, {"name": "FIRST"}, False),
    ],
)
async def test_a_stage_says_otherwise_than_its_application(
    spec: dict[str, Any], first: dict[str, Any], waits: bool
) -> None:
    world = world_of([first, "SECOND"], plugin=FakePlugin("steps", *TWO), **spec)
    only_plugin(world).behave["FIRST"] = failing("broken")

    async with world.running():
        world.controller.on_created(deployment())
        if waits:
            await until_waiting(world)
            world.push(cancel())
        await world.memory.until_completed()

    assert world.runs[0].deployment.status == (
        pb.DEPLOYMENT_CANCELLED if waits else pb.DEPLOYMENT_FAILURE
    )
