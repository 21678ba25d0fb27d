# SPDX-License-Identifier: Apache-2.0
"""What is told of a deployment, and that what plugins keep is told after it."""

import asyncio
from typing import Any

from google.protobuf.message import Message

from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.facts import DeploymentCompleted, DeploymentStarted, Facts, Planned, StageChanged
from pipecd_piped.report.commands import CommandInbox, CommandOutcome
from pipecd_piped.report.ordered import OrderedClient
from pipecd_piped.report.outbox import Outbox
from pipecd_piped.report.statuses import StatusReporter
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.command_pb2 import COMMAND_FAILED, Command
from pipecd_wire.pipedservice.service_pb2 import (
    SaveStageMetadataRequest,
    SaveStageMetadataResponse,
)
from pipecd_wire.rpc import connect

LIMIT = 20


class Receiver:
    def __init__(self) -> None:
        self.taken: list[tuple[str, Any]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, method: str, request: Message) -> None:
        await self.open.wait()
        self.taken.append((method, request))

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.taken]


def deployment(status: int = pb.DEPLOYMENT_RUNNING) -> pb.Deployment:
    return pb.Deployment(
        id="d1",
        application_id="web",
        status=status,  # type: ignore[arg-type]
        status_reason="because",
        stages=[pb.PipelineStage(id="s1", name="WAIT", status=pb.STAGE_RUNNING, completed_at=5)],
        created_at=1,
        completed_at=9,
    )


async def test_a_success_is_kept_as_what_runs_before_the_end_is_told() -> None:
    """A piped that dies between the two tells the end again; the other order would lose one."""
    receiver = Receiver()
    outbox = Outbox(receiver)
    async with asyncio.timeout(LIMIT), outbox.open():
        StatusReporter(outbox, receiver).report_completed(
            DeploymentCompleted(deployment=deployment(pb.DEPLOYMENT_SUCCESS), was_started=False)
        )

    assert receiver.methods == [
        "ReportApplicationMostRecentDeployment",
        "ReportDeploymentCompleted",
    ]
    reference = receiver.taken[0][1].deployment
    assert (reference.deployment_id, reference.started_at, reference.completed_at) == ("d1", 1, 9)


async def test_a_failure_is_not_what_runs() -> None:
    receiver = Receiver()
    outbox = Outbox(receiver)
    async with asyncio.timeout(LIMIT), outbox.open():
        StatusReporter(outbox, receiver).report_completed(
            DeploymentCompleted(deployment=deployment(pb.DEPLOYMENT_FAILURE), was_started=False)
        )

    assert receiver.methods == ["ReportDeploymentCompleted"]
    assert receiver.taken[0][1].stage_statuses == {"s1": pb.STAGE_RUNNING}


async def test_a_plan_is_told_after_all_before_it_and_waited_for() -> None:
    receiver = Receiver()
    receiver.open.clear()
    outbox = Outbox(receiver)
    async with asyncio.timeout(LIMIT), outbox.open():
        facts = Facts()
        StatusReporter(outbox, receiver).subscribe_to(facts)
        facts.publish(DeploymentStarted(deployment=deployment()))
        planned = asyncio.ensure_future(facts.publish_planned(Planned(deployment=deployment())))
        await asyncio.sleep(0.01)
        assert not planned.done()
        receiver.open.set()
        await planned

    assert receiver.methods == ["ReportApplicationDeployingStatus", "ReportDeploymentPlanned"]


async def test_a_refused_command_says_why() -> None:
    receiver = Receiver()
    outbox = Outbox(receiver)
    async with asyncio.timeout(LIMIT), outbox.open():
        commands = CommandInbox(ControlPlaneState(), outbox, clock=lambda: 7.5)
        commands.finish(Command(id="c", application_id="web"), CommandOutcome.fail("it is over"))

    [(_, request)] = receiver.taken
    assert (request.status, request.metadata["reason"]) == (COMMAND_FAILED, "it is over")
    assert request.handled_at == 7


async def test_what_a_plugin_keeps_is_told_after_the_start_of_its_stage() -> None:
    """Else a crash in that moment would leave a started script that nobody rolls back."""
    receiver = Receiver()
    receiver.open.clear()
    outbox = Outbox(receiver)
    told: list[str] = []

    async def save(request: Message, **_: object) -> SaveStageMetadataResponse:
        told.append("the mark")
        return SaveStageMetadataResponse()

    async with asyncio.timeout(LIMIT), outbox.open(), connect("unix:nowhere") as channel:
        reporter = StatusReporter(outbox, receiver)
        one = deployment()
        reporter.report_stage(StageChanged(deployment=one, stage=one.stages[0]))
        control = OrderedClient(ControlPlane(channel), reporter.wait_delivered)
        mark = SaveStageMetadataRequest(deployment_id="d1", stage_id="s1")
        keeping = asyncio.ensure_future(control.call_until_accepted(save, mark))
        await asyncio.sleep(0.01)
        assert told == []
        receiver.open.set()
        await keeping

    assert receiver.methods == ["ReportStageStatusChanged"]
    assert told == ["the mark"]
