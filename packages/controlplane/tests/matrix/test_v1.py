# SPDX-License-Identifier: Apache-2.0
"""Every RPC of our own API as everybody; and that no service is left out."""

import importlib
from pathlib import Path

import pytest
from google.protobuf.message import Message

import pipecd_wire
from pipecd_controlplane.api import unimplemented
from pipecd_test_support.project_side import ProjectSide
from pipecd_test_support.rights_matrix import RightsMatrix, naming, plain
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.options import rights_pb2
from pipecd_wire.pipecd.api import access_pb2, api_pb2

OWN = api_pb2.DESCRIPTOR.services_by_name
ACCESS = access_pb2.DESCRIPTOR.services_by_name

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
}


@pytest.mark.timeout(600)
async def test_deployment_service(world: RightsMatrix) -> None:
    entries = {
        "ApproveStage": naming(
            "deployment", api_pb2.ApproveStageRequest, "deployment_id", stage_id="s1"
        ),
        "SkipStage": naming("deployment", api_pb2.SkipStageRequest, "deployment_id", stage_id="s2"),
        "CancelDeployment": naming("deployment", api_pb2.CancelDeploymentRequest, "deployment_id"),
        "WatchDeployment": naming("deployment", api_pb2.WatchDeploymentRequest, "deployment_id"),
        "FollowStageLog": naming(
            "log", api_pb2.FollowStageLogRequest, "deployment_id", stage_id="s1"
        ),
    }
    await world.judge(OWN["DeploymentService"], entries, unimplemented.DEPLOYMENT_SERVICE)


async def add_application(side: ProjectSide) -> Message:
    git_path = ApplicationGitPath(
        repo=ApplicationGitRepository(id="repo"), path="app", config_filename="app.pipecd.yaml"
    )
    return api_pb2.AddApplicationRequest(name="a", piped_id=side.piped_id, git_path=git_path)


@pytest.mark.timeout(600)
async def test_application_service(world: RightsMatrix) -> None:
    entries = {
        "AddApplication": add_application,
        "GetLiveState": naming("live_state", api_pb2.GetLiveStateRequest, "application_id"),
    }
    await world.judge(OWN["ApplicationService"], entries, unimplemented.APPLICATION_SERVICE)


async def restart_plugin(side: ProjectSide) -> Message:
    def edit(piped: Piped) -> None:
        del piped.plugins[:]
        piped.plugins.add(name="wait")

    await side.stores.pipeds.update(side.project_id, side.piped_id, edit)
    return api_pb2.RestartPluginRequest(piped_id=side.piped_id, plugin_name="wait")


@pytest.mark.timeout(600)
async def test_piped_service(world: RightsMatrix) -> None:
    entries = {
        "ListPipeds": plain(api_pb2.ListPipedsRequest()),
        "RestartPlugin": restart_plugin,
    }
    await world.judge(OWN["PipedService"], entries)


@pytest.mark.timeout(600)
async def test_project_service(world: RightsMatrix) -> None:
    entries = {"WatchChanges": plain(api_pb2.WatchChangesRequest())}
    await world.judge(OWN["ProjectService"], entries, unimplemented.PROJECT_SERVICE)


async def revoke(side: ProjectSide) -> Message:
    """Of somebody else: who may not change the project may end only sessions of their own."""
    cookie = await side.session()
    return access_pb2.RevokeSessionRequest(session_id=cookie.partition(".")[0])


@pytest.mark.timeout(600)
async def test_access_service(world: RightsMatrix) -> None:
    entries = {
        "ListSessions": plain(access_pb2.ListSessionsRequest()),
        "RevokeSession": revoke,
    }
    await world.judge(ACCESS["AccessService"], entries)


@pytest.mark.timeout(600)
async def test_api_key_service(world: RightsMatrix) -> None:
    entries = {
        "GenerateApiKey": plain(access_pb2.GenerateApiKeyRequest(name="k", expires_at=2**40)),
        "ListApiKeys": plain(access_pb2.ListApiKeysRequest()),
    }
    await world.judge(ACCESS["ApiKeyService"], entries)


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
