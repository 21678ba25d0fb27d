# SPDX-License-Identifier: Apache-2.0
"""The trigger's calls over real gRPC, against a small control plane."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest

from pipecd_model.errors import ConflictError, NotFoundError, UnavailableError
from pipecd_piped.controlplane.client import connected
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.facts import Facts
from pipecd_piped.report.commands import CommandInbox, CommandOutcome
from pipecd_piped.report.outbox import Outbox
from pipecd_piped.report.statuses import StatusReporter
from pipecd_piped.trigger import ControlPlaneCalls
from pipecd_test_support.trigger_bench import NOW, Bench, application, sync
from pipecd_wire.model.application_pb2 import SYNCED, ApplicationSyncState
from pipecd_wire.model.command_pb2 import COMMAND_FAILED, COMMAND_SUCCEEDED
from pipecd_wire.model.deployment_pb2 import DEPLOYMENT_PENDING, Deployment
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import Endpoints, admit_all, rpc, serving

LIMIT = 30.0


class ControlPlane:
    """As much of the service as the trigger uses; requests are checked on the way in."""

    def __init__(self) -> None:
        self.deployments: dict[str, Deployment] = {}
        self.reports: list[Any] = []
        self._something = asyncio.Event()

    @rpc("CreateDeployment")
    async def create(
        self, caller: object, request: pb.CreateDeploymentRequest
    ) -> pb.CreateDeploymentResponse:
        if request.deployment.id in self.deployments:
            raise ConflictError("there already")
        self.deployments[request.deployment.id] = request.deployment
        self._note()
        return pb.CreateDeploymentResponse()

    @rpc("GetApplicationMostRecentDeployment")
    async def most_recent(
        self, caller: object, request: pb.GetApplicationMostRecentDeploymentRequest
    ) -> pb.GetApplicationMostRecentDeploymentResponse:
        assert request.status == DEPLOYMENT_PENDING
        for report in reversed(self.reports):
            if isinstance(report, pb.ReportApplicationMostRecentDeploymentRequest):
                return pb.GetApplicationMostRecentDeploymentResponse(deployment=report.deployment)
        raise NotFoundError("none yet")

    @rpc("ReportApplicationMostRecentDeployment")
    async def report_most_recent(
        self, caller: object, request: pb.ReportApplicationMostRecentDeploymentRequest
    ) -> pb.ReportApplicationMostRecentDeploymentResponse:
        self._keep(request)
        return pb.ReportApplicationMostRecentDeploymentResponse()

    @rpc("ReportApplicationSyncState")
    async def report_sync_state(
        self, caller: object, request: pb.ReportApplicationSyncStateRequest
    ) -> pb.ReportApplicationSyncStateResponse:
        self._keep(request)
        return pb.ReportApplicationSyncStateResponse()

    @rpc("ReportCommandHandled")
    async def report_command(
        self, caller: object, request: pb.ReportCommandHandledRequest
    ) -> pb.ReportCommandHandledResponse:
        self._keep(request)
        return pb.ReportCommandHandledResponse()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not condition():
                await self._something.wait()

    def _keep(self, request: Any) -> None:
        self.reports.append(request)
        self._note()

    def _note(self) -> None:
        self._something.set()
        self._something = asyncio.Event()


class Wired(NamedTuple):
    plane: ControlPlane
    calls: ControlPlaneCalls
    state: ControlPlaneState


@pytest.fixture
async def wired() -> AsyncIterator[Wired]:
    plane = ControlPlane()
    service = pb.DESCRIPTOR.services_by_name["PipedService"]
    served = {
        "CreateDeployment",
        "GetApplicationMostRecentDeployment",
        "ReportApplicationMostRecentDeployment",
        "ReportApplicationSyncState",
        "ReportCommandHandled",
    }
    endpoints = Endpoints(admit=admit_all)
    endpoints.add(service, plane, unimplemented=set(service.methods_by_name) - served)
    async with AsyncExitStack() as opened:
        port = await opened.enter_async_context(serving(endpoints, "127.0.0.1:0"))
        control = await opened.enter_async_context(
            connected(f"127.0.0.1:{port}", project_id="p", piped_id="i", key="k", tls=None)
        )
        outbox = Outbox(control.deliver_named)
        await opened.enter_async_context(outbox.open(drain=LIMIT))
        facts, state = Facts(), ControlPlaneState()
        StatusReporter(outbox, control.deliver_named).subscribe_to(facts)
        commands = CommandInbox(state, outbox, clock=lambda: NOW)
        yield Wired(plane, ControlPlaneCalls(control, facts, commands), state)


async def test_a_commit_becomes_a_deployment_over_the_wire(bench: Bench, wired: Wired) -> None:
    plane, calls, state = wired
    bench.desk = calls  # type: ignore[assignment] # the real one
    async with bench.running(application("web"), state=state):
        await plane.until(lambda: bool(plane.reports))
        bench.tell(sync("web"), sync("web", "c2"))
        await plane.until(lambda: len(plane.reports) == 5)

    first, second, third = plane.deployments.values()
    assert [each.id for each in bench.handed] == [first.id, second.id, third.id]
    last = await calls.last_triggered("web")
    assert last is not None
    assert last.deployment_id == third.id
    answers = [each for each in plane.reports if isinstance(each, pb.ReportCommandHandledRequest)]
    assert [(each.command_id, each.status, dict(each.metadata)) for each in answers] == [
        ("c1", COMMAND_SUCCEEDED, {"TriggeredDeploymentID": second.id}),
        ("c2", COMMAND_SUCCEEDED, {"TriggeredDeploymentID": third.id}),
    ]


async def test_no_deployment_yet_is_an_answer(
    wired: Wired,
) -> None:
    calls = wired.calls

    assert await calls.last_triggered("web") is None


async def test_a_repeated_deployment_is_a_conflict(bench: Bench, wired: Wired) -> None:
    plane, calls, _ = wired
    async with bench.running(application("web")):
        await bench.desk.until(lambda: bool(bench.desk.created))
    (deployment,) = bench.desk.created

    await calls.create(deployment)
    with pytest.raises(ConflictError):
        await calls.create(deployment)

    assert list(plane.deployments) == [deployment.id]


async def test_refusals_and_states_arrive_complete(
    wired: Wired,
) -> None:
    plane, calls, _ = wired

    calls.finish_command(sync("web"), CommandOutcome.fail("because"))
    calls.report_sync_state("web", ApplicationSyncState(status=SYNCED, timestamp=NOW))
    await plane.until(lambda: len(plane.reports) == 2)

    refusal, state = plane.reports
    assert (refusal.status, dict(refusal.metadata)) == (COMMAND_FAILED, {"reason": "because"})
    assert (refusal.command_id, refusal.handled_at) == ("c1", NOW)
    assert (state.application_id, state.state.status) == ("web", SYNCED)


async def test_a_control_plane_that_is_away_is_worth_a_retry(bench: Bench) -> None:
    async with bench.running(application("web")):
        await bench.desk.until(lambda: bool(bench.desk.created))
    async with connected("127.0.0.1:1", project_id="p", piped_id="i", key="k", tls=None) as control:
        commands = CommandInbox(ControlPlaneState(), Outbox(control.deliver_named))
        calls = ControlPlaneCalls(control, Facts(), commands)
        with pytest.raises(UnavailableError):
            await calls.create(bench.desk.created[0])
