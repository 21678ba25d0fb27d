# SPDX-License-Identifier: Apache-2.0
"""What keeps a stage from running, or ends it: timeouts, and the rules of `skipOn`."""

import asyncio

import pytest

from pipecd_model.errors import SourceError
from pipecd_test_support.piped_parts import (
    FakePlugin,
    Hold,
    application_file,
    deployment,
    trigger,
)
from pipecd_test_support.schedule_parts import (
    TWO,
    begun_deployment,
    failing,
    only_plugin,
    run,
    world_of,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.common_pb2 import QUICK_SYNC

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
    begun = begun_deployment(world, started=world.clock() - 3601)
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
    begun = begun_deployment(world, started=world.clock() - 10, planned=world.clock() - 3601)

    async with world.running():
        world.push(begun)
        ended = await world.memory.until_completed()

    assert "the deployment took longer than 1h0m0s" in ended.status_reason


@pytest.mark.parametrize("seconds", [3600, 3601])
async def test_no_stage_begins_when_the_time_of_its_deployment_is_over(seconds: int) -> None:
    world = world_of(TWO, timeout="1h")
    planned = begun_deployment(world, started=world.clock() - seconds)
    planned.stages[0].status = pb.STAGE_NOT_STARTED_YET

    async with world.running():
        world.push(planned)
        ended = await world.memory.until_completed()

    assert ended.status_reason == "the deployment took longer than 1h0m0s"
    assert world.stage_reports() == []


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
    world.sources.changed = ["all", "of", "it"]

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
    plugin.behave["SECOND"] = failing("broken")
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
