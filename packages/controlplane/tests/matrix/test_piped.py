# SPDX-License-Identifier: Apache-2.0
"""Every RPC that pipeds call, as everybody: upstream's service, the push, and traces."""

import asyncio

import pytest
from google.protobuf.message import Message

from pipecd_controlplane.api.v1.telemetry import SERVICE as TRACES
from pipecd_controlplane.api.v1.telemetry import ExportRequest
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_test_support.project_side import ProjectSide
from pipecd_test_support.rights_matrix import RightsMatrix, naming, plain
from pipecd_wire.model import (
    analysis_result_pb2,
    application_live_state_pb2,
    application_pb2,
    command_pb2,
    common_pb2,
    deployment_pb2,
    event_pb2,
)
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pb

NOON = 1_700_000_000
SERVICE = pb.DESCRIPTOR.services_by_name["PipedService"]
PUSH = push_pb2.DESCRIPTOR.services_by_name["PushService"]


async def most_recent(side: ProjectSide) -> Message:
    reference = application_pb2.ApplicationDeploymentReference(
        deployment_id=side.id(), trigger=side.build.trigger(), started_at=NOON
    )
    application_id = await side.application(most_recently_triggered_deployment=reference)
    return pb.GetApplicationMostRecentDeploymentRequest(
        application_id=application_id, status=deployment_pb2.DEPLOYMENT_PENDING
    )


async def report_most_recent(side: ProjectSide) -> Message:
    return pb.ReportApplicationMostRecentDeploymentRequest(
        application_id=await side.application(),
        status=deployment_pb2.DEPLOYMENT_PENDING,
        deployment=application_pb2.ApplicationDeploymentReference(
            deployment_id="d", trigger=side.build.trigger(), started_at=NOON
        ),
    )


async def create(side: ProjectSide) -> Message:
    return pb.CreateDeploymentRequest(deployment=side.new_deployment(await side.application()))


async def create_chain(side: ProjectSide) -> Message:
    name = side.id()
    await side.application(name=name)
    return pb.CreateDeploymentChainRequest(
        first_deployment=side.new_deployment(await side.application()),
        matchers=[pb.CreateDeploymentChainRequest.ApplicationMatcher(name=name)],
    )


async def plannable(side: ProjectSide) -> Message:
    return pb.InChainDeploymentPlannableRequest(
        deployment_id=await side.deployment(),
        deployment_chain_id=await side.chain(),
        deployment_chain_block_index=0,
    )


async def live_state(side: ProjectSide) -> Message:
    return pb.ReportApplicationLiveStateRequest(snapshot=side.snapshot(await side.application()))


async def live_state_events(side: ProjectSide) -> Message:
    state = application_live_state_pb2.KubernetesResourceState(
        id="r", name="r", api_version="v1", kind="Pod", created_at=NOON, updated_at=NOON
    )
    event = application_live_state_pb2.KubernetesResourceStateEvent(
        id="e",
        application_id=await side.live_state(),
        state=state,
        snapshot_version=application_live_state_pb2.ApplicationLiveStateVersion(timestamp=NOON),
        created_at=NOON,
    )
    return pb.ReportApplicationLiveStateEventsRequest(kubernetes_events=[event])


async def latest_event(side: ProjectSide) -> Message:
    await side.event()
    return pb.GetLatestEventRequest(name="image")


async def register_event(side: ProjectSide) -> Message:
    return push_pb2.RegisterEventRequest(
        deployment_id=await side.deployment(), name="deployed", data="1"
    )


async def event_statuses(side: ProjectSide) -> Message:
    event = pb.ReportEventStatusesRequest.Event(
        id=await side.event(), status=event_pb2.EVENT_SUCCESS, status_description="done"
    )
    return pb.ReportEventStatusesRequest(events=[event])


async def configurations(side: ProjectSide) -> Message:
    info = common_pb2.ApplicationInfo(
        id=await side.application(),
        name="n",
        piped_id=side.piped_id,
        repo_id="repo",
        path="apps/a",
        config_filename="app.pipecd.yaml",
    )
    return pb.UpdateApplicationConfigurationsRequest(applications=[info])


