# SPDX-License-Identifier: Apache-2.0
"""Every RPC of APIService as everybody."""

from typing import Any

import pytest

from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import common_pb2, deployment_pb2

SERVICE = pb.DESCRIPTOR.services_by_name["APIService"]
GIT_PATH = common_pb2.ApplicationGitPath(
    repo=common_pb2.ApplicationGitRepository(id="repo"), path="apps/a"
)


def plain(request: Any) -> Any:
    """A request that names nothing."""

    async def make(_side: Any) -> Any:
        return request

    return make


def of(thing: str, message: Any, named: str, **fields: Any) -> Any:
    """A request that names one thing, made anew: `thing` is how."""

    async def make(side: Any) -> Any:
        return message(**{named: await getattr(side, thing)()}, **fields)

    return make


async def add_application(side: Any) -> Any:
    return pb.AddApplicationRequest(name="a", piped_id=side.piped_id, git_path=GIT_PATH)


async def update_application(side: Any) -> Any:
    return pb.UpdateApplicationRequest(
        application_id=await side.application(),
        piped_id=side.piped_id,
        platform_provider="p",
        git_path=GIT_PATH,
    )


async def rename(side: Any) -> Any:
    return pb.RenameApplicationConfigFileRequest(
        application_ids=[await side.application()], new_filename="app.pipecd.yaml"
    )


async def encrypt(side: Any) -> Any:
    await side.give_public_key()
    return pb.EncryptRequest(piped_id=side.piped_id, plaintext="secret")


async def plan_preview_results(side: Any) -> Any:
    return pb.GetPlanPreviewResultsRequest(
        commands=[await side.plan_preview()], command_handle_timeout=1
    )


TARGETS = {"wait": deployment_pb2.DeployTargets(deploy_targets=["here"])}

ENTRIES = {
    "AddApplication": add_application,
    "SyncApplication": of("application", pb.SyncApplicationRequest, "application_id"),
    "GetApplication": of("application", pb.GetApplicationRequest, "application_id"),
    "ListApplications": plain(pb.ListApplicationsRequest()),
    "UpdateApplication": update_application,
    "DeleteApplication": of("application", pb.DeleteApplicationRequest, "application_id"),
    "EnableApplication": of("application", pb.EnableApplicationRequest, "application_id"),
    "DisableApplication": of("application", pb.DisableApplicationRequest, "application_id"),
    "RenameApplicationConfigFile": rename,
    "UpdateApplicationDeployTargets": of(
        "application",
        pb.UpdateApplicationDeployTargetsRequest,
        "application_id",
        deploy_targets_by_plugin=TARGETS,
    ),
    "GetDeployment": of("deployment", pb.GetDeploymentRequest, "deployment_id"),
    "ListDeployments": plain(pb.ListDeploymentsRequest()),
    "ListStageLogs": of("log", pb.ListStageLogsRequest, "deployment_id"),
    "GetCommand": of("command", pb.GetCommandRequest, "command_id"),
    "GetPiped": of("piped", pb.GetPipedRequest, "piped_id"),
    "RegisterPiped": plain(pb.RegisterPipedRequest(name="n")),
    "UpdatePiped": of("piped", pb.UpdatePipedRequest, "piped_id", name="n"),
    "EnablePiped": of("piped", pb.EnablePipedRequest, "piped_id"),
    "DisablePiped": of("piped", pb.DisablePipedRequest, "piped_id"),
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
async def test_api_service(world: Any) -> None:
    await world.judge(SERVICE, ENTRIES)
