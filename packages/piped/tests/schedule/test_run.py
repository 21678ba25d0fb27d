# SPDX-License-Identifier: Apache-2.0
"""One deployment from its creation to its end: order, reasons, limits, skips, stops, resumes."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from pipecd_model.errors import SourceError, StateError, UnavailableError
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
    trigger,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.command_pb2 import COMMAND_FAILED, COMMAND_SUCCEEDED, Command
from pipecd_wire.model.common_pb2 import PIPELINE, QUICK_SYNC
from pipecd_wire.plugin.deploymentapi import api_pb2 as api
from piped.plugins.errors import PluginError, PluginLostError

TWO = ["FIRST", "SECOND"]


def world_of(
    stages: Sequence[StageEntry], *, plugin: FakePlugin | None = None, **spec: object
) -> World:
    names = [stage if isinstance(stage, str) else stage["name"] for stage in stages]
    plugin = plugin or FakePlugin("steps", *names)
    files = {commit: application_file(stages, **spec) for commit in ("c0", "c1", "c2")}
    return World(FakePlugins(plugin), FakeSources(files))


def only_plugin(world: World) -> FakePlugin:
    [plugin] = world.plugins.plugins.values()
    return plugin


async def run(world: World, **more: Any) -> pb.Deployment:
    """Run one deployment to its end, and answer it."""
    async with world.running():
        world.controller.on_created(deployment(**more))
        await world.memory.until_completed()
    return world.runs[0].deployment


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
    only_plugin(world).behave["FIRST"] = _failing("no luck")

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
    only_plugin(world).behave["FIRST"] = _failing("no luck")

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


def _failing(message: str = "") -> Behaviour:
    async def fails(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        return done(pb.STAGE_FAILURE, message)

    return fails


async def test_what_the_plugin_says_reaches_the_stages_reason() -> None:
    world = world_of(TWO)
    only_plugin(world).behave["FIRST"] = _failing("exit code 3")

    ended = await run(world)

    assert ended.stages[0].status_reason == "exit code 3"
    assert world.stage_reports()[-1] == ("FIRST 0", "STAGE_FAILURE", "exit code 3")
    assert ended.status_reason == "FIRST failed: exit code 3"


async def test_a_failure_without_a_word_still_has_a_reason() -> None:
    world = world_of(TWO)
    only_plugin(world).behave["FIRST"] = _failing("")

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


# Limits


async def test_a_stage_that_takes_too_long_fails_and_says_so() -> None:
    """Not cancelled by nobody, as upstream has it (W7)."""
    world = world_of([{"name": "FIRST", "timeout": "50ms"}, "SECOND"])
    held = Hold()
    only_plugin(world).behave["FIRST"] = held

    ended = await run(world)

    assert held.cancelled
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.stages[0].status == pb.STAGE_FAILURE
    assert ended.stages[0].status_reason == "FIRST took longer than 50ms"


async def test_a_deployment_that_takes_too_long_fails_and_says_so() -> None:
    world = world_of(TWO, timeout="50ms")
    only_plugin(world).behave["FIRST"] = Hold()

    ended = await run(world)

    assert ended.stages[0].status_reason == "the deployment took longer than 50ms"
    assert ended.status == pb.DEPLOYMENT_FAILURE


@pytest.mark.parametrize("kept", ["updated_at", "completed_at"])
async def test_the_time_of_a_resumed_stage_counts_from_its_real_start(kept: str) -> None:
    """Our control plane keeps it in the one field, upstream's in the other."""
    world = world_of([{"name": "FIRST", "timeout": "1h"}])
    begun = _begun(world, started=world.clock() - 3601)
    if kept == "updated_at":
        begun.stages[0].ClearField("completed_at")
    else:
        begun.stages[0].updated_at = int(world.clock())

    async with world.running():
        world.push(begun)
        await world.memory.until_completed()

    assert world.plugins.record == [], "its hour was over before the restart"
    assert world.runs[0].deployment.stages[0].status_reason == "FIRST took longer than 1h0m0s"


async def test_the_time_of_a_resumed_deployment_counts_from_its_plan() -> None:
    world = world_of(TWO, timeout="1h")
    begun = _begun(world, started=world.clock() - 10, planned=world.clock() - 3601)

    async with world.running():
        world.push(begun)
        ended = await world.memory.until_completed()

    assert "the deployment took longer than 1h0m0s" in ended.status_reason