async def analysis(side: ProjectSide) -> Message:
    application_id = await side.application()
    await side.as_piped(
        pb.PutLatestAnalysisResultRequest(
            application_id=application_id,
            analysis_result=analysis_result_pb2.AnalysisResult(start_time=NOON),
        )
    )
    return pb.GetLatestAnalysisResultRequest(application_id=application_id)


async def shared_object(side: ProjectSide) -> Message:
    names = {"application_id": await side.application(), "plugin_name": "wait", "key": "k"}
    await side.as_piped(pb.PutApplicationSharedObjectRequest(object=b"x", **names))
    return pb.GetApplicationSharedObjectRequest(**names)


METADATA = {"k": "v"}
BLOCKS = [{"index": 1, "log": "line", "created_at": NOON}]
STATE = application_pb2.ApplicationSyncState(
    status=application_pb2.SYNCED, timestamp=NOON, short_reason="r"
)

ENTRIES = {
    "ReportStat": plain(pb.ReportStatRequest(piped_stats=b"up 1\n")),
    "ReportPipedMeta": plain(
        pb.ReportPipedMetaRequest(
            version="v1.0.0",
            repositories=[
                common_pb2.ApplicationGitRepository(
                    id="repo", remote="https://git.example.com/a.git", branch="main"
                )
            ],
        )
    ),
    "ListApplications": plain(pb.ListApplicationsRequest()),
    "ReportApplicationSyncState": naming(
        "application", pb.ReportApplicationSyncStateRequest, "application_id", state=STATE
    ),
    "ReportApplicationDeployingStatus": naming(
        "application", pb.ReportApplicationDeployingStatusRequest, "application_id", deploying=True
    ),
    "ReportApplicationMostRecentDeployment": report_most_recent,
    "GetApplicationMostRecentDeployment": most_recent,
    "GetDeployment": naming("deployment", pb.GetDeploymentRequest, "id"),
    "ListNotCompletedDeployments": plain(pb.ListNotCompletedDeploymentsRequest()),
    "CreateDeployment": create,
    "ReportDeploymentPlanned": naming(
        "deployment", pb.ReportDeploymentPlannedRequest, "deployment_id", summary="s"
    ),
    "ReportDeploymentStatusChanged": naming(
        "deployment",
        pb.ReportDeploymentStatusChangedRequest,
        "deployment_id",
        status=deployment_pb2.DEPLOYMENT_ROLLING_BACK,
    ),
    "ReportDeploymentCompleted": naming(
        "deployment",
        pb.ReportDeploymentCompletedRequest,
        "deployment_id",
        status=deployment_pb2.DEPLOYMENT_SUCCESS,
        completed_at=NOON,
    ),
    "SaveDeploymentMetadata": naming(
        "deployment", pb.SaveDeploymentMetadataRequest, "deployment_id", metadata=METADATA
    ),
    "SaveDeploymentSharedMetadata": naming(
        "deployment", pb.SaveDeploymentSharedMetadataRequest, "deployment_id", metadata=METADATA
    ),
    "SaveDeploymentPluginMetadata": naming(
        "deployment",
        pb.SaveDeploymentPluginMetadataRequest,
        "deployment_id",
        plugin_name="wait",
        metadata=METADATA,
    ),
    "SaveStageMetadata": naming(
        "deployment",
        pb.SaveStageMetadataRequest,
        "deployment_id",
        stage_id="s1",
        metadata=METADATA,
    ),
    "ReportStageLogs": naming(
        "deployment", pb.ReportStageLogsRequest, "deployment_id", stage_id="s1", blocks=BLOCKS
    ),
    "ReportStageLogsFromLastCheckpoint": naming(
        "deployment",
        pb.ReportStageLogsFromLastCheckpointRequest,
        "deployment_id",
        stage_id="s1",
        blocks=BLOCKS,
        completed=True,
    ),
    "ReportStageStatusChanged": naming(
        "deployment",
        pb.ReportStageStatusChangedRequest,
        "deployment_id",
        stage_id="s1",
        status=deployment_pb2.STAGE_SUCCESS,
        completed_at=NOON,
    ),
    "ListUnhandledCommands": plain(pb.ListUnhandledCommandsRequest()),
    "ReportCommandHandled": naming(
        "command",
        pb.ReportCommandHandledRequest,
        "command_id",
        status=command_pb2.COMMAND_SUCCEEDED,
        handled_at=NOON,
    ),
    "ReportApplicationLiveState": live_state,
    "ReportApplicationLiveStateEvents": live_state_events,
    "GetLatestEvent": latest_event,
    "ListEvents": plain(pb.ListEventsRequest()),
    "ReportEventStatuses": event_statuses,
    "GetLatestAnalysisResult": analysis,
    "PutLatestAnalysisResult": naming(
        "application",
        pb.PutLatestAnalysisResultRequest,
        "application_id",
        analysis_result=analysis_result_pb2.AnalysisResult(start_time=NOON),
    ),
    "GetDesiredVersion": plain(pb.GetDesiredVersionRequest()),
    "UpdateApplicationConfigurations": configurations,
    "ReportUnregisteredApplicationConfigurations": plain(
        pb.ReportUnregisteredApplicationConfigurationsRequest()
    ),
    "CreateDeploymentChain": create_chain,
    "InChainDeploymentPlannable": plannable,
    "GetApplicationSharedObject": shared_object,
    "PutApplicationSharedObject": naming(
        "application",
        pb.PutApplicationSharedObjectRequest,
        "application_id",
        plugin_name="wait",
        key="k",
        object=b"x",
    ),
}


