# SPDX-License-Identifier: Apache-2.0
"""The script-run guide's seven stages, failed and cancelled at each of them in turn."""

from datetime import timedelta

import pytest

from pipecd_test_support.piped_parts import (
    Behaviour,
    FakePlugin,
    FakePlugins,
    FakeSources,
    Hold,
    StageEntry,
    World,
    application_file,
    cancel,
    deployment,
    done,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.plugin.deploymentapi import api_pb2 as api

SEVEN = [
    "DUMMY_CANARY_ROLLOUT",
    "WAIT",
    "SCRIPT_RUN",
    "DUMMY_PRIMARY_ROLLOUT",
    "SCRIPT_RUN",
    "DUMMY_CANARY_CLEAN",
    "SCRIPT_RUN",
]
SCRIPTS = [index for index, name in enumerate(SEVEN) if name == "SCRIPT_RUN"]


def guides_rollbacks(stopped_at: int) -> list[str]:
    """The platform first, then each script that had started, in pipeline order."""
    scripts = [f"SCRIPT_RUN_ROLLBACK {index}" for index in SCRIPTS if index <= stopped_at]
    return ["DUMMY_ROLLBACK 0", *scripts]


def seven_stages(*, auto_rollback: bool = True) -> World:
    plugins = FakePlugins(
        FakePlugin(
            "dummy",
            "DUMMY_CANARY_ROLLOUT",
            "DUMMY_PRIMARY_ROLLOUT",
            "DUMMY_CANARY_CLEAN",
            "DUMMY_ROLLBACK",
            rollback="DUMMY_ROLLBACK",
        ),
        FakePlugin("wait", "WAIT"),
        FakePlugin(
            "scriptrun", "SCRIPT_RUN", "SCRIPT_RUN_ROLLBACK", rollback_each="SCRIPT_RUN_ROLLBACK"
        ),
    )
    file = application_file(SEVEN, planner={"autoRollback": auto_rollback})
    return World(plugins, FakeSources({"c1": file}))


def behave(world: World, index: int, behaviour: Behaviour) -> None:
    for plugin in world.plugins.plugins.values():
        plugin.behave[f"{SEVEN[index]} {index}"] = behaviour


def forward(upto: int) -> list[str]:
    return [f"{name} {index}" for index, name in enumerate(SEVEN[: upto + 1])]


async def fails(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
    return done(pb.STAGE_FAILURE, "broken")


@pytest.mark.parametrize("index", range(7), ids=lambda index: f"{index + 1}-{SEVEN[index]}")
async def test_a_failing_stage_rolls_back_what_the_guide_says(index: int) -> None:
    world = seven_stages()
    behave(world, index, fails)

    async with world.running():
        world.controller.on_created(deployment())
        ended = await world.memory.until_completed()

    assert world.plugins.record == forward(index) + guides_rollbacks(index)
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.status_reason == f"{SEVEN[index]} failed: broken; rolled back"


@pytest.mark.parametrize("index", range(7), ids=lambda index: f"{index + 1}-{SEVEN[index]}")
async def test_a_cancelled_stage_rolls_back_what_the_guide_says(index: int) -> None:
    world = seven_stages()
    held = Hold()
    behave(world, index, held)

    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.push(cancel(by="alice"))
        ended = await world.memory.until_completed()

    assert held.cancelled
    assert world.plugins.record == forward(index) + guides_rollbacks(index)
    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert ended.status_reason == f"cancelled by alice during {SEVEN[index]}; rolled back"


@pytest.mark.parametrize("index", range(7), ids=lambda index: f"{index + 1}-{SEVEN[index]}")
async def test_without_auto_rollback_nothing_is_rolled_back(index: int) -> None:
    """The script plugin answers its rollback stages unasked; they are not planned all the same."""
    world = seven_stages(auto_rollback=False)
    behave(world, index, fails)

    async with world.running():
        world.controller.on_created(deployment())
        ended = await world.memory.until_completed()

    assert world.plugins.record == forward(index)
    assert not any(stage.rollback for stage in world.runs[0].deployment.stages)
    assert ended.status_reason == f"{SEVEN[index]} failed: broken; not rolled back"


async def test_the_deployment_is_shown_as_rolling_back_meanwhile() -> None:
    world = seven_stages()
    behave(world, 3, fails)

    async with world.running():
        world.controller.on_created(deployment())
        await world.memory.until_completed()

    told = world.memory.of("ReportDeploymentStatusChanged")
    assert [(each.status, each.status_reason) for each in told] == [
        (pb.DEPLOYMENT_RUNNING, "the stages are running"),
        (pb.DEPLOYMENT_ROLLING_BACK, "DUMMY_PRIMARY_ROLLOUT failed: broken"),
    ]


async def test_a_rollback_stage_that_fails_does_not_stop_the_next() -> None:
    """Its result reaches the deployment's reason instead."""
    world = seven_stages()
    behave(world, 4, fails)
    world.plugins.plugins["dummy"].behave["DUMMY_ROLLBACK"] = fails

    async with world.running():
        world.controller.on_created(deployment())
        ended = await world.memory.until_completed()

    assert world.plugins.record == forward(4) + guides_rollbacks(4)
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.status_reason == (
        "SCRIPT_RUN failed: broken; the rollback failed: DUMMY_ROLLBACK: broken"
    )


async def test_a_rollback_is_not_cut_off_by_the_time_limit_of_its_deployment() -> None:
    """It has its own time, however long the way to it took."""
    world = seven_stages()

    async def outlives_the_deployment(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        world.clock.now += timedelta(days=7).total_seconds()
        return done(pb.STAGE_FAILURE, "broken")

    behave(world, 1, outlives_the_deployment)

    async with world.running():
        world.controller.on_created(deployment())
        ended = await world.memory.until_completed()

    assert world.plugins.record == forward(1) + guides_rollbacks(1)
    assert ended.status_reason.endswith("; rolled back")
    rollback = world.stage_reports()[-1]
    assert rollback[1] == "STAGE_SUCCESS"


async def test_a_rollback_stage_requires_the_stage_that_stopped() -> None:
    world = seven_stages()
    behave(world, 3, fails)

    async with world.running():
        world.controller.on_created(deployment())
        await world.memory.until_completed()

    stages = world.runs[0].deployment.stages
    stopped = next(stage for stage in stages if stage.index == 3 and not stage.rollback)
    ran = [stage for stage in stages if stage.rollback and stage.status == pb.STAGE_SUCCESS]
    assert [list(stage.requires) for stage in ran] == [[stopped.id]] * 2


async def test_a_cancel_waits_for_the_end_of_the_stage_before_it_rolls_back() -> None:
    """Else the rollback would work against a script that is still at it (W13)."""
    world = seven_stages()
    held = Hold()
    behave(world, 2, held)
    order: list[str] = []

    async def slow_end(run: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        try:
            return await held(run)
        finally:
            order.append("handler ended")

    async def rolls_back(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        order.append("rollback began")
        return done()

    behave(world, 2, slow_end)
    world.plugins.plugins["dummy"].behave["DUMMY_ROLLBACK"] = rolls_back

    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.push(cancel())
        await world.memory.until_completed()

    assert order == ["handler ended", "rollback began"]


async def test_a_cancel_during_the_rollback_is_recorded_and_does_not_stop_it() -> None:
    world = seven_stages()
    held = Hold()
    behave(world, 3, fails)
    world.plugins.plugins["dummy"].behave["DUMMY_ROLLBACK"] = held

    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.push(cancel(by="bob"))
        held.let_go.set()
        ended = await world.memory.until_completed()
        await world.memory.until(lambda: bool(world.memory.of("ReportCommandHandled")))

    assert not held.cancelled
    assert world.plugins.record == forward(3) + guides_rollbacks(3)
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.status_reason.endswith("; rolled back; the cancel of bob came too late")
    [handled] = world.memory.of("ReportCommandHandled")
    assert handled.metadata["reason"] == "the deployment ended otherwise"


async def test_a_resumed_rollback_does_not_repeat_what_is_done() -> None:
    world = seven_stages()
    behave(world, 4, fails)
    held = Hold()
    world.plugins.plugins["scriptrun"].behave["SCRIPT_RUN_ROLLBACK 2"] = held
    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        half_way = pb.Deployment()
        half_way.CopyFrom(world.runs[0].deployment)

    later = seven_stages()
    async with later.running():
        later.push(half_way)
        ended = await later.memory.until_completed()

    assert later.plugins.record == ["SCRIPT_RUN_ROLLBACK 2", "SCRIPT_RUN_ROLLBACK 4"]
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.status_reason == "SCRIPT_RUN failed: broken; rolled back"


async def test_a_rollback_stage_has_a_time_of_its_own_and_the_next_one_runs() -> None:
    """Upstream's has none at all (W12)."""
    stages: list[StageEntry] = [{"name": "SCRIPT_RUN", "timeout": "50ms"}, "SCRIPT_RUN"]
    plugin = FakePlugin(
        "scriptrun", "SCRIPT_RUN", "SCRIPT_RUN_ROLLBACK", rollback_each="SCRIPT_RUN_ROLLBACK"
    )
    world = World(FakePlugins(plugin), FakeSources({"c1": application_file(stages)}))
    held = Hold()
    plugin.behave |= {"SCRIPT_RUN 1": fails, "SCRIPT_RUN_ROLLBACK 0": held}
    async with world.running():
        world.controller.on_created(deployment())
        ended = await world.memory.until_completed()

    assert held.cancelled
    assert world.plugins.record[2:] == ["SCRIPT_RUN_ROLLBACK 0", "SCRIPT_RUN_ROLLBACK 1"]
    assert ended.status == pb.DEPLOYMENT_FAILURE
    late = "the rollback failed: SCRIPT_RUN_ROLLBACK took longer than 50ms"
    assert ended.status_reason.endswith(late)


async def test_a_cancel_that_forces_a_rollback_builds_it_at_that_moment() -> None:
    world = seven_stages(auto_rollback=False)
    held = Hold()
    behave(world, 4, held)

    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.stored["d1"] = pb.Deployment()
        world.stored["d1"].CopyFrom(world.runs[0].deployment)
        world.stored["d1"].stages[1].metadata["startTime"] = "12"
        world.push(cancel(force_rollback=True))
        ended = await world.memory.until_completed()

    assert world.plugins.record == forward(4) + guides_rollbacks(4)
    assert ended.status_reason == "cancelled by alice during SCRIPT_RUN; rolled back"
    plan = world.memory.of("ReportDeploymentPlanned")[-1]
    assert plan.stages[1].metadata["startTime"] == "12", "what a plugin kept must survive"
    assert [stage.status for stage in plan.stages[:4]] == [pb.STAGE_SUCCESS] * 4


async def test_a_cancel_that_forbids_a_rollback_has_none() -> None:
    world = seven_stages()
    held = Hold()
    behave(world, 4, held)

    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.push(cancel(force_no_rollback=True))
        ended = await world.memory.until_completed()

    assert world.plugins.record == forward(4)
    assert ended.status_reason == (
        "cancelled by alice during SCRIPT_RUN; not rolled back, as asked"
    )


@pytest.mark.parametrize("marked", [False, True], ids=["v0", "v1"])
async def test_the_one_rollback_of_an_older_agent_is_that_of_the_platform(marked: bool) -> None:
    """It called the rollback of each platform ROLLBACK; no plugin offers a stage of that name."""
    world = seven_stages()
    now = int(world.clock())
    stored = deployment(
        status=pb.DEPLOYMENT_RUNNING,
        stages=[
            *(
                pb.PipelineStage(
                    id=f"s{index}",
                    name=name,
                    index=index,
                    created_at=now,
                    status=pb.STAGE_SUCCESS if index == 0 else pb.STAGE_NOT_STARTED_YET,
                )
                for index, name in enumerate(SEVEN)
            ),
            pb.PipelineStage(id="r", name="ROLLBACK", index=9, rollback=marked, created_at=now),
        ],
    )
    behave(world, 1, fails)

    async with world.running():
        world.controller.on_created(stored)
        ended = await world.memory.until_completed()

    assert world.plugins.record == ["WAIT 1", "DUMMY_ROLLBACK 0"]
    assert world.plugins.plugins["dummy"].executed[0].stage.id == "r"
    assert ended.status_reason == "WAIT failed: broken; rolled back"
    statuses = ended.stage_statuses
    assert statuses["r"] == pb.STAGE_SUCCESS
