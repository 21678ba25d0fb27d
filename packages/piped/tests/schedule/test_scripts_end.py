# SPDX-License-Identifier: Apache-2.0
"""Nothing that follows a stage begins while a script of it lives, whoever had started the script.

Each deployment here was begun by an earlier piped: its first stage is on record as running, and so
is its script. What the plugin is told, and what is ended, comes in one order.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from pipecd_model.errors import SourceError
from pipecd_piped.facts import StageChanged
from pipecd_piped.plugins.errors import PluginLostError, PluginStoppingError
from pipecd_piped.plugins.state import Phase, PluginState
from pipecd_test_support.piped_parts import (
    LIMIT,
    FakePlugin,
    FakePlugins,
    FakeSources,
    Hold,
    StageEntry,
    World,
    application_file,
    cancel,
    deployment,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.common_pb2 import PIPELINE
from pipecd_wire.pipecd.push import push_pb2 as push


class Case:
    """A deployment whose script lives while nobody follows it."""

    def __init__(self, *, rollback: bool = True, status: int = pb.DEPLOYMENT_RUNNING) -> None:
        self.plugin = FakePlugin("steps", "FIRST", "UNDO", "SECOND")
        stages: list[StageEntry] = [{"name": "FIRST", "timeout": "1h"}, "SECOND"]
        self.world = World(FakePlugins(self.plugin), FakeSources({"c1": application_file(stages)}))
        self.record = self.world.plugins.record
        self.world.scripts.alive = {"s1"}
        began = int(self.world.clock() - 5)
        made = partial(
            pb.PipelineStage,
            created_at=began,
            updated_at=began,
            metadata={"pipecd/plugin": "steps"},
        )
        self.begun = deployment(
            status=status,
            trigger=pb.DeploymentTrigger(sync_strategy=PIPELINE),
            stages=[
                made(id="s1", name="FIRST", status=pb.STAGE_RUNNING),
                made(id="s2", name="SECOND", index=1),
            ],
        )
        if rollback:
            self.begun.stages.append(made(id="r1", name="UNDO", rollback=True))

    async def run(self, *more: Any) -> Any:
        async with self.world.running():
            self.world.push(self.begun, *more)
            return await self.world.memory.until_completed()


async def test_a_cancel_from_before_the_restart_ends_the_script_before_its_rollback() -> None:
    case = Case()

    ended = await case.run(cancel(by="alice"))

    # The plugin is let to end it, for its log; then it is seen to that it has ended.
    assert case.record == ["FIRST 0", "ended s1", "UNDO 0"]
    assert ended.status_reason == "cancelled by alice during FIRST; rolled back"
    [told] = [each for each in case.plugin.executed if each.stage.id == "s1"]
    assert not told.target_deployment_source.application_directory, "no files for that"


async def test_the_end_of_a_stage_is_told_when_nothing_of_it_lives() -> None:
    """Who reads that a stage has ended may begin what its script must not meet."""
    case = Case()

    def note(fact: StageChanged) -> None:
        case.record.append(f"told {fact.stage.id} {pb.StageStatus.Name(fact.stage.status)}")

    case.world.facts.subscribe(StageChanged, note)

    await case.run()

    assert case.record[:3] == ["FIRST 0", "ended s1", "told s1 STAGE_SUCCESS"]


async def test_time_that_was_over_before_the_restart_ends_the_script_before_its_rollback() -> None:
    case = Case()
    case.begun.stages[0].updated_at -= 3600

    ended = await case.run()

    assert case.record == ["FIRST 0", "ended s1", "UNDO 0"]
    assert "FIRST took longer than 1h0m0s" in ended.status_reason


async def test_a_plugin_that_does_not_come_back_does_not_keep_a_cancelled_script_alive() -> None:
    case = Case()
    case.plugin.wait_ready = _lost  # type: ignore[assignment, method-assign]
    case.plugin.state = PluginState(phase=Phase.FAILED, sentence="exited", crash_loop=True)

    await case.run(cancel())

    assert case.record == ["ended s1"]


async def test_the_script_of_a_plugin_in_a_crash_loop_is_ended_before_its_stage_fails() -> None:
    case = Case()
    case.plugin.wait_ready = _lost  # type: ignore[assignment, method-assign]
    case.plugin.state = PluginState(phase=Phase.FAILED, sentence="exited", crash_loop=True)

    ended = await case.run()

    assert case.record == ["ended s1"]
    assert ended.status == pb.DEPLOYMENT_FAILURE


async def _lost(_limit: float) -> None:
    raise PluginLostError("the plugin 'steps' is not ready")


async def test_a_plugin_that_is_lost_again_and_again_leaves_no_script() -> None:
    case = Case()

    async def dies(_: object) -> Any:
        raise PluginLostError("the plugin 'steps' exited with 137")

    case.plugin.behave["FIRST"] = dies

    await case.run()

    assert case.record[-2:] == ["ended s1", "UNDO 0"]
    assert set(case.record[:-2]) == {"FIRST 0"}


async def test_a_stage_whose_plugin_is_not_configured_any_more_leaves_no_script() -> None:
    case = Case()
    case.world.plugins.plugins["other"] = case.world.plugins.plugins.pop("steps")
    case.plugin.stages = frozenset({"UNDO", "SECOND"})

    ended = await case.run()

    assert case.record == ["ended s1", "UNDO 0"]
    assert ended.status == pb.DEPLOYMENT_FAILURE


async def test_a_stage_whose_files_cannot_be_had_leaves_no_script() -> None:
    case = Case(rollback=False)

    @asynccontextmanager
    async def nothing(*_: object, **__: object) -> AsyncIterator[Any]:
        raise SourceError("the disk is full")
        yield  # type: ignore[unreachable] # makes it a generator

    case.world.sources.open = nothing  # type: ignore[method-assign]

    ended = await case.run()

    assert case.record == ["FIRST 0", "ended s1"]
    assert ended.status_reason == "FIRST failed: the disk is full"


async def test_a_bug_leaves_no_script() -> None:
    case = Case()

    async def bug(_: object) -> Any:
        raise ZeroDivisionError

    case.plugin.behave["FIRST"] = bug

    await case.run()

    assert case.record == ["FIRST 0", "ended s1", "UNDO 0"]


@pytest.mark.parametrize("where", ["files", "plugin"])
async def test_a_cancel_that_comes_before_the_plugin_is_asked_ends_the_script(where: str) -> None:
    case = Case()
    waiting = asyncio.Event()

    async def forever() -> None:
        if not waiting.is_set():
            waiting.set()
            await asyncio.Event().wait()

    if where == "files":
        _before(case.world.sources, "open", forever)
    else:
        _before(case.plugin, "wait_ready", forever)

    async with case.world.running():
        case.world.push(case.begun)
        await waiting.wait()
        case.world.push(cancel())
        await case.world.memory.until_completed()

    assert case.record == ["FIRST 0", "ended s1", "UNDO 0"]


def _before(owner: Any, name: str, wait: Callable[[], Awaitable[None]]) -> None:
    """Let a call wait for something first."""
    real = getattr(owner, name)

    @asynccontextmanager
    async def opening(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
        await wait()
        async with real(*arguments, **named) as opened:
            yield opened

    async def calling(*arguments: Any, **named: Any) -> Any:
        await wait()
        return await real(*arguments, **named)

    setattr(owner, name, opening if name == "open" else calling)


async def test_a_stage_that_its_plugin_has_ended_is_not_told_of_twice() -> None:
    case = Case()
    held = Hold()
    case.plugin.behave["FIRST"] = held

    async with case.world.running():
        case.world.push(case.begun)
        await held.began.wait()
        case.world.push(cancel())
        await case.world.memory.until_completed()

    assert case.record == ["FIRST 0", "ended s1", "UNDO 0"]


async def test_a_deployment_that_is_not_rolled_back_leaves_no_script_either() -> None:
    case = Case(rollback=False)

    await case.run(cancel(force_no_rollback=True))

    assert case.record == ["FIRST 0", "ended s1"]


async def test_a_deployment_whose_commit_is_gone_leaves_no_script() -> None:
    case = Case()
    case.world.sources.files.clear()

    ended = await case.run()

    assert case.record == ["ended s1"]
    assert ended.status == pb.DEPLOYMENT_FAILURE


async def test_a_rollback_that_another_instance_has_begun_ends_first_what_lives_here() -> None:
    """The other one saw nothing of it: the script ran on this machine."""
    case = Case(status=pb.DEPLOYMENT_ROLLING_BACK)
    case.begun.stages[0].status = pb.STAGE_FAILURE

    await case.run()

    assert case.record == ["ended s1", "UNDO 0"]


async def test_the_next_stage_begins_when_nothing_of_the_one_before_lives() -> None:
    case = Case()
    case.begun.stages[0].status = pb.STAGE_SUCCESS

    await case.run()

    assert case.record == ["ended s1", "SECOND 1"]


async def test_a_piped_that_stops_leaves_scripts_to_the_next_one() -> None:
    case = Case()
    asked = asyncio.Event()

    async def stops(_: object) -> Any:
        asked.set()
        await stopped.wait()
        raise PluginStoppingError("the plugin 'steps' is stopping")

    stopped = asyncio.Event()
    case.plugin.behave["FIRST"] = stops

    async with case.world.running():
        case.world.push(case.begun)
        await asked.wait()
        case.world.controller.stop()
        stopped.set()
        await case.world.controller.wait_settled()

    assert case.record == ["FIRST 0"]
    assert case.world.scripts.alive == {"s1"}


async def test_a_stage_that_another_instance_goes_on_with_leaves_no_script_here() -> None:
    case = Case()
    waiting = asyncio.Event()

    async def forever() -> None:
        waiting.set()
        await asyncio.Event().wait()

    _before(case.world.sources, "open", forever)

    async with case.world.running():
        case.world.push(case.begun)
        await waiting.wait()
        case.world.runs[0].hand_over()
        async with asyncio.timeout(LIMIT):
            while case.world.scripts.alive:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)

    assert case.record == ["ended s1"]
    assert case.world.memory.of("ReportStageStatusChanged") == []


async def test_an_instance_ends_its_scripts_when_another_goes_on_with_them() -> None:
    """Also those of an earlier piped on this data folder, whose deployments it was not told of."""
    case = Case()
    called = asyncio.Event()

    async def end_all() -> None:
        called.set()

    world = World(case.world.plugins, case.world.sources, on_handed_over=end_all)
    elsewhere = push.Lease(held=False, epoch=2)
    elsewhere.time.FromSeconds(60)
    elsewhere.take_over_after.FromSeconds(600)

    async with world.running():
        assert not called.is_set()
        world.lease.state = type(world.lease.state).UNKNOWN
        world.lease.apply(elsewhere, asked=world.lease_clock.now)
        await asyncio.wait_for(called.wait(), LIMIT)
