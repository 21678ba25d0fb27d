# SPDX-License-Identifier: Apache-2.0
"""piped stops and is started again, or a plugin is lost: deployments go on where they were."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pipecd_piped.plugins.errors import PluginLostError
from pipecd_piped.report.journal import Journal
from pipecd_test_support.piped_parts import (
    LIMIT,
    FakePlugin,
    FakePlugins,
    FakeSources,
    Hold,
    World,
    application_file,
    deployment,
    done,
)
from pipecd_test_support.schedule_parts import (
    TWO,
    begun_deployment,
    only_plugin,
    run,
    world_of,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.plugin.deploymentapi import api_pb2 as api


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


@pytest.mark.parametrize("stage", ["FIRST", "SECOND"])
async def test_a_stopping_piped_does_not_wait_for_the_files_of_a_stage(stage: str) -> None:
    """A stage that its plugin runs is waited for; that one is not with its plugin yet."""
    world = world_of(TWO)
    waiting = asyncio.Event()
    opened = world.sources.open

    @asynccontextmanager
    async def open_slowly(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
        if len(world.plugins.record) == TWO.index(stage):
            waiting.set()
            await asyncio.Event().wait()
        async with opened(*arguments, **named) as source:
            yield source

    world.sources.open = open_slowly  # type: ignore[method-assign]

    async with world.running():
        world.controller.on_created(deployment())
        await waiting.wait()
        world.controller.stop()
        await world.controller.wait_settled()

    assert world.plugins.record == [f"{each} {TWO.index(each)}" for each in TWO[: TWO.index(stage)]]
    assert world.memory.of("ReportDeploymentCompleted") == []


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
    planned = begun_deployment(world, started=world.clock())
    planned.status = pb.DEPLOYMENT_PLANNED
    planned.stages[0].status = pb.STAGE_NOT_STARTED_YET

    async with world.running():
        world.push(planned)
        await world.memory.until_completed()

    assert world.plugins.record == ["FIRST 0"]
    assert world.memory.of("ReportDeploymentPlanned") == []


async def test_a_stage_that_the_application_file_does_not_have_fails_with_a_sentence() -> None:
    """Planned by another agent, or the commit was changed by force."""
    world = world_of(TWO)
    planned = begun_deployment(world, started=world.clock())
    planned.stages[0].index = 7

    async with world.running():
        world.push(planned)
        ended = await world.memory.until_completed()

    assert ended.status_reason == "FIRST failed: the pipeline of the application has no stage 8"
    assert world.plugins.record == []


class NotedJournal(Journal):
    """A journal that notes when what was put into it cannot be lost any more."""

    def __init__(self, folder: Path, record: list[str]) -> None:
        super().__init__(folder)
        self._notes = record

    async def sync(self) -> None:
        await super().sync()
        self._notes.append("durable")


async def test_a_plugin_is_asked_once_the_start_of_its_stage_cannot_be_lost(tmp_path: Path) -> None:
    """Else the next piped might run the stage before it again."""
    plugins = FakePlugins(FakePlugin("steps", "FIRST"))
    sources = FakeSources({"c1": application_file(["FIRST"])})
    world = World(plugins, sources, journal=NotedJournal(tmp_path, plugins.record))
    planned = begun_deployment(world, started=world.clock())
    planned.stages[0].status = pb.STAGE_NOT_STARTED_YET
    world.memory.listens.clear()  # nothing is delivered: the disk is all there is

    async with world.running():
        world.push(planned)
        async with asyncio.timeout(LIMIT):
            while "FIRST 0" not in plugins.record:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
        world.memory.listens.set()
        await world.memory.until_completed()

    assert plugins.record[:2] == ["durable", "FIRST 0"]


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
