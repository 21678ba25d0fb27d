# SPDX-License-Identifier: Apache-2.0
"""One deployment from its creation to its end: order, files, options, reasons, faults."""

import json

import pytest

from pipecd_model.errors import StateError, UnavailableError
from pipecd_piped.plugins.errors import PluginError
from pipecd_test_support.piped_parts import (
    FakePlugin,
    Hold,
    deployment,
    done,
    trigger,
)
from pipecd_test_support.schedule_parts import TWO, failing, only_plugin, run, world_of
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.command_pb2 import COMMAND_SUCCEEDED, Command
from pipecd_wire.model.common_pb2 import QUICK_SYNC
from pipecd_wire.plugin.deploymentapi import api_pb2 as api


async def test_a_created_deployment_is_planned_and_run_to_its_end() -> None:
    world = world_of(TWO)

    ended = await run(world)

    assert [method for method, _ in world.memory.reports] == [
        "ReportApplicationDeployingStatus",
        "ReportDeploymentPlanned",
        "ReportDeploymentStatusChanged",
        "ReportStageStatusChanged",
        "ReportStageStatusChanged",
        "ReportStageStatusChanged",
        "ReportStageStatusChanged",
        "ReportApplicationMostRecentDeployment",
        "ReportDeploymentCompleted",
        "ReportApplicationDeployingStatus",
    ]
    assert [status for _, status, _ in world.stage_reports()] == [
        "STAGE_RUNNING",
        "STAGE_SUCCESS",
    ] * 2
    assert ended.status == pb.DEPLOYMENT_SUCCESS
    assert [each.deploying for each in world.memory.of("ReportApplicationDeployingStatus")] == [
        True,
        False,
    ]


async def test_every_report_of_a_stage_carries_a_time() -> None:
    """The wire refuses one without, also for a stage that has only begun."""
    world = world_of(TWO)

    await run(world)

    assert all(r.completed_at > 0 for r in world.memory.of("ReportStageStatusChanged"))


async def test_the_end_tells_the_status_of_every_stage() -> None:
    world = world_of(TWO)
    only_plugin(world).behave["FIRST"] = failing("no luck")

    ended = await run(world)

    statuses = world.memory.completed().stage_statuses
    assert [statuses[stage.id] for stage in ended.stages] == [
        pb.STAGE_FAILURE,
        pb.STAGE_NOT_STARTED_YET,
    ]
    assert world.memory.completed().completed_at > 0


async def test_a_success_is_what_the_next_deployment_compares_with() -> None:
    world = world_of(TWO)
    async with world.running():
        world.controller.on_created(deployment("d1", trigger=trigger("c1")))
        await world.memory.until_completed("d1")
        world.controller.on_created(deployment("d2", trigger=trigger("c2")))
        await world.memory.until_completed("d2")

    [first, _, second, *_] = only_plugin(world).executed
    assert not first.HasField("running_deployment_source")
    assert second.running_deployment_source.commit_hash == "c1"
    assert second.target_deployment_source.commit_hash == "c2"
    assert world.memory.of("ReportDeploymentPlanned")[1].running_commit_hash == "c1"


async def test_a_failed_deployment_is_not_what_runs() -> None:
    world = world_of(TWO)
    only_plugin(world).behave["FIRST"] = failing("no luck")

    await run(world)

    assert world.successes.known == {}
    assert world.memory.of("ReportApplicationMostRecentDeployment") == []


async def test_a_running_commit_that_git_has_lost_is_left_out() -> None:
    world = world_of(TWO)
    world.success("lost")

    ended = await run(world)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert not only_plugin(world).executed[0].HasField("running_deployment_source")
    assert ended.running_commit_hash == "lost"


async def test_each_stage_gets_a_tree_of_its_own_and_gives_it_back() -> None:
    world = world_of(TWO)
    world.success("c0")

    await run(world)

    folders = [
        source.application_directory
        for each in only_plugin(world).executed
        for source in (each.target_deployment_source, each.running_deployment_source)
    ]
    assert len(set(folders)) == 4
    assert world.sources.open_now == 0


async def test_a_stage_that_needs_no_files_gets_none() -> None:
    world = world_of(["WAIT"])
    only_plugin(world).stages_without_files = frozenset({"WAIT"})
    world.success("c0")

    await run(world)

    [executed] = only_plugin(world).executed
    assert executed.target_deployment_source.application_directory == ""
    assert executed.target_deployment_source.commit_hash == "c1"
    assert json.loads(executed.target_deployment_source.application_config)["kind"] == "Application"


async def test_a_stage_gets_its_options_as_json() -> None:
    world = world_of([{"name": "FIRST", "with": {"a": [1, "ü"]}}, "SECOND"])

    await run(world)

    assert [json.loads(each.stage_config) for each in only_plugin(world).executed] == [
        {"a": [1, "ü"]},
        {},
    ]


async def test_a_quick_sync_stage_gets_no_options_at_all() -> None:
    """That is how a plugin knows to use its quick-sync section."""
    plugin = FakePlugin("steps", "FIRST", "SYNC", quick=["SYNC"])
    world = world_of(["FIRST"], plugin=plugin)

    ended = await run(world, trigger=trigger(sync_strategy=QUICK_SYNC))

    assert ended.status == pb.DEPLOYMENT_SUCCESS
    assert [(each.stage.name, each.stage_config) for each in plugin.executed] == [("SYNC", b"")]


