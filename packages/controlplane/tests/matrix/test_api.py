# SPDX-License-Identifier: Apache-2.0
"""Every RPC of APIService as everybody."""

import pytest
from google.protobuf.message import Message

from pipecd_test_support.project_side import ProjectSide
from pipecd_test_support.rights_matrix import RightsMatrix, naming, plain
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import common_pb2, deployment_pb2

SERVICE = pb.DESCRIPTOR.services_by_name["APIService"]
GIT_PATH = common_pb2.ApplicationGitPath(
    repo=common_pb2.ApplicationGitRepository(id="repo"), path="apps/a"
)


async def add_application(side: ProjectSide) -> Message:
    return pb.AddApplicationRequest(name="a", piped_id=side.piped_id, git_path=GIT_PATH)


async def update_application(side: ProjectSide) -> Message:
    return pb.UpdateApplicationRequest(
        application_id=await side.application(),
        piped_id=side.piped_id,
        platform_provider="p",
        git_path=GIT_PATH,
    )


async def rename(side: ProjectSide) -> Message:
    return pb.RenameApplicationConfigFileRequest(
        application_ids=[await side.application()], new_filename="app.pipecd.yaml"
    )


async def encrypt(side: ProjectSide) -> Message:
    await side.give_public_key()
    return pb.EncryptRequest(piped_id=side.piped_id, plaintext="secret")


async def plan_preview_results(side: ProjectSide) -> Message:
    return pb.GetPlanPreviewResultsRequest(
        commands=[await side.plan_preview()], command_handle_timeout=1
    )


TARGETS = {"wait": deployment_pb2.DeployTargets(deploy_targets=["here"])}

ENTRIES = {
    "AddApplication": add_application,
    "SyncApplication": naming("application", pb.SyncApplicationRequest, "application_id"),
    "GetApplication": naming("application", pb.GetApplicationRequest, "application_id"),
    "ListApplications": plain(pb.ListApplicationsRequest()),
    "UpdateApplication": update_application,
    "DeleteApplication": naming("application", pb.DeleteApplicationRequest, "application_id"),
    "EnableApplication": naming("application", pb.EnableApplicationRequest, "application_id"),
    "DisableApplication": naming("application", pb.DisableApplicationRequest, "application_id"),
    "RenameApplicationConfigFile": rename,
    "UpdateApplicationDeployTargets": naming(
        "application",
        pb.UpdateApplicationDeployTargetsRequest,
        "application_id",
        deploy_targets_by_plugin=TARGETS,
    ),
    "GetDeployment": naming("deployment", pb.GetDeploymentRequest, "deployment_id"),
    "ListDeployments": plain(pb.ListDeploymentsRequest()),
    "ListStageLogs": naming("log", pb.ListStageLogsRequest, "deployment_id"),
    "GetCommand": naming("command", pb.GetCommandRequest, "command_id"),
    "GetPiped": naming("piped", pb.GetPipedRequest, "piped_id"),
    "RegisterPiped": plain(pb.RegisterPipedRequest(name="n")),
    "UpdatePiped": naming("piped", pb.UpdatePipedRequest, "piped_id", name="n"),
    "EnablePiped": naming("piped", pb.EnablePipedRequest, "piped_id"),
    "DisablePiped": naming("piped", pb.DisablePipedRequest, "piped_id"),
    "RegisterEvent": plain(pb.RegisterEventRequest(name="image", data="v1")),
    "RequestPlanPreview": plain(
        pb.RequestPlanPreviewRequest(
            repo_remote_url="https://git.example.com/a.git",
            head_branch="b",
            head_commit="c0ffee",
            base_branch="main",
            timeout=60,
        )
    ),
    "GetPlanPreviewResults": plan_preview_results,
    "Encrypt": encrypt,
}


@pytest.mark.timeout(600)
async def test_api_service(world: RightsMatrix) -> None:
    await world.judge(SERVICE, ENTRIES)