async def release_lease(side: ProjectSide) -> Message:
    return push_pb2.ReleaseLeaseRequest(instance_id="i", epoch=1)


async def own_command(side: ProjectSide) -> Message:
    command = push_pb2.Command(id=side.id())
    await side.stores.push_commands.add(side.project_id, side.piped_id, command)
    return push_pb2.ReportCommandHandledRequest(command_id=command.id, succeeded=True)


async def answer_question(side: ProjectSide) -> Message:
    agent = Agent(project_id=side.project_id, piped_id=side.piped_id)
    questions = side.plane.running.questions
    question = push_pb2.Question(id=side.id())
    take = await side.plane.opened.enter_async_context(questions.channel(agent))
    asked = asyncio.ensure_future(questions.ask(agent, question, seconds=600))
    side.plane.opened.callback(asked.cancel)
    taken: set[str] = set()
    while question.id not in taken:  # what is shared is written to a table first
        await asyncio.sleep(0)
        taken |= {each.id for each in await take()}
    return push_pb2.AnswerQuestionRequest(question_id=question.id)


async def found_application(side: ProjectSide) -> Message:
    name = side.id()
    found = push_pb2.FoundApplication(name=name, repository_id="repo", path=f"apps/{name}")
    return push_pb2.RegisterApplicationsRequest(applications=[found])


PUSH_ENTRIES = {
    "Watch": plain(push_pb2.WatchRequest(instance_id="i", data_folder_id="f")),
    "RenewLease": plain(push_pb2.RenewLeaseRequest(instance_id="i", epoch=1)),
    "ReleaseLease": release_lease,
    "ReportCommandHandled": own_command,
    "ReportPlugins": plain(push_pb2.ReportPluginsRequest()),
    "RegisterEvent": register_event,
    "ReportQueue": plain(push_pb2.ReportQueueRequest()),
    "ReportProgress": naming("deployment", push_pb2.ReportProgressRequest, "deployment_id"),
    "AnswerQuestion": answer_question,
    "RegisterApplications": found_application,
}


@pytest.mark.timeout(600)
async def test_piped_service(world: RightsMatrix) -> None:
    await world.judge(SERVICE, ENTRIES)


@pytest.mark.timeout(600)
async def test_push_service(world: RightsMatrix) -> None:
    await world.judge(PUSH, PUSH_ENTRIES)


@pytest.mark.timeout(600)
async def test_traces(world: RightsMatrix) -> None:
    await world.judge(TRACES, {"Export": plain(ExportRequest())})
