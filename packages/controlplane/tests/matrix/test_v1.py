# SPDX-License-Identifier: Apache-2.0
"""Every RPC of our own API as everybody; and that no service is left out."""

import importlib
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

import pipecd_wire
from pipecd_controlplane.api import unimplemented
from pipecd_model.deployment import WAITS_FOR_DECISION
from pipecd_model.ids import new_id
from pipecd_test_support.answering_agent import answering
from pipecd_test_support.project_side import ProjectSide
from pipecd_test_support.rights_matrix import RightsMatrix, naming, plain
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.application_live_state_pb2 import ResourceState
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.options import rights_pb2
from pipecd_wire.pipecd.api import (
    access_pb2,
    api_pb2,
    chains_pb2,
    logs_pb2,
    overview_pb2,
    repositories_pb2,
    windows_pb2,
)
from pipecd_wire.pipecd.control import control_pb2
from pipecd_wire.pipecd.control.control_pb2 import DeploymentDiff
from pipecd_wire.pipecd.details.details_pb2 import ResourceDetails
from pipecd_wire.pipecd.push import push_pb2

OWN = api_pb2.DESCRIPTOR.services_by_name
ACCESS = access_pb2.DESCRIPTOR.services_by_name
WINDOW = control_pb2.Window(
    name="night",
    effect=control_pb2.Window.DENY,
    start="2026-03-02T22:00:00",
    duration=Duration(seconds=3600),
    time_zone="UTC",
)
WINDOWS = windows_pb2.DESCRIPTOR.services_by_name
CHAINS = chains_pb2.DESCRIPTOR.services_by_name
REPOSITORIES = repositories_pb2.DESCRIPTOR.services_by_name

COVERED = {
    "grpc.service.webservice.WebService",
    "grpc.service.apiservice.APIService",
    "grpc.service.pipedservice.PipedService",
    "pipecd.push.v1.PushService",
    "pipecd.api.v1.DeploymentService",
    "pipecd.api.v1.ApplicationService",
    "pipecd.api.v1.PipedService",
    "pipecd.api.v1.ProjectService",
    "pipecd.api.v1.AccessService",
    "pipecd.api.v1.ApiKeyService",
    "pipecd.api.v1.RepositoryService",
    "pipecd.api.v1.OverviewService",
    "pipecd.api.v1.StageLogService",
    "pipecd.api.v1.WindowService",
    "pipecd.api.v1.ChainService",
}


async def roll_back_deployment(side: ProjectSide) -> Message:
    deployment_id = await side.deployment(running_commit_hash="b" * 40)
    return api_pb2.RollBackDeploymentRequest(deployment_id=deployment_id)


async def retry_stage(side: ProjectSide) -> Message:
    failed = side.build.stage("s1", status=deployment_pb2.STAGE_FAILURE)
    deployment_id = await side.deployment(
        stages=[failed], status_reason=f"s1 failed; {WAITS_FOR_DECISION}noon"
    )
    return api_pb2.RetryStageRequest(deployment_id=deployment_id)


async def release_hold(side: ProjectSide) -> Message:
    hold = control_pb2.Hold(commit_hash="b" * 40, deployment_id="d")
    return api_pb2.ReleaseHoldRequest(application_id=await side.controlled(hold=hold))


async def release_pin(side: ProjectSide) -> Message:
    pin = control_pb2.Pin(commit_hash="b" * 40, by="ann")
    return api_pb2.ReleasePinRequest(application_id=await side.controlled(pin=pin))


async def set_freeze(side: ProjectSide) -> Message:
    return api_pb2.SetFreezeRequest(application_id=await side.application(), frozen=True)


async def delete_window(side: ProjectSide) -> Message:
    await side.set_rules(control_pb2.ProjectRules(windows=[WINDOW]))
    return windows_pb2.DeleteWindowRequest(name=WINDOW.name)


async def override_rules(side: ProjectSide) -> Message:
    return windows_pb2.OverrideRulesRequest(
        deployment_id=await side.deployment(), reason="it is urgent"
    )


async def roll_back_application(side: ProjectSide) -> Message:
    return api_pb2.RollBackApplicationRequest(
        application_id=await side.application(), commit_hash="b" * 40
    )


async def get_command_outcome(side: ProjectSide) -> Message:
    command = push_pb2.Command(
        id=side.id(), type=push_pb2.Command.ROLL_BACK, application_id=await side.application()
    )
    await side.stores.push_commands.add(side.project_id, side.piped_id, command)
    return api_pb2.GetCommandOutcomeRequest(command_id=command.id)