async def test_what_the_plugin_says_reaches_the_stages_reason() -> None:
    world = world_of(TWO)
    only_plugin(world).behave["FIRST"] = failing("exit code 3")

    ended = await run(world)

    assert ended.stages[0].status_reason == "exit code 3"
    assert world.stage_reports()[-1] == ("FIRST 0", "STAGE_FAILURE", "exit code 3")
    assert ended.status_reason == "FIRST failed: exit code 3"


async def test_a_failure_without_a_word_still_has_a_reason() -> None:
    world = world_of(TWO)
    only_plugin(world).behave["FIRST"] = failing("")

    ended = await run(world)

    assert ended.stages[0].status_reason == "FIRST failed, see its log"
    assert ended.status_reason == "FIRST failed, see its log", "said once"


async def test_a_stage_that_exits_ends_the_pipeline_with_success() -> None:
    world = world_of(TWO)

    async def exits(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        return done(pb.STAGE_EXITED)

    only_plugin(world).behave["FIRST"] = exits

    ended = await run(world)

    assert ended.status == pb.DEPLOYMENT_SUCCESS
    assert world.plugins.record == ["FIRST 0"]


async def test_a_stage_that_skips_itself_lets_the_next_one_run() -> None:
    world = world_of(TWO)

    async def skips(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        return done(pb.STAGE_SKIPPED)

    only_plugin(world).behave["FIRST"] = skips

    ended = await run(world)

    assert ended.status == pb.DEPLOYMENT_SUCCESS
    assert world.plugins.record == ["FIRST 0", "SECOND 1"]


@pytest.mark.parametrize("status", [pb.STAGE_NOT_STARTED_YET, pb.STAGE_RUNNING, 99])
async def test_an_answer_that_is_no_end_is_a_failure(status: int) -> None:
    """Upstream counts it as a success in memory (W15)."""
    world = world_of(TWO)

    async def stays(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        return done(status)

    only_plugin(world).behave["FIRST"] = stays

    ended = await run(world)

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "which is no end of a stage" in ended.stages[0].status_reason
    assert world.successes.known == {}


async def test_an_error_of_the_plugin_fails_the_stage_with_a_sentence() -> None:
    world = world_of(TWO)

    async def broken(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        raise PluginError("the plugin 'steps' answered INTERNAL: out of paper", hint="feed it")

    only_plugin(world).behave["FIRST"] = broken

    ended = await run(world)

    assert ended.stages[0].status_reason == (
        "the plugin 'steps' answered INTERNAL: out of paper (feed it)"
    )


async def test_a_bug_in_a_stage_fails_the_stage_and_nothing_else() -> None:
    world = world_of(TWO)

    async def bug(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        raise ZeroDivisionError

    only_plugin(world).behave["FIRST"] = bug

    async with world.running():
        world.controller.on_created(deployment("d1"))
        await world.memory.until_completed("d1")
        del only_plugin(world).behave["FIRST"]
        world.controller.on_created(deployment("d2"))
        await world.memory.until_completed("d2")

    assert "internal error" in world.runs[0].deployment.stages[0].status_reason
    assert world.runs[1].deployment.status == pb.DEPLOYMENT_SUCCESS


# Planning faults


async def test_what_goes_wrong_while_planning_ends_the_deployment_with_a_sentence() -> None:
    """Upstream leaves it pending and says nothing (W6, W11)."""
    world = world_of(TWO)

    ended = await run(world, trigger=pb.DeploymentTrigger(commit=pb.Commit(hash="lost")))

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.status_reason == "the commit 'lost' is not in the repository 'repo'"
    assert [each.deploying for each in world.memory.of("ReportApplicationDeployingStatus")] == [
        True,
        False,
    ]


async def test_a_control_plane_that_is_away_while_planning_is_waited_for() -> None:
    world = world_of(TWO)
    world.successes.faults = [UnavailableError("away"), UnavailableError("still away")]

    ended = await run(world)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert world.successes.faults == []


async def test_a_plan_that_the_control_plane_refuses_ends_the_deployment() -> None:
    world = world_of(TWO)
    world.memory.refuse["ReportDeploymentPlanned"] = StateError("the deployment was deleted")

    ended = await run(world)

    assert ended.status_reason == "the deployment was deleted"
    assert world.plugins.record == []


# Commands of stages


async def test_the_commands_of_a_stage_are_handled_when_it_ends() -> None:
    world = world_of(TWO)
    held = Hold()
    only_plugin(world).behave["FIRST"] = held

    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        stage_id = world.runs[0].deployment.stages[0].id
        approval = Command(
            id="approve",
            type=Command.APPROVE_STAGE,
            deployment_id="d1",
            stage_id=stage_id,
            commander="alice",
        )
        world.push(approval)
        assert list(world.state.stage_commands("d1", stage_id)) == [approval]
        held.let_go.set()
        await world.memory.until_completed()

    [handled] = world.memory.of("ReportCommandHandled")
    assert (handled.command_id, handled.status) == ("approve", COMMAND_SUCCEEDED)
    assert world.state.stage_commands("d1", stage_id) == []
