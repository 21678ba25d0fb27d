# SPDX-License-Identifier: Apache-2.0
"""What upstream's agents and ours rely on, over the real wire."""

import pytest
from google.protobuf.message import Message

from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.rpc import UnaryMethod, call_refused
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import application_pb2, command_pb2, common_pb2, piped_pb2
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import call


async def test_a_starting_piped_learns_its_name_and_the_address(plane: ServedControlPlane) -> None:
    """An agent of upstream does not start without either."""
    agent = await plane.agent(name="east")

    answer = await call(
        agent.service.ReportPipedMeta,
        pb.ReportPipedMetaRequest(
            version="v1.2.3",
            config="kind: Piped",
            cloud_providers=[piped_pb2.Piped.CloudProvider(name="old", type="KUBERNETES")],
            platform_providers=[piped_pb2.Piped.PlatformProvider(name="new", type="ECS")],
            plugins=[piped_pb2.Piped.Plugin(name="wait", deploy_targets=["t"])],
        ),
    )

    assert (answer.name, answer.web_base_url) == ("east", f"http://{plane.address}")
    piped = await plane.stores.pipeds.get("default", agent.id)
    assert (piped.version, piped.config) == ("v1.2.3", "kind: Piped")
    assert [provider.name for provider in piped.platform_providers] == ["old", "new"]
    assert list(piped.cloud_providers) == []
    assert [plugin.name for plugin in piped.plugins] == ["wait"]
    assert piped.started_at > 0


