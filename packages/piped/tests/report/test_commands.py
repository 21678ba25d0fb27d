# SPDX-License-Identifier: Apache-2.0
"""A command is finished once: its outcome is reported, and it is forgotten."""

from google.protobuf.message import Message

from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.report.commands import CommandInbox, CommandOutcome, lane_of
from pipecd_piped.report.outbox import Outbox
from pipecd_wire.model.command_pb2 import COMMAND_FAILED, COMMAND_SUCCEEDED, Command
from pipecd_wire.pipedservice.service_pb2 import ReportCommandHandledRequest


def approve(id: str, stage_id: str) -> Command:
    return Command(
        id=id,
        type=Command.APPROVE_STAGE,
        application_id="web",
        deployment_id="d1",
        stage_id=stage_id,
    )


class Case:
    def __init__(self, *commands: Command) -> None:
        self.delivered: list[ReportCommandHandledRequest] = []
        self.state = ControlPlaneState()
        self.commands = commands
        self.list_again()
        self.outbox = Outbox(self.deliver)
        self.inbox = CommandInbox(self.state, self.outbox, clock=lambda: 7.5)

    def list_again(self) -> None:
        self.state.replace(applications=(), deployments=(), commands=self.commands)

    async def deliver(self, method: str, request: Message) -> None:
        assert method == "ReportCommandHandled"
        assert isinstance(request, ReportCommandHandledRequest)
        self.delivered.append(request)


async def test_a_finished_command_is_reported_and_no_listing_brings_it_back() -> None:
    case = Case(Command(id="c", type=Command.SYNC_APPLICATION, application_id="web"))
    async with case.outbox.open():
        case.inbox.finish(case.commands[0], CommandOutcome(metadata={"k": "v"}, output=b"out"))
        case.list_again()

    assert not case.state.commands
    [report] = case.delivered
    assert (report.command_id, report.status, report.handled_at) == ("c", COMMAND_SUCCEEDED, 7)
    assert (dict(report.metadata), report.output) == ({"k": "v"}, b"out")


async def test_a_failed_command_says_why() -> None:
    case = Case(Command(id="c", application_id="web"))
    async with case.outbox.open():
        case.inbox.finish(case.commands[0], CommandOutcome.fail("it is over"))

    [report] = case.delivered
    assert (report.status, dict(report.metadata)) == (COMMAND_FAILED, {"reason": "it is over"})


async def test_the_commands_of_a_stage_are_finished_when_it_ends() -> None:
    case = Case(approve("one", "s1"), approve("two", "s1"), approve("other", "s2"))
    async with case.outbox.open():
        case.inbox.finish_stage("d1", "s1")

    assert list(case.state.commands) == ["other"]
    assert sorted(each.command_id for each in case.delivered) == ["one", "two"]
    assert {each.status for each in case.delivered} == {COMMAND_SUCCEEDED}


def test_an_outcome_queues_behind_the_reports_of_its_application() -> None:
    assert lane_of(Command(id="c", application_id="web")) == "web"
    assert lane_of(Command(id="c")) == "c"


def test_a_preview_queues_behind_nothing() -> None:
    command = Command(id="c", type=Command.BUILD_PLAN_PREVIEW, application_id="web")

    assert lane_of(command) == "c"
