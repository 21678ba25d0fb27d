# SPDX-License-Identifier: Apache-2.0
"""Every RPC of WebService as everybody."""

import pytest
from google.protobuf.message import Message

from pipecd_test_support.project_side import ProjectSide
from pipecd_test_support.rights_matrix import RightsMatrix, naming, plain
from pipecd_wire.model import common_pb2, project_pb2
from pipecd_wire.webservice import service_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["WebService"]
POLICY = project_pb2.ProjectRBACPolicy(
    resources=[project_pb2.ProjectRBACResource(type=project_pb2.ProjectRBACResource.EVENT)],
    actions=[project_pb2.ProjectRBACPolicy.LIST],
)
SSO = project_pb2.ProjectSSOConfig(
    provider=project_pb2.ProjectSSOConfig.GITHUB,
    session_ttl=10,
    github=project_pb2.ProjectSSOConfig.GitHub(client_id="id", client_secret="x"),  # noqa: S106
)
GIT_PATH = common_pb2.ApplicationGitPath(
    repo=common_pb2.ApplicationGitRepository(id="repo"), path="apps/a"
)


async def add_application(side: ProjectSide) -> Message:
    return pb.AddApplicationRequest(
        name="a", piped_id=side.piped_id, git_path=GIT_PATH, platform_provider="p"
    )


async def update_application(side: ProjectSide) -> Message:
    return pb.UpdateApplicationRequest(
        application_id=await side.application(),
        name="a",
        piped_id=side.piped_id,
        platform_provider="p",
        config_filename="app.pipecd.yaml",
    )


async def update_desired_version(side: ProjectSide) -> Message:
    return pb.UpdatePipedDesiredVersionRequest(version="v1.0.0", piped_ids=[await side.piped()])


async def seal(side: ProjectSide) -> Message:
    await side.give_public_key()
    return pb.GenerateApplicationSealedSecretRequest(piped_id=side.piped_id, data="secret")


async def disable_key(side: ProjectSide) -> Message:
    return pb.DisableAPIKeyRequest(id=(await side.api_key()).partition(".")[0])


async def update_role(side: ProjectSide) -> Message:
    return pb.UpdateProjectRBACRoleRequest(name=await side.role(), policies=[POLICY])


async def add_role(side: ProjectSide) -> Message:
    return pb.AddProjectRBACRoleRequest(name=side.id(), policies=[POLICY])


async def disable_static_admin(side: ProjectSide) -> Message:
    """Of a project with another way in: without one it is refused to everybody."""

    def edit(project: project_pb2.Project) -> None:
        project.sso.CopyFrom(SSO)
        project.rbac.admin = "org/ops"

    await side.stores.projects.update(side.project_id, edit)
    return pb.DisableStaticAdminRequest()


async def add_group(side: ProjectSide) -> Message:
    return pb.AddProjectUserGroupRequest(sso_group=side.id(), role="Viewer")


async def list_traces(side: ProjectSide) -> Message:
    await side.trace()
    return pb.ListDeploymentTracesRequest(page_size=10)


async def list_events(side: ProjectSide) -> Message:
    await side.event()
    return pb.ListEventsRequest(page_size=10)


async def list_chains(side: ProjectSide) -> Message:
    await side.chain()
    return pb.ListDeploymentChainsRequest(page_size=10)


async def list_deployments(side: ProjectSide) -> Message:
    await side.deployment()
    return pb.ListDeploymentsRequest(page_size=10)