def _begun(world: World, *, started: float, planned: float | None = None) -> pb.Deployment:
    """A deployment whose first stage an earlier piped has begun."""
    return deployment(
        status=pb.DEPLOYMENT_RUNNING,
        trigger=pb.DeploymentTrigger(sync_strategy=PIPELINE),
        stages=[
            pb.PipelineStage(
                id="s1",
                name="FIRST",
                status=pb.STAGE_RUNNING,
                completed_at=int(started),
                created_at=int(planned or started),
                updated_at=int(started),
                metadata={"pipecd/plugin": "steps"},
            )
        ],
    )


# skipOn


async def test_a_stage_is_skipped_when_all_changed_files_match() -> None:
    world = world_of([{"name": "FIRST", "skipOn": {"paths": ["docs/**"]}}, "SECOND"])
    world.success("c0")
    world.sources.changed = ["docs/a.md", "docs/b.md"]

    ended = await run(world)

    assert world.plugins.record == ["SECOND 1"]
    assert ended.stages[0].status == pb.STAGE_SKIPPED
    assert ended.stages[0].status_reason == "skipped: all changed files match skipOn.paths"
    assert ended.status == pb.DEPLOYMENT_SUCCESS


async def test_one_other_file_is_enough_to_run_the_stage() -> None:
    world = world_of([{"name": "FIRST", "skipOn": {"paths": ["docs/**"]}}])
    world.success("c0")
    world.sources.changed = ["docs/a.md", "main.py"]

    await run(world)

    assert world.plugins.record == ["FIRST 0"]


async def test_a_stage_is_skipped_by_the_commit_message() -> None:
    world = world_of([{"name": "FIRST", "skipOn": {"commitMessagePrefixes": ["fix:", "docs:"]}}])

    ended = await run(world, trigger=pb.DeploymentTrigger(commit=pb.Commit(message="docs: more")))

    assert ended.stages[0].status_reason == "skipped: the commit message starts with 'docs:'"


async def test_skip_rules_work_on_a_first_deployment() -> None:
    """Upstream's whole agent dies of it, again after each restart (W8)."""
    world = world_of(
        [{"name": "FIRST", "skipOn": {"paths": ["**"], "commitMessagePrefixes": ["x:"]}}]
    )

    ended = await run(world)

    assert world.plugins.record == ["FIRST 0"]
    assert ended.status == pb.DEPLOYMENT_SUCCESS


async def test_a_quick_sync_is_not_skipped_by_the_rule_of_a_pipeline_stage() -> None:
    """Both have the index 0 (W9)."""
    plugin = FakePlugin("steps", "FIRST", "SYNC", quick=["SYNC"])
    rule = {"paths": ["**"]}
    world = world_of([{"name": "FIRST", "skipOn": rule, "timeout": "1ms"}], plugin=plugin)
    world.success("c0")
    world.sources.changed = ["a"]
    held = Hold()
    plugin.behave["SYNC"] = held

    async with world.running():
        world.controller.on_created(deployment(trigger=trigger(sync_strategy=QUICK_SYNC)))
        await held.began.wait()
        await asyncio.sleep(0.05)  # its own limit is hours, not the millisecond of another stage
        held.let_go.set()
        ended = await world.memory.until_completed()

    assert ended.status == pb.DEPLOYMENT_SUCCESS


async def test_a_platforms_rollback_is_not_skipped_or_timed_by_the_stage_whose_place_it_has() -> (
    None
):
    """W9 again: the rollback borrows the lowest index."""
    plugin = FakePlugin("steps", "FIRST", "SECOND", "UNDO", rollback="UNDO")
    rule = {"commitMessagePrefixes": ["change"]}
    world = world_of(["SECOND", {"name": "FIRST", "skipOn": rule}], plugin=plugin)
    first = {"name": "FIRST", "skipOn": rule, "timeout": "1ms"}
    world.sources.files["c1"] = application_file([first, "SECOND"])
    plugin.behave["SECOND"] = _failing("broken")
    undo = Hold()
    plugin.behave["UNDO"] = undo

    async with world.running():
        world.controller.on_created(deployment())
        await undo.began.wait()
        await asyncio.sleep(0.05)
        undo.let_go.set()
        ended = await world.memory.until_completed()

    assert world.plugins.record == ["SECOND 1", "UNDO 0"]
    assert ended.status_reason == "SECOND failed: broken; rolled back"


async def test_a_skip_rule_that_cannot_be_decided_fails_the_stage() -> None:
    world = world_of([{"name": "FIRST", "skipOn": {"paths": ["docs/**"]}}])
    world.success("c0")

    async def unknown(*_: object) -> list[str]:
        raise SourceError("the commit 'c0' is not in the repository 'repo'")

    world.sources.list_changed_paths = unknown  # type: ignore[assignment, method-assign]

    ended = await run(world)

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.stages[0].status_reason == (
        "skipOn cannot be decided: the commit 'c0' is not in the repository 'repo'"
    )


