# SPDX-License-Identifier: Apache-2.0
"""What waits, what goes first, and what takes whose place, in a controller with real runs."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pipecd_model.queueing import QUEUE_KEY, SUPERSEDED_BY_KEY, encode_settings
from pipecd_piped.controlplane.state import StateChange
from pipecd_piped.schedule.queue_reporter import QueueReporter
from pipecd_test_support.piped_parts import (
    LIMIT,
    FakePlugin,
    FakePlugins,
    FakeSources,
    Hold,
    World,
    application_file,
    cancel,
    deployment,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import (
    ApplicationControl,
    DeploymentRecord,
    EmergencyStop,
    Freeze,
    Override,
    Pin,
    ProjectRules,
    QueuedDeployment,
)

STAGES = ("WAIT_APPROVAL", "WAIT", "ANALYSIS", "SCRIPT_RUN", "STEP")


def world_of(*stages: str, rollback: str = "", **options: Any) -> World:
    plugin = FakePlugin("steps", *STAGES, rollback=rollback)
    sources = FakeSources({"c1": application_file(stages or ("STEP",))})
    return World(FakePlugins(plugin), sources, **options)


def hold(world: World, place: str) -> Hold:
    held = world.plugins.plugins["steps"].behave[place] = Hold()
    return held


def created(id: str, mode: str = "queue", *locks: str, app: str = "web") -> pb.Deployment:
    made = deployment(id, app)
    kept = encode_settings(mode, locks)
    if kept is not None:
        made.metadata_v2.shared.keyValues[QUEUE_KEY] = kept
    return made


def tell(world: World, **change: Any) -> None:
    world.state.merge(StateChange(**change))


def stop_everything(world: World) -> None:
    tell(world, rules=ProjectRules(emergency_stop=EmergencyStop(by="eve")))


def freeze(world: World, application_id: str = "web") -> None:
    control = ApplicationControl(application_id=application_id, freeze=Freeze(by="ada"))
    tell(world, controls=(control,))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not holds():  # noqa: ASYNC110 - what is shown changes without an event of its own
            await asyncio.sleep(0)


def list_waits(world: World) -> dict[str, QueuedDeployment]:
    reporter = QueueReporter(None, world.controller, world.turns)  # type: ignore[arg-type]
    return {each.deployment_id: each for each in reporter.list_queued()}


# The gate


async def test_a_frozen_application_waits_without_a_place_and_goes_on_at_once() -> None:
    world = world_of(at_once=1)

    async with world.running():
        freeze(world)
        world.controller.on_created(created("d1"))
        world.controller.on_created(created("other", app="api"))
        await world.memory.until_completed("other")
        [wait] = list_waits(world).values()
        assert (wait.deployment_id, wait.cause) == ("d1", QueuedDeployment.RULE)
        assert wait.sentence == "the application is frozen by ada"
        tell(world, controls=(ApplicationControl(application_id="web"),))
        await world.memory.until_completed("d1")

    assert list_waits(world) == {}


async def test_an_override_lets_one_deployment_begin() -> None:
    world = world_of()

    async with world.running():
        freeze(world)
        world.controller.on_created(created("d1"))
        await until(lambda: "d1" in list_waits(world))
        tell(
            world,
            records=(DeploymentRecord(deployment_id="d1", override=Override(by="eve")),),
        )
        await world.memory.until_completed("d1")


def let_in(world: World, deployment_id: str) -> None:
    override = Override(by="eve", reason="hotfix")
    tell(world, records=(DeploymentRecord(deployment_id=deployment_id, override=override),))


@pytest.mark.parametrize("mode", ["queue", "supersede", "reject"])
async def test_an_override_passes_an_older_one_which_is_never_deployed(mode: str) -> None:
    world = world_of()

    async with world.running():
        freeze(world)
        for name in ("d1", "d2"):
            world.controller.on_created(created(name))
        world.controller.on_created(created("d3", mode))
        await until(lambda: "d3" in list_waits(world))
        let_in(world, "d3")
        done = await world.memory.until_completed("d3")
        older = [await world.memory.until_completed(name) for name in ("d1", "d2")]
        tell(world, controls=(ApplicationControl(application_id="web"),))
        world.controller.on_created(created("d4"))
        await world.memory.until_completed("d4")

    assert done.status == pb.DEPLOYMENT_SUCCESS
    assert [each.status for each in older] == [pb.DEPLOYMENT_CANCELLED] * 2
    if mode != "supersede":  # there, they are gone before the override
        sentence = "superseded by the deployment d3 of c1 (override by eve: hotfix) before it began"
        assert {each.status_reason for each in older} == {sentence}
    assert [run.deployment.id for run in world.runs if run.deployment.stages] == ["d3", "d4"]


async def test_until_the_one_with_the_override_begins_nothing_is_lost() -> None:
    """It may wait for a place, and be cancelled there."""
    world = world_of(at_once=1)
    held = hold(world, "STEP 0")

    async with world.running():
        world.controller.on_created(created("busy", app="api"))
        await held.began.wait()
        del world.plugins.plugins["steps"].behave["STEP 0"]
        freeze(world)
        world.controller.on_created(created("d1"))
        world.controller.on_created(created("d2"))
        let_in(world, "d2")
        await until(lambda: list_waits(world)["d2"].cause == QueuedDeployment.SLOT)
        waits = list_waits(world)
        assert waits["d1"].other_deployment_id == "d2"
        world.push(cancel("d2"))
        await world.memory.until_completed("d2")
        await until(lambda: list_waits(world)["d1"].cause == QueuedDeployment.RULE)
        tell(world, controls=(ApplicationControl(application_id="web"),))
        held.let_go.set()
        ended = await world.memory.until_completed("d1")

    assert ended.status == pb.DEPLOYMENT_SUCCESS


async def test_an_override_passes_nobody_who_may_begin() -> None:
    world = world_of(at_once=1)
    held = hold(world, "STEP 0")

    async with world.running():
        world.controller.on_created(created("busy", app="api"))
        await held.began.wait()
        del world.plugins.plugins["steps"].behave["STEP 0"]
        for name in ("d1", "d2"):
            world.controller.on_created(created(name))
        let_in(world, "d2")
        held.let_go.set()
        for name in ("d1", "d2"):
            assert (await world.memory.until_completed(name)).status == pb.DEPLOYMENT_SUCCESS

    assert [run.deployment.id for run in world.runs] == ["busy", "d1", "d2"]


async def test_an_override_of_a_pinned_application_passes_nobody() -> None:
    world = world_of()

    async with world.running():
        pin = Pin(deployment_id="back", commit_hash="c1")
        tell(world, controls=(ApplicationControl(application_id="web", pin=pin),))
        for name in ("d1", "d2"):
            world.controller.on_created(created(name))
        let_in(world, "d2")
        await until(lambda: {"d1", "d2"} <= set(list_waits(world)))
        assert list_waits(world)["d2"].other_deployment_id == "d1"
        tell(world, controls=(ApplicationControl(application_id="web"),))
        for name in ("d1", "d2"):
            assert (await world.memory.until_completed(name)).status == pb.DEPLOYMENT_SUCCESS


async def test_a_restarted_piped_leaves_behind_what_its_predecessor_had_passed() -> None:
    """It died between the beginning of the newer one and the end of the older one."""
    world = world_of()
    newer = created("d2")
    newer.created_at += 1
    newer.status = pb.DEPLOYMENT_RUNNING
    newer.stages.add(id="s0", name="STEP", created_at=int(world.clock()))

    async with world.running():
        let_in(world, "d2")
        world.push(created("d1"), newer)
        old = await world.memory.until_completed("d1")
        done = await world.memory.until_completed("d2")

    assert old.status_reason.startswith("superseded by the deployment d2 of c1 (override by eve")
    assert done.status == pb.DEPLOYMENT_SUCCESS
    assert world.plugins.record == ["STEP 0"]


async def test_what_waits_at_the_gate_can_be_cancelled() -> None:
    world = world_of()

    async with world.running():
        stop_everything(world)
        world.controller.on_created(created("d1"))
        await until(lambda: "d1" in list_waits(world))
        world.push(cancel())
        ended = await world.memory.until_completed("d1")

    assert ended.status == pb.DEPLOYMENT_CANCELLED


async def test_an_emergency_stop_pauses_before_the_next_stage_and_says_so() -> None:
    world = world_of("STEP", "STEP")
    held = hold(world, "STEP 0")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        stop_everything(world)
        held.let_go.set()
        await until(lambda: "d1" in list_waits(world))
        assert world.plugins.record == ["STEP 0"]
        assert "emergency stop by eve" in list_waits(world)["d1"].sentence
        world.clock.now += 100_000  # longer than a deployment may take: the pause does not count
        tell(world, rules=ProjectRules())
        ended = await world.memory.until_completed("d1")

    assert ended.status == pb.DEPLOYMENT_SUCCESS
    assert world.plugins.record == ["STEP 0", "STEP 1"]


async def test_a_pause_is_remembered_by_a_restarted_piped() -> None:
    world = world_of("STEP", "STEP")
    held, next_one = hold(world, "STEP 0"), hold(world, "STEP 1")
    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        stop_everything(world)
        held.let_go.set()
        await until(lambda: "d1" in list_waits(world))
        world.clock.now += 100_000
        tell(world, rules=ProjectRules())
        await next_one.began.wait()
        [left] = world.runs

    again = world_of("STEP", "STEP")
    again.clock.now = world.clock.now
    async with again.running():
        again.push(left.deployment)
        ended = await again.memory.until_completed("d1")

    assert ended.status == pb.DEPLOYMENT_SUCCESS


async def test_a_rollback_is_not_paused() -> None:
    world = world_of("STEP", "STEP", rollback="ROLLBACK")
    world.plugins.plugins["steps"].stages |= {"ROLLBACK"}
    held = hold(world, "STEP 0")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        stop_everything(world)
        world.push(cancel())
        ended = await world.memory.until_completed("d1")

    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert world.plugins.record == ["STEP 0", "ROLLBACK 0"]


# Superseding


@pytest.mark.parametrize("stage", ["WAIT", "WAIT_APPROVAL", "ANALYSIS"])
async def test_a_newer_one_interrupts_a_stage_that_changes_nothing(stage: str) -> None:
    world = world_of(stage, "STEP")
    held = hold(world, f"{stage} 0")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        del world.plugins.plugins["steps"].behave[f"{stage} 0"]
        world.controller.on_created(created("d2", "supersede"))
        old = await world.memory.until_completed("d1")
        await world.memory.until_completed("d2")

    assert held.cancelled
    assert old.status == pb.DEPLOYMENT_CANCELLED
    assert old.status_reason == f"superseded by the deployment d2 of c1 during {stage}"
    [note] = world.memory.of("SaveDeploymentSharedMetadata")
    assert (note.deployment_id, dict(note.metadata)) == ("d1", {SUPERSEDED_BY_KEY: "d2"})


async def test_any_other_stage_comes_to_its_end_and_is_rolled_back_first() -> None:
    world = world_of("STEP", "STEP", rollback="ROLLBACK")
    world.plugins.plugins["steps"].stages |= {"ROLLBACK"}
    held = hold(world, "STEP 0")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        del world.plugins.plugins["steps"].behave["STEP 0"]
        world.controller.on_created(created("d2", "supersede"))
        assert not held.cancelled
        held.let_go.set()
        old = await world.memory.until_completed("d1")
        await world.memory.until_completed("d2")

    assert old.status == pb.DEPLOYMENT_CANCELLED
    assert old.status_reason == "superseded by the deployment d2 of c1 before STEP; rolled back"
    assert world.plugins.record == ["STEP 0", "ROLLBACK 0", "STEP 0", "STEP 1"]


async def test_what_waits_is_replaced_at_once_by_the_newest() -> None:
    world = world_of()
    held = hold(world, "STEP 0")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        world.controller.on_created(created("d2"))
        world.controller.on_created(created("d3", "supersede"))
        replaced = await world.memory.until_completed("d2")
        world.controller.on_created(created("d4", "supersede"))
        await world.memory.until_completed("d3")
        held.let_go.set()
        await world.memory.until_completed("d4")

    assert replaced.status_reason == "superseded by the deployment d3 of c1 before it began"
    assert [run.deployment.id for run in world.runs if run.deployment.stages] == ["d1", "d4"]


async def test_the_newer_of_two_in_one_second_is_the_one_that_came_later() -> None:
    """The control plane may tell of a deployment before the trigger does."""
    world = world_of()
    held = hold(world, "STEP 0")

    async with world.running():
        world.controller.on_created(created("d1", "supersede"))
        await held.began.wait()
        world.controller.on_created(created("d2", "supersede"))
        world.push(created("d3", "supersede"))
        world.controller.on_created(created("d3", "supersede"))
        replaced = await world.memory.until_completed("d2")
        held.let_go.set()
        await world.memory.until_completed("d3")

    assert replaced.status_reason.startswith("superseded by the deployment d3")


async def test_of_two_in_one_second_a_restarted_piped_loses_neither() -> None:
    """Nobody knows which is the newer one."""
    world = world_of()

    async with world.running():
        world.state.replace(deployments=[created("d1", "supersede"), created("d2", "supersede")])
        for name in ("d1", "d2"):
            assert (await world.memory.until_completed(name)).status == pb.DEPLOYMENT_SUCCESS


async def test_a_deployment_that_rolls_back_is_not_interrupted() -> None:
    world = world_of("STEP", rollback="ROLLBACK")
    world.plugins.plugins["steps"].stages |= {"ROLLBACK"}
    held, back = hold(world, "STEP 0"), hold(world, "ROLLBACK")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        world.push(cancel())
        await back.began.wait()
        world.controller.on_created(created("d2", "supersede"))
        await until(lambda: "d2" in list_waits(world))
        del world.plugins.plugins["steps"].behave["STEP 0"]
        back.let_go.set()
        old = await world.memory.until_completed("d1")
        await world.memory.until_completed("d2")

    assert not back.cancelled
    assert old.status_reason == "cancelled by alice during STEP; rolled back"


async def test_one_that_may_not_begin_leaves_alone_what_runs_until_it_may() -> None:
    world = world_of("WAIT_APPROVAL")
    held = hold(world, "WAIT_APPROVAL 0")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        freeze(world)
        world.controller.on_created(created("d2"))
        world.controller.on_created(created("d3", "supersede"))
        await world.memory.until_completed("d2")
        assert not held.cancelled
        del world.plugins.plugins["steps"].behave["WAIT_APPROVAL 0"]
        tell(world, controls=(ApplicationControl(application_id="web"),))
        await world.memory.until_completed("d3")

    assert held.cancelled


async def test_a_restarted_piped_supersedes_what_its_predecessor_left() -> None:
    """Of the running stage it is known only by its name that it may be interrupted."""
    world = world_of("WAIT_APPROVAL")
    begun = created("d1")
    begun.status = pb.DEPLOYMENT_RUNNING
    begun.stages.add(
        id="s0", name="WAIT_APPROVAL", created_at=1_700_000_000, status=pb.STAGE_RUNNING
    )
    newer = created("d2", "supersede")
    newer.created_at += 1

    async with world.running():
        world.push(newer, begun)
        old = await world.memory.until_completed("d1")
        await world.memory.until_completed("d2")

    assert old.status_reason == "superseded by the deployment d2 of c1 during WAIT_APPROVAL"


async def test_a_restarted_piped_lets_a_script_of_its_predecessor_end() -> None:
    world = world_of("SCRIPT_RUN", "STEP")
    begun = created("d1")
    begun.status = pb.DEPLOYMENT_RUNNING
    for index, (name, status) in enumerate(
        [("SCRIPT_RUN", pb.STAGE_RUNNING), ("STEP", pb.STAGE_NOT_STARTED_YET)]
    ):
        now = int(world.clock())
        begun.stages.add(
            id=f"s{index}", index=index, name=name, created_at=now, updated_at=now, status=status
        )
    newer = created("d2", "supersede")
    newer.created_at += 1

    async with world.running():
        world.push(newer, begun)
        old = await world.memory.until_completed("d1")
        await world.memory.until_completed("d2")

    assert old.status_reason.startswith("superseded by the deployment d2 of c1 before STEP")
    assert world.plugins.record == ["SCRIPT_RUN 0", "SCRIPT_RUN 0", "STEP 1"]


async def test_a_cancel_after_a_newer_one_came_still_counts() -> None:
    world = world_of("STEP", "STEP")
    held = hold(world, "STEP 0")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        world.controller.on_created(created("d2", "supersede"))
        world.push(cancel())
        old = await world.memory.until_completed("d1")

    assert old.status_reason.startswith("cancelled by alice during STEP")


# A person's roll-back


async def test_a_roll_back_goes_first_replaces_what_waits_and_interrupts() -> None:
    world = world_of("WAIT_APPROVAL", at_once=1)
    held = hold(world, "WAIT_APPROVAL 0")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        world.controller.on_created(created("d2"))
        del world.plugins.plugins["steps"].behave["WAIT_APPROVAL 0"]
        pin = Pin(deployment_id="back", commit_hash="c1")
        tell(
            world,
            records=(DeploymentRecord(deployment_id="back", type=DeploymentRecord.ROLL_BACK),),
            controls=(ApplicationControl(application_id="web", pin=pin),),
        )
        world.controller.on_created(created("back"))
        for replaced in ("d1", "d2"):
            ended = await world.memory.until_completed(replaced)
            assert ended.status_reason.startswith("superseded by the deployment back of c1")
        assert (await world.memory.until_completed("back")).status == pb.DEPLOYMENT_SUCCESS
        world.controller.on_created(created("d3"))
        await until(lambda: "d3" in list_waits(world))
        assert "pinned to c1" in list_waits(world)["d3"].sentence


async def test_a_roll_back_waits_for_no_place() -> None:
    world = world_of(at_once=1)
    held = hold(world, "STEP 0")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        del world.plugins.plugins["steps"].behave["STEP 0"]
        stop_everything(world)
        record = DeploymentRecord(deployment_id="back", type=DeploymentRecord.ROLL_BACK)
        tell(world, records=(record,))
        world.controller.on_created(created("back", app="api"))
        ended = await world.memory.until_completed("back")
        held.let_go.set()
        await world.memory.until_completed("d1")

    assert ended.status == pb.DEPLOYMENT_SUCCESS


# Places and locks


async def test_what_waits_for_a_place_says_how_many_are_before_it() -> None:
    world = world_of(at_once=1)
    held = hold(world, "STEP 0")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        for name in ("one", "two"):
            world.controller.on_created(created(name, app=name))
        world.controller.on_created(created("behind", app="two"))
        await until(lambda: len(list_waits(world)) == 3)
        waits = list_waits(world)
        held.let_go.set()
        await world.memory.until_completed("behind")

    causes = {name: (wait.cause, wait.position) for name, wait in waits.items()}
    assert causes == {
        "one": (QueuedDeployment.SLOT, 0),
        "two": (QueuedDeployment.SLOT, 1),
        "behind": (QueuedDeployment.OTHER_DEPLOYMENT, 1),
    }
    assert waits["behind"].other_deployment_id == "two"


async def test_an_application_with_many_deployments_takes_turns_with_the_others() -> None:
    world = world_of(at_once=1)
    held = hold(world, "STEP 0")

    async with world.running():
        world.controller.on_created(created("d1", app="first"))
        await held.began.wait()
        del world.plugins.plugins["steps"].behave["STEP 0"]
        for number in range(3):
            world.controller.on_created(created(f"busy{number}", app="busy"))
        for name in ("one", "two"):
            world.controller.on_created(created(name, app=name))
        await until(lambda: len(list_waits(world)) == 5)
        held.let_go.set()
        await world.memory.until_completed("busy2")

    order = [run.deployment.id for run in world.runs]
    assert order == ["d1", "busy0", "one", "two", "busy1", "busy2"]


async def test_of_the_applications_with_one_lock_one_runs_at_a_time() -> None:
    world = world_of()
    held = hold(world, "STEP 0")

    async with world.running():
        world.controller.on_created(created("d1", "queue", "db", app="web"))
        await held.began.wait()
        del world.plugins.plugins["steps"].behave["STEP 0"]
        world.controller.on_created(created("d2", "queue", "cache", "db", app="api"))
        world.controller.on_created(created("free", app="other"))
        await world.memory.until_completed("free")
        wait = list_waits(world)["d2"]
        held.let_go.set()
        await world.memory.until_completed("d2")

    assert (wait.cause, wait.lock) == (QueuedDeployment.LOCK, "db")
    assert wait.other_deployment_id == "d1"
    assert wait.sentence == "the deployment d1 of web holds the lock 'db'"


async def test_after_a_restart_what_was_begun_has_its_lock_before_anybody_new() -> None:
    world = world_of()
    begun = created("begun", "queue", "db", app="web")
    begun.status = pb.DEPLOYMENT_RUNNING
    begun.stages.add(id="s0", name="STEP", created_at=int(world.clock()))

    async with world.running():
        world.push(created("new", "queue", "db", app="api"), begun)
        await world.memory.until_completed("new")

    assert [run.deployment.id for run in world.runs] == ["begun", "new"]


async def test_not_more_scripts_run_at_once_than_the_limit() -> None:
    world = world_of("SCRIPT_RUN", scripts_at_once=1)
    held = hold(world, "SCRIPT_RUN 0")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        world.controller.on_created(created("d2", app="api"))
        await until(lambda: "d2" in list_waits(world))
        wait = list_waits(world)["d2"]
        assert world.plugins.record == ["SCRIPT_RUN 0"]
        world.clock.now += 100_000
        held.let_go.set()
        ended = await world.memory.until_completed("d2")

    assert wait.cause == QueuedDeployment.SLOT
    assert wait.sentence == "its piped runs 1 scripts, and at most 1 at once"
    assert ended.status == pb.DEPLOYMENT_SUCCESS


async def test_one_that_is_cancelled_while_it_waits_for_a_script_place_gives_it_up() -> None:
    world = world_of("SCRIPT_RUN", scripts_at_once=1)
    held = hold(world, "SCRIPT_RUN 0")

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        del world.plugins.plugins["steps"].behave["SCRIPT_RUN 0"]
        for name in ("d2", "d3"):
            world.controller.on_created(created(name, app=name))
        await until(lambda: {"d2", "d3"} <= set(list_waits(world)))
        world.push(cancel("d2"))
        ended = await world.memory.until_completed("d2")
        held.let_go.set()
        await world.memory.until_completed("d3")

    assert ended.status == pb.DEPLOYMENT_CANCELLED


async def test_which_deployments_of_an_application_are_open_is_known() -> None:
    world = world_of()
    held = hold(world, "STEP 0")
    closed: list[str] = []
    world.controller.on_closed = closed.append

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        world.controller.on_created(created("d2"))
        assert world.controller.find_open("web") == ["d1", "d2"]
        assert world.controller.find_open("api") == []
        held.let_go.set()
        await world.memory.until_completed("d2")
        await until(lambda: not world.controller.find_open("web"))

    assert closed == ["web", "web"]


async def test_one_is_open_until_the_control_plane_has_heard_of_its_end() -> None:
    """What waits for the end is created at once, and must not overtake the report."""
    world = world_of()
    held = hold(world, "STEP 0")
    closed: list[str] = []
    world.controller.on_closed = closed.append

    async with world.running():
        world.controller.on_created(created("d1"))
        await held.began.wait()
        world.memory.listens.clear()
        held.let_go.set()
        await until(lambda: world.runs[0].is_completed)
        await until(lambda: not any(each.running for each in world.controller.queues()))
        assert world.controller.find_open("web") == ["d1"]
        assert closed == []
        world.memory.listens.set()
        await world.memory.until_completed("d1")
        await until(lambda: closed == ["web"])

    assert world.controller.find_open("web") == []
