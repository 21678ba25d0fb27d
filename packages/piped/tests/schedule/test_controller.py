# SPDX-License-Identifier: Apache-2.0
"""Which deployment runs when: one at a time per application, the oldest first, not too many."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipecd_piped.facts import DeploymentCompleted
from pipecd_piped.report.journal import Journal
from pipecd_piped.schedule.controller import DONE_MEMORY_SECONDS
from pipecd_runtime.logs import fields_of
from pipecd_test_support.piped_parts import (
    Clock,
    FakePlugin,
    FakePlugins,
    FakeSources,
    Hold,
    World,
    application_file,
    deployment,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipedservice.service_pb2 import ReportStageStatusChangedRequest


def world_of(**options: Any) -> World:
    plugin = FakePlugin("steps", "STEP")
    return World(FakePlugins(plugin), FakeSources({"c1": application_file(["STEP"])}), **options)


def created(id: str, *, application_id: str = "web", age: int = 0, **more: Any) -> pb.Deployment:
    made = deployment(id, application_id, **more)
    made.trigger.commit.created_at -= age
    return made


async def test_an_application_has_one_deployment_at_a_time_the_oldest_commit_first() -> None:
    world = world_of()
    held = Hold()
    world.plugins.plugins["steps"].behave["STEP"] = held

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        world.controller.on_created(created("newer", age=10))
        world.controller.on_created(created("older", age=20))
        assert world.controller.queue == {"web": ["older", "newer"]}
        assert world.controller.running == ["d1"]
        held.let_go.set()
        await world.memory.until_completed("newer")

    assert [run.deployment.id for run in world.runs] == ["d1", "older", "newer"]


async def test_what_a_queued_deployment_waits_for_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="pipecd_piped.schedule.controller")
    world = world_of()
    held = Hold()
    world.plugins.plugins["steps"].behave["STEP"] = held

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        world.controller.on_created(created("d2"))
        world.controller.on_created(created("other", application_id="api"))
        held.let_go.set()
        await world.memory.until_completed("d2")
        await world.memory.until_completed("other")

    queued = [fields_of(line) for line in caplog.records if line.msg == "deployment.queued"]
    assert [(each["deployment"], each["behind"], each["ahead"]) for each in queued] == [
        ("d2", "d1", 1)
    ]


async def test_applications_do_not_wait_for_each_other() -> None:
    world = world_of()
    held = Hold()
    world.plugins.plugins["steps"].behave["STEP"] = held

    async with world.running():
        world.controller.on_created(created("d1", application_id="web"))
        await held.began.wait()
        del world.plugins.plugins["steps"].behave["STEP"]
        world.controller.on_created(created("d2", application_id="api"))
        await world.memory.until_completed("d2")
        held.let_go.set()
        await world.memory.until_completed("d1")


async def test_not_more_than_the_limit_run_at_once() -> None:
    world = world_of(at_once=1)
    held = Hold()
    world.plugins.plugins["steps"].behave["STEP"] = held

    async with world.running():
        world.controller.on_created(created("d1", application_id="web"))
        await held.began.wait()
        world.controller.on_created(created("d2", application_id="api"))
        assert world.controller.queue == {"api": ["d2"]}
        held.let_go.set()
        await world.memory.until_completed("d2")


async def test_what_was_begun_is_resumed_before_what_waits() -> None:
    world = world_of()
    begun = created("begun", status=pb.DEPLOYMENT_RUNNING)
    begun.stages.add(id="s", name="STEP", created_at=1_700_000_000)
    planned = created("planned", status=pb.DEPLOYMENT_PLANNED)
    planned.stages.add(id="s", name="STEP", created_at=1_700_000_000)

    async with world.running():
        world.push(created("waiting", age=100), planned, begun)
        await world.memory.until_completed("waiting")

    assert [run.deployment.id for run in world.runs] == ["begun", "planned", "waiting"]


async def test_a_deployment_that_is_heard_of_twice_runs_once() -> None:
    """From the trigger at once, and from the control plane a moment later."""
    world = world_of()
    held = Hold()
    world.plugins.plugins["steps"].behave["STEP"] = held

    async with world.running():
        world.controller.on_created(created("d1"))
        world.push(created("d1"))
        await held.began.wait()
        world.push(created("d1"))
        held.let_go.set()
        await world.memory.until_completed("d1")
        world.state.replace(deployments=[created("d1", status=pb.DEPLOYMENT_RUNNING)])
        world.controller.on_created(created("d2"))
        await world.memory.until_completed("d2")

    assert [run.deployment.id for run in world.runs] == ["d1", "d2"]


async def test_what_ended_long_ago_is_forgotten_without_a_snapshot_but_never_the_newest() -> None:
    """A stream may last for months. What is forgotten runs if it is listed: that shows it."""
    clock = Clock()
    world = world_of(done_kept=2, clock=clock)

    async with world.running():
        for name in ("d1", "d2", "d3"):
            world.controller.on_created(created(name))
            await world.memory.until_completed(name)
        clock.now += DONE_MEMORY_SECONDS
        world.controller.on_created(created("d4"))
        await world.memory.until_completed("d4")
        await world.controller.wait_settled()
        for name in ("d1", "d3", "d4"):
            world.controller.on_created(created(name))
        await world.controller.wait_settled()

    assert [run.deployment.id for run in world.runs] == ["d1", "d2", "d3", "d4", "d1"]


async def test_a_completed_deployment_is_told_to_whoever_wants_to_know() -> None:
    told: list[pb.Deployment] = []
    world = world_of()
    world.facts.subscribe(DeploymentCompleted, lambda fact: told.append(fact.deployment))

    async with world.running():
        world.controller.on_created(created("d1"))
        await world.memory.until_completed("d1")

    assert [(each.id, each.status) for each in told] == [("d1", pb.DEPLOYMENT_SUCCESS)]


async def test_what_an_earlier_piped_has_left_to_say_comes_before_its_deployment_goes_on(
    tmp_path: Path,
) -> None:
    """The control plane has the stage as running still: it would be run a second time."""
    journal = Journal(tmp_path)
    journal.open()
    report = ReportStageStatusChangedRequest(deployment_id="d1", stage_id="s0")
    journal.put("web", "ReportStageStatusChanged", report)
    journal.close()
    sources = FakeSources({"c1": application_file(["STEP", "STEP"])})
    plugins = FakePlugins(FakePlugin("steps", "STEP"))
    world = World(plugins, sources, journal=Journal(tmp_path))
    world.memory.listens.clear()
    now = int(world.clock())
    made = partial(pb.PipelineStage, name="STEP", created_at=now, updated_at=now)
    stale, true = (
        deployment(
            status=pb.DEPLOYMENT_RUNNING,
            stages=[
                made(id="s0", index=0, status=status),
                made(id="s1", index=1),
            ],
        )
        for status in (pb.STAGE_RUNNING, pb.STAGE_SUCCESS)
    )
    world.stored["d1"] = true
    async with world.running():
        world.push(stale)
        for _ in range(50):
            await asyncio.sleep(0)
        assert world.runs == []

        world.memory.listens.set()
        await world.memory.until_completed()

    assert plugins.record == ["STEP 1"]