@pytest.mark.timeout(600)
async def test_deployment_service(world: RightsMatrix) -> None:
    entries = {
        "ApproveStage": naming(
            "deployment", api_pb2.ApproveStageRequest, "deployment_id", stage_id="s1"
        ),
        "SkipStage": naming("deployment", api_pb2.SkipStageRequest, "deployment_id", stage_id="s2"),
        "CancelDeployment": naming("deployment", api_pb2.CancelDeploymentRequest, "deployment_id"),
        "RollBackDeployment": roll_back_deployment,
        "RetryStage": retry_stage,
        "GetDeploymentRecord": naming(
            "deployment", api_pb2.GetDeploymentRecordRequest, "deployment_id"
        ),
        "GetDeploymentDiff": naming(
            "deployment", api_pb2.GetDeploymentDiffRequest, "deployment_id"
        ),
        "WatchDeployment": naming("deployment", api_pb2.WatchDeploymentRequest, "deployment_id"),
        "ExplainWait": naming("deployment", api_pb2.ExplainWaitRequest, "deployment_id"),
        "ListQueue": plain(api_pb2.ListQueueRequest()),
        "FollowStageLog": naming(
            "log", api_pb2.FollowStageLogRequest, "deployment_id", stage_id="s1"
        ),
    }
    ours = world.ours
    agent = await ours.plane.agent_with(ours.project_id, ours.piped_id, ours.piped_key)
    async with answering(agent, tell_whose):
        await world.judge(OWN["DeploymentService"], entries, unimplemented.DEPLOYMENT_SERVICE)


@pytest.mark.timeout(600)
async def test_overview_service(world: RightsMatrix) -> None:
    await world.ours.application()
    await world.ours.deployment()
    entries = {
        "SearchApplications": plain(
            overview_pb2.SearchApplicationsRequest(
                activity=overview_pb2.SearchApplicationsRequest.ANY
            )
        ),
        "GetOverview": plain(overview_pb2.GetOverviewRequest()),
    }
    await world.judge(overview_pb2.DESCRIPTOR.services_by_name["OverviewService"], entries)


@pytest.mark.timeout(600)
async def test_stage_log_service(world: RightsMatrix) -> None:
    entries = {
        "ReadStageLog": naming("log", logs_pb2.ReadStageLogRequest, "deployment_id", stage_id="s1"),
        "SearchStageLog": naming(
            "log", logs_pb2.SearchStageLogRequest, "deployment_id", stage_id="s1", text="x"
        ),
    }
    await world.judge(logs_pb2.DESCRIPTOR.services_by_name["StageLogService"], entries)


async def add_application(side: ProjectSide) -> Message:
    git_path = ApplicationGitPath(
        repo=ApplicationGitRepository(id="repo"), path="app", config_filename="app.pipecd.yaml"
    )
    return api_pb2.AddApplicationRequest(name="a", piped_id=side.piped_id, git_path=git_path)


async def open_resource(side: ProjectSide) -> Message:
    running = ResourceState(id="r", name="r", plugin_name="p", created_at=1, updated_at=1)
    return api_pb2.OpenResourceRequest(
        application_id=await side.live_state(running), resource_id="r"
    )


async def tell_whose(question: push_pb2.Question) -> push_pb2.AnswerQuestionRequest:
    """An answer that says whose it is: nobody of the other project may get it."""
    if question.WhichOneof("body") == "compare_deployment":
        commit = f"of {question.compare_deployment.deployment.id}"
        return push_pb2.AnswerQuestionRequest(deployment=DeploymentDiff(commit_hash=commit))
    manifest = f"of {question.open_resource.application_id}"
    return push_pb2.AnswerQuestionRequest(resource=ResourceDetails(manifest=manifest))


@pytest.mark.timeout(600)
async def test_application_service(world: RightsMatrix) -> None:
    entries = {
        "AddApplication": add_application,
        "SyncApplication": naming("application", api_pb2.SyncApplicationRequest, "application_id"),
        "GetLiveState": naming("live_state", api_pb2.GetLiveStateRequest, "application_id"),
        "OpenResource": open_resource,
        "GetApplicationControl": naming(
            "application", api_pb2.GetApplicationControlRequest, "application_id"
        ),
        "ListApplicationControls": plain(api_pb2.ListApplicationControlsRequest()),
        "ReleaseHold": release_hold,
        "ReleasePin": release_pin,
        "SetFreeze": set_freeze,
        "RollBackApplication": roll_back_application,
        "GetCommandOutcome": get_command_outcome,
    }
    ours = world.ours
    agent = await ours.plane.agent_with(ours.project_id, ours.piped_id, ours.piped_key)
    async with answering(agent, tell_whose):
        await world.judge(OWN["ApplicationService"], entries, unimplemented.APPLICATION_SERVICE)


async def restart_plugin(side: ProjectSide) -> Message:
    def edit(piped: Piped) -> None:
        del piped.plugins[:]
        piped.plugins.add(name="wait")

    await side.stores.pipeds.update(side.project_id, side.piped_id, edit)
    return api_pb2.RestartPluginRequest(piped_id=side.piped_id, plugin_name="wait")