ENTRIES = {
    "RegisterPiped": plain(pb.RegisterPipedRequest(name="new", desc="d")),
    "UpdatePiped": naming("piped", pb.UpdatePipedRequest, "piped_id", name="n", desc="d"),
    "RecreatePipedKey": naming("piped", pb.RecreatePipedKeyRequest, "id"),
    "DeleteOldPipedKeys": naming("piped", pb.DeleteOldPipedKeysRequest, "piped_id"),
    "EnablePiped": naming("piped", pb.EnablePipedRequest, "piped_id"),
    "DisablePiped": naming("piped", pb.DisablePipedRequest, "piped_id"),
    "ListPipeds": plain(pb.ListPipedsRequest(with_status=True)),
    "GetPiped": naming("piped", pb.GetPipedRequest, "piped_id"),
    "UpdatePipedDesiredVersion": update_desired_version,
    "RestartPiped": naming("piped", pb.RestartPipedRequest, "piped_id"),
    "ListReleasedVersions": plain(pb.ListReleasedVersionsRequest()),
    "ListDeprecatedNotes": plain(pb.ListDeprecatedNotesRequest(project_id="ours")),
    "AddApplication": add_application,
    "UpdateApplication": update_application,
    "EnableApplication": naming("application", pb.EnableApplicationRequest, "application_id"),
    "DisableApplication": naming("application", pb.DisableApplicationRequest, "application_id"),
    "DeleteApplication": naming("application", pb.DeleteApplicationRequest, "application_id"),
    "ListApplications": plain(pb.ListApplicationsRequest()),
    "SyncApplication": naming("application", pb.SyncApplicationRequest, "application_id"),
    "GetApplication": naming("application", pb.GetApplicationRequest, "application_id"),
    "GenerateApplicationSealedSecret": seal,
    "ListUnregisteredApplications": plain(pb.ListUnregisteredApplicationsRequest()),
    "ListDeployments": list_deployments,
    "GetDeployment": naming("deployment", pb.GetDeploymentRequest, "deployment_id"),
    "GetStageLog": naming("log", pb.GetStageLogRequest, "deployment_id", stage_id="s1"),
    "CancelDeployment": naming("deployment", pb.CancelDeploymentRequest, "deployment_id"),
    "SkipStage": naming("deployment", pb.SkipStageRequest, "deployment_id", stage_id="s2"),
    "ApproveStage": naming("deployment", pb.ApproveStageRequest, "deployment_id", stage_id="s1"),
    "ListDeploymentTraces": list_traces,
    "GetApplicationLiveState": naming(
        "live_state", pb.GetApplicationLiveStateRequest, "application_id"
    ),
    "GetProject": plain(pb.GetProjectRequest()),
    "UpdateProjectStaticAdmin": plain(
        pb.UpdateProjectStaticAdminRequest(username="admin", password="long enough")  # noqa: S106
    ),
    "EnableStaticAdmin": plain(pb.EnableStaticAdminRequest()),
    "DisableStaticAdmin": disable_static_admin,
    "UpdateProjectSSOConfig": plain(pb.UpdateProjectSSOConfigRequest(sso=SSO)),
    "UpdateProjectRBACConfig": plain(
        pb.UpdateProjectRBACConfigRequest(rbac=project_pb2.ProjectRBACConfig(admin="org/ops"))
    ),
    "GetMe": plain(pb.GetMeRequest()),
    "AddProjectRBACRole": add_role,
    "UpdateProjectRBACRole": update_role,
    "DeleteProjectRBACRole": naming("role", pb.DeleteProjectRBACRoleRequest, "name"),
    "AddProjectUserGroup": add_group,
    "DeleteProjectUserGroup": naming("group", pb.DeleteProjectUserGroupRequest, "sso_group"),
    "GetCommand": naming("command", pb.GetCommandRequest, "command_id"),
    "GenerateAPIKey": plain(pb.GenerateAPIKeyRequest(name="k")),
    "DisableAPIKey": disable_key,
    "ListAPIKeys": plain(pb.ListAPIKeysRequest()),
    "GetInsightData": plain(
        pb.GetInsightDataRequest(range_from=1_700_000_000, range_to=1_700_100_000)
    ),
    "GetInsightApplicationCount": plain(pb.GetInsightApplicationCountRequest()),
    "ListDeploymentChains": list_chains,
    "GetDeploymentChain": naming("chain", pb.GetDeploymentChainRequest, "deployment_chain_id"),
    "ListEvents": list_events,
}


@pytest.mark.timeout(600)
async def test_web_service(world: RightsMatrix) -> None:
    await world.judge(SERVICE, ENTRIES)
