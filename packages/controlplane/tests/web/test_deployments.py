# SPDX-License-Identifier: Apache-2.0
"""Applications and deployments, as the web client works with them."""

import pytest

from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.rpc import call_refused
from pipecd_test_support.web_person import SignIn, WebPerson
from pipecd_wire.model import common_pb2, deployment_pb2
from pipecd_wire.pipedservice import service_pb2 as piped
from pipecd_wire.rpc import call
from pipecd_wire.webservice import service_pb2 as pb


@pytest.fixture
async def agent(plane: ServedControlPlane) -> AgentClient:
    return await plane.agent()


async def test_an_application_of_plugins_is_added_and_moved(
    plane: ServedControlPlane, admin: WebPerson, agent: AgentClient
) -> None:
    targets = {"wait": deployment_pb2.DeployTargets(deploy_targets=["here"])}
    added = await call(
        admin.web.AddApplication,
        pb.AddApplicationRequest(
            name="hello",
            piped_id=agent.id,
            git_path=plane.build.git_path(),
            deploy_targets_by_plugin=targets,
        ),
    )
    other = await plane.agent(name="other")

    await call(
        admin.web.UpdateApplication,
        pb.UpdateApplicationRequest(
            application_id=added.application_id,
            name="ignored",
            piped_id=other.id,
            platform_provider="ours",
            config_filename="b.pipecd.yaml",
        ),
    )

    request = pb.GetApplicationRequest(application_id=added.application_id)
    kept = (await call(admin.web.GetApplication, request)).application
    assert (kept.name, kept.piped_id, kept.platform_provider) == ("hello", other.id, "ours")
    assert kept.git_path.config_filename == "b.pipecd.yaml"
    assert not kept.deploy_targets_by_plugin


async def test_a_deleted_application_cannot_be_changed(
    plane: ServedControlPlane, admin: WebPerson, agent: AgentClient
) -> None:
    application_id = await plane.application(agent)
    await call(
        admin.web.DeleteApplication, pb.DeleteApplicationRequest(application_id=application_id)
    )

    error = await call_refused(
        admin.web.EnableApplication, pb.EnableApplicationRequest(application_id=application_id)
    )

    assert error.status == "INVALID_ARGUMENT"


async def test_lists_need_no_options(
    plane: ServedControlPlane, admin: WebPerson, agent: AgentClient
) -> None:
    """Without any upstream's server dies."""
    application_id = await plane.application(agent)
    await plane.deployment(agent, application_id)

    applications = await call(admin.web.ListApplications, pb.ListApplicationsRequest())
    deployments = await call(admin.web.ListDeployments, pb.ListDeploymentsRequest())
    events = await call(admin.web.ListEvents, pb.ListEventsRequest())

    assert [each.id for each in applications.applications] == [application_id]
    assert [each.id for each in deployments.deployments] == ["d1"]
    assert not events.events


async def test_applications_are_found_by_all_values_of_a_filter(
    plane: ServedControlPlane, admin: WebPerson, agent: AgentClient
) -> None:
    for name, kind in (("a", "KUBERNETES"), ("b", "TERRAFORM"), ("c", "ECS")):
        await plane.application(agent, name=name, kind=kind)
    options = pb.ListApplicationsRequest.Options(kinds=[common_pb2.KUBERNETES, common_pb2.ECS])

    found = await call(admin.web.ListApplications, pb.ListApplicationsRequest(options=options))

    assert sorted(each.name for each in found.applications) == ["a", "c"]


async def test_a_sync_is_asked_for_with_a_strategy(
    plane: ServedControlPlane, admin: WebPerson, agent: AgentClient
) -> None:
    application_id = await plane.application(agent)
    request = pb.SyncApplicationRequest(
        application_id=application_id, sync_strategy=common_pb2.PIPELINE
    )

    answer = await call(admin.web.SyncApplication, request)

    got = await call(admin.web.GetCommand, pb.GetCommandRequest(command_id=answer.command_id))
    assert got.command.commander == "ada"
    assert got.command.sync_application.sync_strategy == common_pb2.PIPELINE


async def test_a_log_is_read_from_an_index_on_and_is_not_found_before_it_is_there(
    plane: ServedControlPlane, admin: WebPerson, agent: AgentClient
) -> None:
    deployment_id = await plane.deployment(
        agent, await plane.application(agent), "d1", plane.build.stage("s1")
    )
    request = pb.GetStageLogRequest(deployment_id=deployment_id, stage_id="s1")
    assert (await call_refused(admin.web.GetStageLog, request)).status == "NOT_FOUND"

    await call(
        agent.service.ReportStageLogsFromLastCheckpoint,
        piped.ReportStageLogsFromLastCheckpointRequest(
            deployment_id=deployment_id,
            stage_id="s1",
            blocks=plane.build.blocks(10, 11, 12),
            completed=True,
        ),
    )

    whole = await call(admin.web.GetStageLog, request)
    assert [block.index for block in whole.blocks] == [10, 11, 12]
    assert whole.completed
    request.offset_index = 12
    assert [block.index for block in (await call(admin.web.GetStageLog, request)).blocks] == [12]


async def test_a_stage_is_skipped_by_what_it_offers_and_not_by_its_name(
    plane: ServedControlPlane, admin: WebPerson, agent: AgentClient
) -> None:
    stages = [
        plane.build.stage(
            "s1",
            name="SOAK",
            status=deployment_pb2.STAGE_RUNNING,
            available_operation=deployment_pb2.MANUAL_OPERATION_SKIP,
        ),
        plane.build.stage(
            "s2",
            name="ANALYSIS",
            status=deployment_pb2.STAGE_RUNNING,
            available_operation=deployment_pb2.MANUAL_OPERATION_NONE,
        ),
    ]
    await plane.deployment(agent, await plane.application(agent), "d1", *stages)

    await call(admin.web.SkipStage, pb.SkipStageRequest(deployment_id="d1", stage_id="s1"))
    error = await call_refused(
        admin.web.SkipStage, pb.SkipStageRequest(deployment_id="d1", stage_id="s2")
    )

    assert error.status == "FAILED_PRECONDITION"


async def test_only_approvers_approve_and_strangers_learn_nothing_of_them(
    plane: ServedControlPlane, person: SignIn, agent: AgentClient
) -> None:
    stage = plane.build.stage(
        "s1",
        name="WAIT_APPROVAL",
        status=deployment_pb2.STAGE_RUNNING,
        available_operation=deployment_pb2.MANUAL_OPERATION_APPROVE,
        authorized_operators=["grace"],
    )
    await plane.deployment(agent, await plane.application(agent), "d1", stage)
    await plane.other_project()
    request = pb.ApproveStageRequest(deployment_id="d1", stage_id="s1")

    error = await call_refused((await person("Admin", name="ada")).web.ApproveStage, request)
    assert error.status == "PERMISSION_DENIED"
    assert "grace" in error.message
    stranger = await person("Admin", name="grace", project_id="theirs")
    error = await call_refused(stranger.web.ApproveStage, request)
    assert (error.status, "grace" in error.message) == ("NOT_FOUND", False)

    answer = await call((await person("Editor", name="grace")).web.ApproveStage, request)
    assert answer.command_id


async def test_a_cancel_that_contradicts_itself_is_refused(
    plane: ServedControlPlane, admin: WebPerson, agent: AgentClient
) -> None:
    await plane.deployment(agent, await plane.application(agent))
    request = pb.CancelDeploymentRequest(
        deployment_id="d1", force_rollback=True, force_no_rollback=True
    )

    assert (await call_refused(admin.web.CancelDeployment, request)).status == "INVALID_ARGUMENT"