async def delete_piped(side: ProjectSide) -> Message:
    return api_pb2.DeletePipedRequest(piped_id=await side.piped())


@pytest.mark.timeout(600)
async def test_piped_service(world: RightsMatrix) -> None:
    entries = {
        "ListPipeds": plain(api_pb2.ListPipedsRequest()),
        "RestartPlugin": restart_plugin,
        "DeletePiped": delete_piped,
    }
    await world.ours.take_lease()
    await world.judge(OWN["PipedService"], entries)


@pytest.mark.timeout(600)
async def test_project_service(world: RightsMatrix) -> None:
    entries = {
        "WatchChanges": plain(api_pb2.WatchChangesRequest()),
        "ListAudit": plain(api_pb2.ListAuditRequest()),
    }
    await world.judge(OWN["ProjectService"], entries)


async def revoke(side: ProjectSide) -> Message:
    """Of somebody else: who may not change the project may end only sessions of their own."""
    cookie = await side.session()
    return access_pb2.RevokeSessionRequest(session_id=cookie.partition(".")[0])


@pytest.mark.timeout(600)
async def test_access_service(world: RightsMatrix) -> None:
    entries = {
        "ListSessions": plain(access_pb2.ListSessionsRequest()),
        "RevokeSession": revoke,
        "GetMyRights": plain(access_pb2.GetMyRightsRequest()),
    }
    await world.judge(ACCESS["AccessService"], entries)


@pytest.mark.timeout(600)
async def test_api_key_service(world: RightsMatrix) -> None:
    entries = {
        "GenerateApiKey": plain(access_pb2.GenerateApiKeyRequest(name="k", expires_at=2**40)),
        "ListApiKeys": plain(access_pb2.ListApiKeysRequest()),
    }
    await world.judge(ACCESS["ApiKeyService"], entries)


async def add_hook(side: ProjectSide) -> Message:
    return repositories_pb2.AddHookRequest(name=new_id(), host=repositories_pb2.Hook.GITHUB)


async def hint_repository(_side: ProjectSide) -> Message:
    return repositories_pb2.HintRepositoryRequest(repository="git@github.com:org/name.git")


@pytest.mark.timeout(600)
async def test_repository_service(world: RightsMatrix) -> None:
    entries = {
        "AddHook": add_hook,
        "ListHooks": plain(repositories_pb2.ListHooksRequest()),
        "RotateHook": naming("hook", repositories_pb2.RotateHookRequest, "hook_id"),
        "RevokeOlderHookSecret": naming(
            "hook", repositories_pb2.RevokeOlderHookSecretRequest, "hook_id"
        ),
        "DeleteHook": naming("hook", repositories_pb2.DeleteHookRequest, "hook_id"),
        "HintRepository": hint_repository,
    }
    await world.judge(REPOSITORIES["RepositoryService"], entries)


@pytest.mark.timeout(600)
async def test_window_service(world: RightsMatrix) -> None:
    entries = {
        "GetRules": plain(windows_pb2.GetRulesRequest()),
        "SetWindow": plain(windows_pb2.SetWindowRequest(window=WINDOW)),
        "DeleteWindow": delete_window,
        "PreviewWindows": plain(windows_pb2.PreviewWindowsRequest()),
        "StopDeployments": plain(windows_pb2.StopDeploymentsRequest(reason="a fire")),
        "ResumeDeployments": plain(windows_pb2.ResumeDeploymentsRequest()),
        "OverrideRules": override_rules,
    }
    await world.ours.take_lease()
    await world.judge(WINDOWS["WindowService"], entries)


@pytest.mark.timeout(600)
async def test_chain_service(world: RightsMatrix) -> None:
    entries = {
        "ListChains": list_chains,
        "GetChain": naming("chain", chains_pb2.GetChainRequest, "chain_id"),
    }
    await world.judge(CHAINS["ChainService"], entries)


async def list_chains(side: ProjectSide) -> Message:
    await side.chain()
    return chains_pb2.ListChainsRequest(limit=10)


def test_no_service_that_the_control_plane_serves_is_left_out() -> None:
    kinds = {rights_pb2.PIPED, rights_pb2.API_KEY, rights_pb2.SESSION}
    served = set()
    root = Path(pipecd_wire.__path__[0])
    for file in root.rglob("*_pb2.py"):
        name = ".".join(file.relative_to(root.parent).with_suffix("").parts)
        for service in importlib.import_module(name).DESCRIPTOR.services_by_name.values():
            if kinds & set(service.GetOptions().Extensions[rights_pb2.callers]):
                served.add(service.full_name)
    assert served == COVERED
