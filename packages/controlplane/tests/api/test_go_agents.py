# SPDX-License-Identifier: Apache-2.0
"""Every call of ours on an application of a Go agent: it is refused with a sentence, or has effect.

A Go agent holds no lease, watches nothing, and learns of people's wishes only by the commands that
it lists, and by what is refused to it. A call that is taken and does nothing is the one thing that
must not be.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
from google.protobuf.duration_pb2 import Duration

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.records import ReportedMessage
from pipecd_model.deployment import WAITS_FOR_DECISION
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.rpc import call_refused
from pipecd_wire.model import application_live_state_pb2 as live_state
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.common_pb2 import KUBERNETES
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.pipecd.api import api_pb2 as api
from pipecd_wire.pipecd.api import windows_pb2 as windows
from pipecd_wire.pipecd.api.api_pb2_grpc import PipedServiceStub
from pipecd_wire.pipecd.api.windows_pb2_grpc import WindowServiceStub
from pipecd_wire.pipecd.control import control_pb2 as control
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import CallError, call

FAILED: Final = {"name": "SCRIPT_RUN", "status": model.STAGE_FAILURE}


@dataclass(frozen=True)
class GoWorld:
    """An application of an agent that has never held a lease, with the running deployment `d1`."""

    plane: ServedControlPlane
    agent: AgentClient
    application_id: str

    async def commands(self) -> list[Command]:
        request = pipedservice.ListUnhandledCommandsRequest()
        return list((await call(self.agent.service.ListUnhandledCommands, request)).commands)

    async def create(self, deployment_id: str) -> str:
        """Create a deployment as the agent would; returns the refusal, or nothing."""
        deployment = self.plane.build.deployment(
            id=deployment_id,
            application_id=self.application_id,
            piped_id=self.agent.id,
            project_id="default",
        )
        try:
            await call(
                self.agent.service.CreateDeployment,
                pipedservice.CreateDeploymentRequest(deployment=deployment),
            )
        except CallError as error:
            return error.message
        return ""

    async def set_control(self, wanted: control.ApplicationControl) -> None:
        """What an agent of ours has left, whose place the Go agent has taken."""
        wanted.application_id = self.application_id

        def edit(
            known: ReportedMessage[control.ApplicationControl] | None,
        ) -> control.ApplicationControl:
            return wanted

        async def work(transaction: Transaction) -> None:
            await self.plane.stores.controls.change_in(
                transaction, "default", self.application_id, edit, piped_id=self.agent.id
            )

        await self.plane.stores.database.write(work)


@pytest.fixture
async def world(plane: ServedControlPlane) -> GoWorld:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    build = plane.build
    await plane.deployment(
        agent,
        application_id,
        "d1",
        build.stage(
            "wait",
            name="WAIT_APPROVAL",
            status=model.STAGE_RUNNING,
            available_operation=model.MANUAL_OPERATION_APPROVE,
        ),
        build.stage(
            "analysis",
            name="ANALYSIS",
            status=model.STAGE_RUNNING,
            available_operation=model.MANUAL_OPERATION_SKIP,
        ),
    )
    meta = pipedservice.ReportPipedMetaRequest(
        version="1", plugins=[Piped.Plugin(name="scriptrun")]
    )
    await call(agent.service.ReportPipedMeta, meta)
    await report_live_state(agent, application_id)
    await call(agent.service.ReportStat, pipedservice.ReportStatRequest(piped_stats=b"up 1\n"))
    return GoWorld(plane=plane, agent=agent, application_id=application_id)


async def report_live_state(agent: AgentClient, application_id: str) -> None:
    pod = live_state.ResourceState(
        id="pod", name="pod", plugin_name="kubernetes", created_at=1, updated_at=1
    )
    snapshot = live_state.ApplicationLiveStateSnapshot(
        application_id=application_id,
        piped_id=agent.id,
        project_id="default",
        kind=KUBERNETES,
        version=live_state.ApplicationLiveStateVersion(timestamp=5),
        application_live_state=live_state.ApplicationLiveState(resources=[pod]),
    )
    await call(
        agent.service.ReportApplicationLiveState,
        pipedservice.ReportApplicationLiveStateRequest(snapshot=snapshot),
    )


# Refused


def stub_of(world: GoWorld, service: str) -> Any:
    admin = world.plane.admin
    return {
        "DeploymentService": admin.deployments,
        "ApplicationService": admin.applications,
        "WindowService": WindowServiceStub(admin.channel),
        "PipedService": PipedServiceStub(admin.channel),
    }[service]


REFUSED: Final[dict[str, Callable[[GoWorld], Any]]] = {
    "DeploymentService.RetryStage": lambda _: api.RetryStageRequest(deployment_id="d1"),
    "DeploymentService.RollBackDeployment": lambda _: api.RollBackDeploymentRequest(
        deployment_id="d1"
    ),
    "DeploymentService.GetDeploymentDiff": lambda _: api.GetDeploymentDiffRequest(
        deployment_id="d1"
    ),
    "ApplicationService.RollBackApplication": lambda it: api.RollBackApplicationRequest(
        application_id=it.application_id
    ),
    "ApplicationService.ReleaseHold": lambda it: api.ReleaseHoldRequest(
        application_id=it.application_id
    ),
    "ApplicationService.OpenResource": lambda it: api.OpenResourceRequest(
        application_id=it.application_id, resource_id="pod"
    ),
    "WindowService.OverrideRules": lambda _: windows.OverrideRulesRequest(
        deployment_id="d1", reason="urgent"
    ),
    "PipedService.RestartPlugin": lambda it: api.RestartPluginRequest(
        piped_id=it.agent.id, plugin_name="scriptrun"
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_a_go_agent_cannot_do_is_refused_with_a_sentence(
    world: GoWorld, name: str
) -> None:
    """Although there is something to retry, to release and to open."""
    await world.set_control(control.ApplicationControl(hold=control.Hold(commit_hash="c1")))
    if name.startswith("DeploymentService"):
        await fail_and_wait(world)
    service, method = name.split(".")

    error = await call_refused(getattr(stub_of(world, service), method), REFUSED[name](world))

    assert error.status == "FAILED_PRECONDITION"
    assert "the piped 'agent'" in error.message
    assert "cannot" in error.message
    assert "upstream" in error.message, "it says which agents cannot"
    assert await world.commands() == []


async def fail_and_wait(world: GoWorld) -> None:
    """Make the deployment look as one that is kept open after a failure."""
    stage = world.plane.build.stage("failed", **FAILED)
    await call(world.agent.service.ReportDeploymentPlanned, world.plane.build.planned("d1", stage))
    await call(
        world.agent.service.ReportDeploymentStatusChanged,
        pipedservice.ReportDeploymentStatusChangedRequest(
            deployment_id="d1",
            status=model.DEPLOYMENT_RUNNING,
            status_reason=f"failed; {WAITS_FOR_DECISION}noon",
        ),
    )


# Effective


async def approve(world: GoWorld) -> None:
    await call(
        world.plane.admin.deployments.ApproveStage, api.ApproveStageRequest(deployment_id="d1")
    )
    assert [each.type for each in await world.commands()] == [Command.APPROVE_STAGE]


async def skip(world: GoWorld) -> None:
    request = api.SkipStageRequest(deployment_id="d1", stage_id="analysis")
    await call(world.plane.admin.deployments.SkipStage, request)
    assert [each.type for each in await world.commands()] == [Command.SKIP_STAGE]


async def cancel(world: GoWorld) -> None:
    request = api.CancelDeploymentRequest(deployment_id="d1")
    await call(world.plane.admin.deployments.CancelDeployment, request)
    assert [each.type for each in await world.commands()] == [Command.CANCEL_DEPLOYMENT]


async def sync(world: GoWorld) -> None:
    request = api.SyncApplicationRequest(application_id=world.application_id)
    await call(world.plane.admin.applications.SyncApplication, request)
    assert [each.type for each in await world.commands()] == [Command.SYNC_APPLICATION]


async def freeze(world: GoWorld) -> None:
    request = api.SetFreezeRequest(application_id=world.application_id, frozen=True)
    await call(world.plane.admin.applications.SetFreeze, request)
    assert "frozen" in await world.create("d2")
    request.frozen = False
    await call(world.plane.admin.applications.SetFreeze, request)
    assert await world.create("d2") == ""


async def release_pin(world: GoWorld) -> None:
    await world.set_control(control.ApplicationControl(pin=control.Pin(commit_hash="c0")))
    assert "pinned to c0" in await world.create("d2")
    request = api.ReleasePinRequest(application_id=world.application_id)
    await call(world.plane.admin.applications.ReleasePin, request)
    assert await world.create("d2") == ""


async def deny_by_window(world: GoWorld) -> None:
    stub: Any = stub_of(world, "WindowService")
    window = control.Window(
        name="always",
        effect=control.Window.DENY,
        start="2020-01-01T00:00:00",
        duration=Duration(seconds=86400),
        rule="FREQ=DAILY",
        time_zone="UTC",
    )
    await call(stub.SetWindow, windows.SetWindowRequest(window=window))
    assert "the window 'always' denies" in await world.create("d2")
    await call(stub.DeleteWindow, windows.DeleteWindowRequest(name="always"))
    assert await world.create("d2") == ""


async def stop_everything(world: GoWorld) -> None:
    stub: Any = stub_of(world, "WindowService")
    await call(stub.StopDeployments, windows.StopDeploymentsRequest(reason="fire"))
    assert "emergency stop" in await world.create("d2")
    await call(stub.ResumeDeployments, windows.ResumeDeploymentsRequest())
    assert await world.create("d2") == ""


EFFECTIVE: Final[dict[Callable[[GoWorld], Awaitable[None]], tuple[str, ...]]] = {
    approve: ("DeploymentService.ApproveStage",),
    skip: ("DeploymentService.SkipStage",),
    cancel: ("DeploymentService.CancelDeployment",),
    sync: ("ApplicationService.SyncApplication",),
    freeze: ("ApplicationService.SetFreeze",),
    release_pin: ("ApplicationService.ReleasePin",),
    deny_by_window: ("WindowService.SetWindow", "WindowService.DeleteWindow"),
    stop_everything: ("WindowService.StopDeployments", "WindowService.ResumeDeployments"),
}


@pytest.mark.parametrize("act", EFFECTIVE, ids=lambda act: act.__name__)
async def test_what_is_taken_for_a_go_agent_has_its_effect(
    world: GoWorld, act: Callable[[GoWorld], Awaitable[None]]
) -> None:
    await act(world)


# Neither: they ask nothing of an agent

ASKS_NOTHING: Final = {
    "DeploymentService.GetDeploymentRecord",
    "DeploymentService.WatchDeployment",
    "DeploymentService.ExplainWait",
    "DeploymentService.ListQueue",
    "DeploymentService.FollowStageLog",
    "ApplicationService.AddApplication",
    "ApplicationService.GetLiveState",
    "ApplicationService.GetApplicationControl",
    "ApplicationService.ListApplicationControls",
    "ApplicationService.GetCommandOutcome",
    "WindowService.GetRules",
    "WindowService.PreviewWindows",
    "PipedService.ListPipeds",
    "PipedService.DeletePiped",
}


def test_every_call_of_ours_is_in_the_table() -> None:
    services = [
        api.DESCRIPTOR.services_by_name["DeploymentService"],
        api.DESCRIPTOR.services_by_name["ApplicationService"],
        api.DESCRIPTOR.services_by_name["PipedService"],
        windows.DESCRIPTOR.services_by_name["WindowService"],
    ]
    listed = {f"{each.name}.{method.name}" for each in services for method in each.methods}
    effective = {name for names in EFFECTIVE.values() for name in names}

    assert listed == set(REFUSED) | effective | ASKS_NOTHING
    assert not set(REFUSED) & effective