async def test_the_wanted_version_is_empty_until_somebody_wants_one(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()

    answer = await call(agent.service.GetDesiredVersion, pb.GetDesiredVersionRequest())

    assert answer.version == ""


async def test_a_stat_is_taken(plane: ServedControlPlane) -> None:
    agent = await plane.agent()

    await call(agent.service.ReportStat, pb.ReportStatRequest(piped_stats=b"metrics 1"))

    stats = await plane.stores.piped_stats.list_by_project("default")
    assert stats[agent.id].message.piped_stats == b"metrics 1"


async def test_a_disabled_application_is_not_listed(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    one = await plane.application(agent, name="one")
    two = await plane.application(agent, name="two")
    await call(
        plane.admin.api.DisableApplication,
        apiservice.DisableApplicationRequest(application_id=one),
    )

    answer = await call(agent.service.ListApplications, pb.ListApplicationsRequest())

    assert [application.id for application in answer.applications] == [two]


async def test_the_state_of_an_application_is_kept(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    state = application_pb2.ApplicationSyncState(
        status=application_pb2.OUT_OF_SYNC, reason="drift", timestamp=5
    )

    await call(
        agent.service.ReportApplicationSyncState,
        pb.ReportApplicationSyncStateRequest(application_id=application_id, state=state),
    )
    await call(
        agent.service.ReportApplicationDeployingStatus,
        pb.ReportApplicationDeployingStatusRequest(application_id=application_id, deploying=True),
    )

    application = await plane.stores.applications.get("default", application_id)
    assert (application.sync_state, application.deploying) == (state, True)


async def test_there_is_no_most_recent_deployment_at_first(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    """NOT_FOUND is how every agent knows that it is the first run."""
    agent = await plane.agent()
    application_id = await plane.application(agent)
    for status in (model.DEPLOYMENT_SUCCESS, model.DEPLOYMENT_PENDING):
        get = pb.GetApplicationMostRecentDeploymentRequest(
            application_id=application_id, status=status
        )
        error = await call_refused(agent.service.GetApplicationMostRecentDeployment, get)
        assert error.status == "NOT_FOUND"

        reference = application_pb2.ApplicationDeploymentReference(
            deployment_id=f"d-{status}", trigger=build.trigger(), started_at=5
        )
        await call(
            agent.service.ReportApplicationMostRecentDeployment,
            pb.ReportApplicationMostRecentDeploymentRequest(
                application_id=application_id, status=status, deployment=reference
            ),
        )

        answer = await call(agent.service.GetApplicationMostRecentDeployment, get)
        assert answer.deployment == reference


async def test_a_late_report_does_not_hide_a_newer_deployment(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    """A piped died after it had created the second one: the same change was deployed twice."""
    agent = await plane.agent()
    application_id = await plane.application(agent)
    for started_at in (6, 5):
        reference = application_pb2.ApplicationDeploymentReference(
            deployment_id=f"d-{started_at}", trigger=build.trigger(), started_at=started_at
        )
        await call(
            agent.service.ReportApplicationMostRecentDeployment,
            pb.ReportApplicationMostRecentDeploymentRequest(
                application_id=application_id,
                status=model.DEPLOYMENT_PENDING,
                deployment=reference,
            ),
        )

    get = pb.GetApplicationMostRecentDeploymentRequest(
        application_id=application_id, status=model.DEPLOYMENT_PENDING
    )
    answer = await call(agent.service.GetApplicationMostRecentDeployment, get)
    assert answer.deployment.deployment_id == "d-6"


async def test_other_statuses_have_no_most_recent_deployment(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    reference = application_pb2.ApplicationDeploymentReference(
        deployment_id="d", trigger=build.trigger(), started_at=5
    )
    await call(
        agent.service.ReportApplicationMostRecentDeployment,
        pb.ReportApplicationMostRecentDeploymentRequest(
            application_id=application_id, status=model.DEPLOYMENT_FAILURE, deployment=reference
        ),
    )

    error = await call_refused(
        agent.service.GetApplicationMostRecentDeployment,
        pb.GetApplicationMostRecentDeploymentRequest(
            application_id=application_id, status=model.DEPLOYMENT_FAILURE
        ),
    )

    assert error.status == "NOT_FOUND"


async def test_names_and_labels_follow_git_and_one_refusal_takes_no_other_with_it(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    one = await plane.application(agent, name="one")
    other = await plane.agent(name="other")
    theirs = await plane.application(other, name="theirs")

    def info(application_id: str) -> common_pb2.ApplicationInfo:
        return common_pb2.ApplicationInfo(
            id=application_id,
            name="renamed",
            description="new",
            labels={"env": "dev"},
            repo_id="repo",
            path="apps/hello",
            piped_id=agent.id,
        )

    error = await call_refused(
        agent.service.UpdateApplicationConfigurations,
        pb.UpdateApplicationConfigurationsRequest(
            applications=[info(theirs), info(one), info("gone")]
        ),
    )
    assert error.status == "PERMISSION_DENIED"
    assert (await plane.stores.applications.get("default", theirs)).name == "theirs"
    application = await plane.stores.applications.get("default", one)
    assert (application.name, application.description) == ("renamed", "new")
    assert dict(application.labels) == {"env": "dev"}


async def test_unregistered_applications_replace_the_list_before(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    info = common_pb2.ApplicationInfo(
        name="found", repo_id="repo", path="apps/found", piped_id=agent.id
    )
    report = agent.service.ReportUnregisteredApplicationConfigurations
    await call(
        report, pb.ReportUnregisteredApplicationConfigurationsRequest(applications=[info, info])
    )
    await call(report, pb.ReportUnregisteredApplicationConfigurationsRequest(applications=[info]))

    kept = await plane.stores.unregistered.list_by_project("default")
    assert list(kept[agent.id].message.applications) == [info]


async def test_a_shared_object_is_there_for_the_next_deployment(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    where = {"application_id": application_id, "plugin_name": "analysis", "key": "baseline"}
    get = pb.GetApplicationSharedObjectRequest(**where)
    assert (await call_refused(agent.service.GetApplicationSharedObject, get)).status == "NOT_FOUND"

    await call(
        agent.service.PutApplicationSharedObject,
        pb.PutApplicationSharedObjectRequest(**where, object=b"\x00\xff"),
    )

    answer = await call(agent.service.GetApplicationSharedObject, get)
    assert answer.object == b"\x00\xff"


async def test_a_deployment_is_kept_as_its_piped_made_it(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    made = build.deployment(
        id="my-own-id", application_id=application_id, piped_id=agent.id, project_id="default"
    )

    request = pb.CreateDeploymentRequest(deployment=made)
    await call(agent.service.CreateDeployment, request)

    assert await plane.read_deployment("my-own-id") == made
    # Also if its piped dies before it reports that: the next one must not deploy the change again.
    last = pb.GetApplicationMostRecentDeploymentRequest(
        application_id=application_id, status=model.DEPLOYMENT_PENDING
    )
    found = await call(agent.service.GetApplicationMostRecentDeployment, last)
    assert found.deployment.deployment_id == "my-own-id"
    assert found.deployment.trigger == made.trigger
    # What our agent takes for "done": the answer to the first attempt was lost.
    assert (await call_refused(agent.service.CreateDeployment, request)).status == "ALREADY_EXISTS"


@pytest.mark.parametrize("field", ["piped_id", "project_id"])
async def test_a_deployment_cannot_be_made_for_somebody_else(
    plane: ServedControlPlane, build: MessageBuilder, field: str
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    made = build.deployment(application_id=application_id, piped_id=agent.id, project_id="default")
    setattr(made, field, "somebody")

    error = await call_refused(
        agent.service.CreateDeployment, pb.CreateDeploymentRequest(deployment=made)
    )

    assert error.status == "INVALID_ARGUMENT"


async def test_a_deployment_from_plan_to_end(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await plane.deployment(agent, application_id, "d1", build.stage("s1"), build.stage("s2"))
    report = agent.service.ReportStageStatusChanged
    await call(report, build.stage_report("d1", "s1", model.STAGE_RUNNING))
    await call(
        agent.service.SaveStageMetadata,
        pb.SaveStageMetadataRequest(deployment_id="d1", stage_id="s1", metadata={"k": "v"}),
    )
    await call(report, build.stage_report("d1", "s1", model.STAGE_SUCCESS))
    await call(
        agent.service.SaveDeploymentPluginMetadata,
        pb.SaveDeploymentPluginMetadataRequest(
            deployment_id="d1", plugin_name="wait", metadata={"a": "b"}
        ),
    )
    await call(
        agent.service.SaveDeploymentSharedMetadata,
        pb.SaveDeploymentSharedMetadataRequest(deployment_id="d1", metadata={"c": "d"}),
    )
    await call(
        agent.service.SaveDeploymentMetadata,
        pb.SaveDeploymentMetadataRequest(deployment_id="d1", metadata={"e": "f"}),
    )
    listed = await call(
        agent.service.ListNotCompletedDeployments, pb.ListNotCompletedDeploymentsRequest()
    )
    assert ([d.id for d in listed.deployments], listed.cursor) == (["d1"], "")

    await call(
        agent.service.ReportDeploymentCompleted,
        pb.ReportDeploymentCompletedRequest(
            deployment_id="d1",
            status=model.DEPLOYMENT_SUCCESS,
            status_reason="done",
            completed_at=99,
            stage_statuses={"s2": model.STAGE_SKIPPED},
        ),
    )

    deployment = await plane.read_deployment()
    assert (deployment.status, deployment.status_reason) == (model.DEPLOYMENT_SUCCESS, "done")
    assert [stage.status for stage in deployment.stages] == [
        model.STAGE_SUCCESS,
        model.STAGE_SKIPPED,
    ]
    assert deployment.stages[0].metadata["k"] == "v"
    assert deployment.metadata_v2.plugins["wait"].keyValues["a"] == "b"
    assert deployment.metadata_v2.shared.keyValues["c"] == "d"
    assert deployment.metadata["e"] == "f"
    own = await call(agent.service.GetDeployment, pb.GetDeploymentRequest(id="d1"))
    assert own.deployment == deployment
    listed = await call(
        agent.service.ListNotCompletedDeployments, pb.ListNotCompletedDeploymentsRequest()
    )
    assert (list(listed.deployments), listed.cursor) == ([], "")


async def test_every_report_may_be_repeated_and_late_ones_are_ignored(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    """A refusal would be sent again ten times by upstream's agents; a step back would reopen."""
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await plane.deployment(agent, application_id, "d1", build.stage("s1"))
    service = agent.service
    story: list[tuple[UnaryMethod, Message]] = [
        (service.ReportDeploymentPlanned, build.planned("d1", build.stage("s1"))),
        (
            service.ReportDeploymentStatusChanged,
            pb.ReportDeploymentStatusChangedRequest(
                deployment_id="d1", status=model.DEPLOYMENT_RUNNING
            ),
        ),
        (
            service.ReportStageStatusChanged,
            build.stage_report("d1", "s1", model.STAGE_RUNNING),
        ),
        (
            service.ReportStageStatusChanged,
            build.stage_report("d1", "s1", model.STAGE_FAILURE),
        ),
        (
            service.ReportDeploymentStatusChanged,
            pb.ReportDeploymentStatusChangedRequest(
                deployment_id="d1", status=model.DEPLOYMENT_ROLLING_BACK
            ),
        ),
        (
            service.ReportDeploymentCompleted,
            pb.ReportDeploymentCompletedRequest(
                deployment_id="d1", status=model.DEPLOYMENT_FAILURE, completed_at=9
            ),
        ),
    ]
    for method, request in story:
        await call(method, request)
        await call(method, request)
    ended = await plane.read_deployment()

    for method, request in [*story, *reversed(story)]:
        await call(method, request)

    assert await plane.read_deployment() == ended
    assert ended.status == model.DEPLOYMENT_FAILURE


async def test_validation_names_field_and_rule(plane: ServedControlPlane) -> None:
    agent = await plane.agent()

    error = await call_refused(
        agent.service.ReportDeploymentStatusChanged,
        pb.ReportDeploymentStatusChangedRequest(
            deployment_id="d1", status=model.DEPLOYMENT_SUCCESS
        ),
    )

    assert error.status == "INVALID_ARGUMENT"
    assert error.message.startswith("invalid request: status: ")


async def test_an_unknown_stage_is_refused(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await plane.deployment(agent, application_id, "d1", build.stage("s1"))

    error = await call_refused(
        agent.service.ReportStageStatusChanged,
        build.stage_report("d1", "s9", model.STAGE_RUNNING),
    )

    assert error.status == "INVALID_ARGUMENT"
    assert "has no stage 's9'" in error.message


async def progress_of(agent: AgentClient, *reports: push.ProgressReport) -> None:
    await call(
        agent.push.ReportProgress,
        push.ReportProgressRequest(deployment_id="d1", reports=reports),
    )


async def test_reports_that_come_together_are_applied_in_their_order(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await plane.deployment(agent, application_id, "d1", build.stage("s1"), build.stage("s2"))
    rolling_back = pb.ReportDeploymentStatusChangedRequest(
        deployment_id="d1", status=model.DEPLOYMENT_ROLLING_BACK, status_reason="s1 failed"
    )

    await progress_of(
        agent,
        push.ProgressReport(stage_status=build.stage_report("d1", "s1", model.STAGE_RUNNING)),
        push.ProgressReport(stage_status=build.stage_report("d1", "s1", model.STAGE_FAILURE)),
        push.ProgressReport(deployment_status=rolling_back),
        push.ProgressReport(stage_status=build.stage_report("d1", "s2", model.STAGE_RUNNING)),
    )

    found = await call(agent.service.GetDeployment, pb.GetDeploymentRequest(id="d1"))
    assert found.deployment.status == model.DEPLOYMENT_ROLLING_BACK
    assert found.deployment.status_reason == "s1 failed"
    statuses = [stage.status for stage in found.deployment.stages]
    assert statuses == [model.STAGE_FAILURE, model.STAGE_RUNNING]


@pytest.mark.parametrize(
    ("deployment_id", "stage_id", "count", "sentence"),
    [
        ("d1", "s9", 1, "has no stage 's9'"),
        ("d2", "s1", 1, "one of them is about the deployment 'd2'"),
        ("", "", 1, "one of them is of an unknown kind"),
        ("d1", "s1", 101, "101 reports, at most 100"),
    ],
)
async def test_of_reports_that_come_together_all_are_taken_or_none(
    plane: ServedControlPlane,
    build: MessageBuilder,
    deployment_id: str,
    stage_id: str,
    count: int,
    sentence: str,
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await plane.deployment(agent, application_id, "d1", build.stage("s1"))
    good = push.ProgressReport(stage_status=build.stage_report("d1", "s1", model.STAGE_RUNNING))
    bad = push.ProgressReport()
    if stage_id:
        stage = build.stage_report(deployment_id, stage_id, model.STAGE_RUNNING)
        bad = push.ProgressReport(stage_status=stage)
    reports = [good, *[bad] * count] if count == 1 else [good] * count

    error = await call_refused(
        agent.push.ReportProgress,
        push.ReportProgressRequest(deployment_id="d1", reports=reports),
    )

    assert error.status == "INVALID_ARGUMENT"
    assert sentence in error.message
    found = await call(agent.service.GetDeployment, pb.GetDeploymentRequest(id="d1"))
    assert found.deployment.stages[0].status == model.STAGE_NOT_STARTED_YET


async def test_unfinished_deployments_come_in_pages_with_an_end(plane: ServedControlPlane) -> None:
    """The cursor after the last page is empty, and a page goes on where the last one ended."""
    agent = await plane.agent()
    application_id = await plane.application(agent)
    for number in range(3):
        await plane.deployment(agent, application_id, f"d{number}", summary="x" * 3_500_000)

    seen, cursor, pages = [], "", 0
    while True:
        answer = await call(
            agent.service.ListNotCompletedDeployments,
            pb.ListNotCompletedDeploymentsRequest(cursor=cursor),
        )
        seen += [deployment.id for deployment in answer.deployments]
        cursor, pages = answer.cursor, pages + 1
        if not cursor:
            break

    assert (sorted(seen), pages) == (["d0", "d1", "d2"], 2)


async def test_a_command_is_listed_until_it_is_handled(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    asked = await call(
        plane.admin.api.SyncApplication,
        apiservice.SyncApplicationRequest(application_id=application_id),
    )
    listing = agent.service.ListUnhandledCommands
    listed = await call(listing, pb.ListUnhandledCommandsRequest())
    assert [command.id for command in listed.commands] == [asked.command_id]
    assert listed.commands[0].type == command_pb2.Command.SYNC_APPLICATION

    handled = pb.ReportCommandHandledRequest(
        command_id=asked.command_id,
        status=command_pb2.COMMAND_SUCCEEDED,
        metadata={"TriggeredDeploymentID": "d1"},
        handled_at=7,
        output=b"{}",
    )
    await call(agent.service.ReportCommandHandled, handled)
    await call(agent.service.ReportCommandHandled, handled)

    listed = await call(listing, pb.ListUnhandledCommandsRequest())
    assert list(listed.commands) == []
    seen = await call(
        plane.admin.api.GetCommand, apiservice.GetCommandRequest(command_id=asked.command_id)
    )
    assert seen.command.status == command_pb2.COMMAND_SUCCEEDED
    assert seen.command.metadata["TriggeredDeploymentID"] == "d1"


async def test_a_command_is_not_handled_by_saying_that_it_is_not(plane: ServedControlPlane) -> None:
    agent = await plane.agent()

    error = await call_refused(
        agent.service.ReportCommandHandled,
        pb.ReportCommandHandledRequest(command_id="c", handled_at=7),
    )

    assert error.status == "INVALID_ARGUMENT"
