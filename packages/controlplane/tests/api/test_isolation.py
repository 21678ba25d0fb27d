# SPDX-License-Identifier: Apache-2.0
"""One project cannot see or touch another's, nor one piped another's, whatever it calls."""

from typing import Any

import pytest
from google.protobuf.message import Message

from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.rpc import StreamMethod, UnaryMethod
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import application_pb2, command_pb2, common_pb2
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import CallError, call, stream


async def status_of(method: UnaryMethod, request: Message) -> str:
    with pytest.raises(CallError) as caught:
        await call(method, request)
    return caught.value.status


def piped_calls(
    build: MessageBuilder, agent: AgentClient, application_id: str
) -> list[tuple[UnaryMethod, Message]]:
    """Every call of a piped that names an application or a deployment."""
    service = agent.service
    app: dict[str, Any] = {"application_id": application_id}
    deployment: dict[str, Any] = {"deployment_id": "d1"}
    reference = application_pb2.ApplicationDeploymentReference(
        deployment_id="d", trigger=build.trigger(), started_at=5
    )
    return [
        (
            service.ReportApplicationSyncState,
            pb.ReportApplicationSyncStateRequest(
                **app, state=application_pb2.ApplicationSyncState(timestamp=1)
            ),
        ),
        (
            service.ReportApplicationDeployingStatus,
            pb.ReportApplicationDeployingStatusRequest(**app, deploying=True),
        ),
        (
            service.ReportApplicationMostRecentDeployment,
            pb.ReportApplicationMostRecentDeploymentRequest(**app, deployment=reference),
        ),
        (
            service.GetApplicationMostRecentDeployment,
            pb.GetApplicationMostRecentDeploymentRequest(**app),
        ),
        (
            service.GetApplicationSharedObject,
            pb.GetApplicationSharedObjectRequest(**app, plugin_name="p", key="k"),
        ),
        (
            service.PutApplicationSharedObject,
            pb.PutApplicationSharedObjectRequest(**app, plugin_name="p", key="k", object=b"x"),
        ),
        (
            service.UpdateApplicationConfigurations,
            pb.UpdateApplicationConfigurationsRequest(
                applications=[
                    common_pb2.ApplicationInfo(
                        id=application_id, name="n", repo_id="r", path="apps", piped_id="p"
                    )
                ]
            ),
        ),
        (
            service.CreateDeployment,
            pb.CreateDeploymentRequest(
                deployment=build.deployment(id="d2", application_id=application_id)
            ),
        ),
        (service.GetDeployment, pb.GetDeploymentRequest(id="d1")),
        (service.ReportDeploymentPlanned, build.planned("d1")),
        (
            service.ReportDeploymentStatusChanged,
            pb.ReportDeploymentStatusChangedRequest(
                **deployment, status=model.DEPLOYMENT_ROLLING_BACK
            ),
        ),
        (
            service.ReportDeploymentCompleted,
            pb.ReportDeploymentCompletedRequest(
                **deployment, status=model.DEPLOYMENT_FAILURE, completed_at=1
            ),
        ),
        (
            service.SaveDeploymentMetadata,
            pb.SaveDeploymentMetadataRequest(**deployment, metadata={"a": "b"}),
        ),
        (
            service.SaveDeploymentSharedMetadata,
            pb.SaveDeploymentSharedMetadataRequest(**deployment, metadata={"a": "b"}),
        ),
        (
            service.SaveDeploymentPluginMetadata,
            pb.SaveDeploymentPluginMetadataRequest(
                **deployment, plugin_name="p", metadata={"a": "b"}
            ),
        ),
        (
            service.SaveStageMetadata,
            pb.SaveStageMetadataRequest(**deployment, stage_id="s1", metadata={"a": "b"}),
        ),
        (
            service.ReportStageStatusChanged,
            build.stage_report("d1", "s1", model.STAGE_FAILURE),
        ),
        (
            service.ReportStageLogs,
            pb.ReportStageLogsRequest(**deployment, stage_id="s1", blocks=build.blocks(1)),
        ),
        (
            service.ReportStageLogsFromLastCheckpoint,
            pb.ReportStageLogsFromLastCheckpointRequest(
                **deployment, stage_id="s1", blocks=build.blocks(1), completed=True
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("same_project", "status"), [(True, "PERMISSION_DENIED"), (False, "NOT_FOUND")]
)
async def test_a_piped_cannot_touch_what_is_not_its_own(
    plane: ServedControlPlane, build: MessageBuilder, same_project: bool, status: str
) -> None:
    owner = await plane.agent()
    application_id = await plane.application(owner)
    await plane.deployment(owner, application_id, "d1", build.stage("s1"))
    asked = await call(
        plane.admin.api.SyncApplication, api.SyncApplicationRequest(application_id=application_id)
    )
    before = (
        await plane.read_deployment(),
        await plane.stores.applications.get("default", application_id),
    )
    user = plane.admin if same_project else await plane.other_project()
    stranger = await plane.agent(user, name="stranger")

    for method, request in piped_calls(build, stranger, application_id):
        assert await status_of(method, request) == status, type(request).__name__

    handled = pb.ReportCommandHandledRequest(
        command_id=asked.command_id, status=command_pb2.COMMAND_FAILED, handled_at=1
    )
    assert await status_of(stranger.service.ReportCommandHandled, handled) == "NOT_FOUND"
    service = stranger.service
    listed = await call(service.ListApplications, pb.ListApplicationsRequest())
    assert list(listed.applications) == []
    unfinished = await call(
        service.ListNotCompletedDeployments, pb.ListNotCompletedDeploymentsRequest()
    )
    assert list(unfinished.deployments) == []
    commands = await call(service.ListUnhandledCommands, pb.ListUnhandledCommandsRequest())
    assert list(commands.commands) == []
    after = (
        await plane.read_deployment(),
        await plane.stores.applications.get("default", application_id),
    )
    assert after == before


async def test_another_projects_things_are_not_found(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    """Never 'forbidden': that would say that they exist."""
    owner = await plane.agent()
    application_id = await plane.application(owner)
    await plane.deployment(owner, application_id, "d1", build.stage("s1"))
    asked = await call(
        plane.admin.api.SyncApplication, api.SyncApplicationRequest(application_id=application_id)
    )
    theirs = await plane.other_project()
    their_piped = await plane.agent(theirs, name="theirs")
    app: dict[str, Any] = {"application_id": application_id}
    piped: dict[str, Any] = {"piped_id": owner.id}

    calls: list[tuple[UnaryMethod, Message]] = [
        (theirs.api.GetApplication, api.GetApplicationRequest(**app)),
        (theirs.api.SyncApplication, api.SyncApplicationRequest(**app)),
        (theirs.api.EnableApplication, api.EnableApplicationRequest(**app)),
        (theirs.api.DisableApplication, api.DisableApplicationRequest(**app)),
        (theirs.api.DeleteApplication, api.DeleteApplicationRequest(**app)),
        (
            theirs.api.UpdateApplication,
            api.UpdateApplicationRequest(**app, piped_id=their_piped.id, git_path=build.git_path()),
        ),
        (
            theirs.api.RenameApplicationConfigFile,
            api.RenameApplicationConfigFileRequest(
                application_ids=[application_id], new_filename="x"
            ),
        ),
        (
            theirs.api.UpdateApplicationDeployTargets,
            api.UpdateApplicationDeployTargetsRequest(
                **app, deploy_targets_by_plugin={"p": model.DeployTargets()}
            ),
        ),
        (
            theirs.api.AddApplication,
            api.AddApplicationRequest(name="n", git_path=build.git_path(), **piped),
        ),
        (theirs.api.GetDeployment, api.GetDeploymentRequest(deployment_id="d1")),
        (theirs.api.ListStageLogs, api.ListStageLogsRequest(deployment_id="d1")),
        (theirs.api.GetCommand, api.GetCommandRequest(command_id=asked.command_id)),
        (theirs.api.GetPiped, api.GetPipedRequest(**piped)),
        (theirs.api.UpdatePiped, api.UpdatePipedRequest(name="n", **piped)),
        (theirs.api.EnablePiped, api.EnablePipedRequest(**piped)),
        (theirs.api.DisablePiped, api.DisablePipedRequest(**piped)),
        (
            theirs.deployments.ApproveStage,
            own.ApproveStageRequest(deployment_id="d1", stage_id="s1"),
        ),
        (theirs.deployments.SkipStage, own.SkipStageRequest(deployment_id="d1", stage_id="s1")),
        (theirs.deployments.CancelDeployment, own.CancelDeploymentRequest(deployment_id="d1")),
        (theirs.deployments.ExplainWait, own.ExplainWaitRequest(deployment_id="d1")),
        (theirs.pipeds.DeletePiped, own.DeletePipedRequest(**piped)),
    ]
    for method, request in calls:
        assert await status_of(method, request) == "NOT_FOUND", type(request).__name__

    streams: list[tuple[StreamMethod, Message]] = [
        (theirs.deployments.WatchDeployment, own.WatchDeploymentRequest(deployment_id="d1")),
        (
            theirs.deployments.FollowStageLog,
            own.FollowStageLogRequest(deployment_id="d1", stage_id="s1"),
        ),
    ]
    for streaming, asked_for in streams:
        with pytest.raises(CallError) as caught:
            await anext(stream(streaming, asked_for))
        assert caught.value.status == "NOT_FOUND"

    applications = await call(theirs.api.ListApplications, api.ListApplicationsRequest())
    deployments = await call(theirs.api.ListDeployments, api.ListDeploymentsRequest())
    pipeds = await call(theirs.pipeds.ListPipeds, own.ListPipedsRequest())
    assert list(applications.applications) == []
    assert list(deployments.deployments) == []
    assert [item.piped.id for item in pipeds.pipeds] == [their_piped.id]