# Cancel


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
    begun = _begun(world, started=world.clock() - 5)

    async with world.running():
        world.push(begun, cancel(by="alice"))
        ended = await world.memory.until_completed()

    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert world.runs[0].deployment.stages[0].status == pb.STAGE_CANCELLED


# piped stops, and starts again


async def test_a_stopping_piped_begins_no_further_stage_and_changes_no_status() -> None:
    """The plugin finished its script; the deployment is left to the next piped (W7)."""
    world = world_of(TWO)
    held = Hold()
    only_plugin(world).behave["FIRST"] = held

    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.controller.stop()
        held.let_go.set()
        await world.controller.wait_settled()

    left = world.runs[0].deployment
    assert [stage.status for stage in left.stages] == [pb.STAGE_SUCCESS, pb.STAGE_NOT_STARTED_YET]
    assert left.status == pb.DEPLOYMENT_RUNNING
    assert world.memory.of("ReportDeploymentCompleted") == []


async def test_a_stage_whose_plugin_was_stopped_stays_as_it_is() -> None:
    world = world_of(TWO)
    held = Hold()

    async def stopped(run: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        await held(run)
        raise PluginLostError("the plugin 'steps' is stopping")

    only_plugin(world).behave["FIRST"] = stopped

    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        world.controller.stop()
        held.let_go.set()
        await world.controller.wait_settled()

    assert world.runs[0].deployment.stages[0].status == pb.STAGE_RUNNING
    assert [status for _, status, _ in world.stage_reports()] == ["STAGE_RUNNING"]


async def test_a_stopping_piped_leaves_a_deployment_that_it_plans() -> None:
    world = world_of(TWO)
    planning = asyncio.Event()

    async def slow(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        planning.set()
        await asyncio.Event().wait()
        raise AssertionError

    only_plugin(world).build_quick_sync_stages = slow  # type: ignore[method-assign, assignment]

    async with world.running():
        world.controller.on_created(deployment())
        await planning.wait()
        world.controller.stop()
        await world.controller.wait_settled()

    assert world.memory.of("ReportDeploymentCompleted") == []
    assert world.runs[0].deployment.status == pb.DEPLOYMENT_PENDING


async def test_a_stopping_piped_takes_no_new_deployment() -> None:
    world = world_of(TWO)

    async with world.running():
        world.controller.stop()
        world.controller.on_created(deployment())
        await world.controller.wait_settled()

    assert world.runs == []


async def test_a_resumed_deployment_goes_on_where_it_was() -> None:
    world = world_of(["FIRST", "SECOND", "THIRD"])
    held = Hold()
    only_plugin(world).behave["SECOND"] = held
    async with world.running():
        world.controller.on_created(deployment())
        await held.began.wait()
        left = pb.Deployment()
        left.CopyFrom(world.runs[0].deployment)

    later = world_of(["FIRST", "SECOND", "THIRD"])
    async with later.running():
        later.push(left)
        ended = await later.memory.until_completed()

    assert later.plugins.record == ["SECOND 1", "THIRD 2"]
    assert ended.status == pb.DEPLOYMENT_SUCCESS
    assert [r.status for r in later.memory.of("ReportDeploymentStatusChanged")] == []


async def test_a_planned_deployment_goes_on_without_a_new_plan() -> None:
    world = world_of(TWO)
    planned = _begun(world, started=world.clock())
    planned.status = pb.DEPLOYMENT_PLANNED
    planned.stages[0].status = pb.STAGE_NOT_STARTED_YET

    async with world.running():
        world.push(planned)
        await world.memory.until_completed()

    assert world.plugins.record == ["FIRST 0"]
    assert world.memory.of("ReportDeploymentPlanned") == []


async def test_a_lost_plugin_continues_the_stage_when_it_is_back() -> None:
    world = world_of(TWO)
    plugin = only_plugin(world)

    async def dies_once(run: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        if len(plugin.executed) == 1:
            raise PluginLostError("the plugin 'steps' exited with 137")
        return done()

    plugin.behave["FIRST"] = dies_once

    ended = await run(world)

    assert world.plugins.record == ["FIRST 0", "FIRST 0", "SECOND 1"]
    assert ended.status == pb.DEPLOYMENT_SUCCESS


async def test_a_plugin_that_is_lost_again_and_again_fails_the_stage() -> None:
    world = world_of(TWO)

    async def dies(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        raise PluginLostError("the plugin 'steps' exited with 137")

    only_plugin(world).behave["FIRST"] = dies

    ended = await run(world)

    assert ended.stages[0].status_reason.startswith("the plugin 'steps' was lost 5 times")
    assert ended.stages[0].status_reason.endswith("exited with 137")


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
