# SPDX-License-Identifier: Apache-2.0
"""Facts reach every subscriber, in order, and a plan is waited for."""

import asyncio

import pytest

from pipecd_model.errors import StateError
from pipecd_piped.facts import (
    DeploymentCompleted,
    DeploymentStarted,
    Facts,
    Planned,
    StageChanged,
    StatusChanged,
    WaitsForApproval,
)
from pipecd_test_support.piped_parts import (
    FakePlugin,
    FakePlugins,
    FakeSources,
    World,
    application_file,
    deployment,
)
from pipecd_wire.model import deployment_pb2 as pb

ONE = deployment("d1")


def test_every_subscriber_of_a_kind_is_given_the_fact_in_the_order_of_subscription() -> None:
    facts, heard = Facts(), list[str]()
    facts.subscribe(DeploymentStarted, lambda fact: heard.append(f"first {fact.deployment.id}"))
    facts.subscribe(DeploymentStarted, lambda fact: heard.append(f"second {fact.deployment.id}"))
    facts.subscribe(Planned, lambda _: heard.append("another kind"))

    facts.publish(DeploymentStarted(deployment=ONE))

    assert heard == ["first d1", "second d1"]


def test_a_fact_that_nobody_wants_to_know_is_no_error() -> None:
    Facts().publish(DeploymentStarted(deployment=ONE))


async def test_a_plan_is_published_when_its_awaited_subscribers_are_done() -> None:
    facts, heard = Facts(), list[str]()
    delivered = asyncio.Event()

    async def deliver(_: Planned) -> None:
        await delivered.wait()
        heard.append("delivered")

    facts.subscribe(Planned, lambda _: heard.append("noted"))
    facts.subscribe_awaited(deliver)
    publishing = asyncio.ensure_future(facts.publish_planned(Planned(deployment=ONE)))
    await asyncio.sleep(0)
    assert heard == []
    delivered.set()
    await publishing

    assert heard == ["delivered", "noted"]


async def test_a_plan_that_is_refused_reaches_nobody_else() -> None:
    facts, heard = Facts(), list[Planned]()

    async def refuse(_: Planned) -> None:
        raise StateError("no")

    facts.subscribe(Planned, heard.append)
    facts.subscribe_awaited(refuse)

    with pytest.raises(StateError):
        await facts.publish_planned(Planned(deployment=ONE))
    assert heard == []


class Approving(FakePlugin):
    """A plugin whose stages wait for people."""

    def _stage(self, name: str, index: int, *, rollback: bool = False) -> pb.PipelineStage:
        stage = super()._stage(name, index, rollback=rollback)
        stage.available_operation = pb.MANUAL_OPERATION_APPROVE
        return stage


async def test_a_deployment_publishes_each_step_once() -> None:
    plugins = FakePlugins(Approving("people", "WAIT_APPROVAL"), FakePlugin("steps", "STEP"))
    file = application_file(["WAIT_APPROVAL", "STEP"])
    world, heard = World(plugins, FakeSources({"c1": file})), list[str]()
    facts = world.facts
    facts.subscribe(DeploymentStarted, lambda _: heard.append("started"))
    facts.subscribe(Planned, lambda _: heard.append("planned"))
    facts.subscribe(
        StatusChanged, lambda fact: heard.append(pb.DeploymentStatus.Name(fact.deployment.status))
    )
    facts.subscribe(
        StageChanged,
        lambda fact: heard.append(f"{fact.stage.name} {pb.StageStatus.Name(fact.stage.status)}"),
    )
    facts.subscribe(WaitsForApproval, lambda fact: heard.append(f"{fact.stage.name} waits"))
    facts.subscribe(DeploymentCompleted, lambda fact: heard.append(f"completed {fact.was_started}"))

    async with world.running():
        world.controller.on_created(deployment("d1"))
        await world.memory.until_completed("d1")

    assert heard == [
        "started",
        "planned",
        "DEPLOYMENT_RUNNING",
        "WAIT_APPROVAL STAGE_RUNNING",
        "WAIT_APPROVAL waits",
        "WAIT_APPROVAL STAGE_SUCCESS",
        "STEP STAGE_RUNNING",
        "STEP STAGE_SUCCESS",
        "completed True",
    ]
