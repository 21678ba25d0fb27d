# SPDX-License-Identifier: Apache-2.0
"""A v0 piped and a v1 piped in one project: what each of them sends and expects."""

from typing import Any

import pytest

from pipecd_controlplane.auth.caller import ApiKeyCaller
from pipecd_controlplane.store.applications import ApplicationFilter
from pipecd_controlplane.usecases import applications, insights, live_state
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import (
    analysis_result_pb2,
    application_live_state_pb2,
    command_pb2,
    common_pb2,
    piped_pb2,
    planpreview_pb2,
)
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import call

PROGRAM = ApiKeyCaller(project_id="default", key_id="key", name="somebody", may_write=True)
TARGETS = {"files": model.DeployTargets(deploy_targets=["east", "west"])}


@pytest.fixture
async def v0(plane: ServedControlPlane) -> AgentClient:
    """A piped that knows platforms."""
    agent = await plane.agent(name="v0")
    await meta(
        agent,
        version="v0.57.1",
        cloud_providers=[piped_pb2.Piped.CloudProvider(name="older", type="KUBERNETES")],
        platform_providers=[piped_pb2.Piped.PlatformProvider(name="k8s", type="KUBERNETES")],
    )
    return agent


@pytest.fixture
async def v1(plane: ServedControlPlane) -> AgentClient:
    """A piped that knows plugins."""
    agent = await plane.agent(name="v1")
    await meta(
        agent,
        version="v1.0.1",
        plugins=[piped_pb2.Piped.Plugin(name="files", deploy_targets=["east", "west"])],
    )
    return agent


async def meta(agent: AgentClient, **fields: Any) -> None:
    repository = common_pb2.ApplicationGitRepository(
        id="repo", remote="git@github.com:org/name.git", branch="main"
    )
    await call(
        agent.service.ReportPipedMeta,
        pb.ReportPipedMetaRequest(repositories=[repository], **fields),
    )


async def v0_application(plane: ServedControlPlane, agent: AgentClient, name: str = "old") -> str:
    return str(await plane.application(agent, name=name, kind="TERRAFORM", platform_provider="k8s"))


async def v1_application(
    plane: ServedControlPlane, agent: AgentClient, name: str = "new", *, kind: str = "files"
) -> str:
    new = applications.NewApplication(
        name=name,
        piped_id=agent.id,
        git_path=plane.build.git_path(),
        deploy_targets=TARGETS,
        labels={"kind": kind},
    )
    return await applications.add(plane.stores, PROGRAM, new, lambda: plane.build.NOON)


async def test_each_piped_gets_its_applications_as_it_knows_them(
    plane: ServedControlPlane, v0: AgentClient, v1: AgentClient
) -> None:
    await v0_application(plane, v0)
    await v1_application(plane, v1)

    old = (await call(v0.service.ListApplications, pb.ListApplicationsRequest())).applications
    new = (await call(v1.service.ListApplications, pb.ListApplicationsRequest())).applications

    assert [each.name for each in old] == ["old"]
    assert (old[0].kind, old[0].platform_provider) == (common_pb2.TERRAFORM, "k8s")
    assert old[0].cloud_provider == "k8s", "an older piped still looks there"
    assert not old[0].deploy_targets_by_plugin
    assert [each.name for each in new] == ["new"]
    assert dict(new[0].deploy_targets_by_plugin) == TARGETS
    assert (new[0].kind, new[0].platform_provider) == (common_pb2.KUBERNETES, "")
    assert new[0].labels["kind"] == "files"


async def test_a_deployment_keeps_where_it_goes_to(
    plane: ServedControlPlane, v0: AgentClient, v1: AgentClient
) -> None:
    await plane.deployment(
        v0, await v0_application(plane, v0), "d0", kind="TERRAFORM", platform_provider="k8s"
    )
    await plane.deployment(
        v1, await v1_application(plane, v1), "d1", deploy_targets_by_plugin=TARGETS
    )

    old, new = await plane.read_deployment("d0"), await plane.read_deployment("d1")

    assert (old.kind, old.platform_provider) == (common_pb2.TERRAFORM, "k8s")
    assert dict(new.deploy_targets_by_plugin) == TARGETS


async def test_each_has_its_own_metadata(
    plane: ServedControlPlane, v0: AgentClient, v1: AgentClient
) -> None:
    """That of v1 also on a deployment that was created without any."""
    await plane.deployment(v0, await v0_application(plane, v0), "d0")
    await plane.deployment(v1, await v1_application(plane, v1), "d1")

    await call(
        v0.service.SaveDeploymentMetadata,
        pb.SaveDeploymentMetadataRequest(deployment_id="d0", metadata={"a": "0"}),
    )
    await call(
        v1.service.SaveDeploymentSharedMetadata,
        pb.SaveDeploymentSharedMetadataRequest(deployment_id="d1", metadata={"a": "1"}),
    )
    for key, value in (("b", "2"), ("c", "3")):
        await call(
            v1.service.SaveDeploymentPluginMetadata,
            pb.SaveDeploymentPluginMetadataRequest(
                deployment_id="d1", plugin_name="files", metadata={key: value}
            ),
        )

    old, new = await plane.read_deployment("d0"), await plane.read_deployment("d1")
    assert dict(old.metadata) == {"a": "0"}
    assert not old.HasField("metadata_v2")
    assert dict(new.metadata_v2.shared.keyValues) == {"a": "1"}
    assert dict(new.metadata_v2.plugins["files"].keyValues) == {"b": "2", "c": "3"}
    assert not new.metadata


async def test_stages_of_v0_get_at_planning_what_their_names_imply(
    plane: ServedControlPlane, v0: AgentClient, build: MessageBuilder
) -> None:
    """Upstream fills it in at creation, when there are no stages yet."""
    await plane.deployment(v0, await v0_application(plane, v0), "d0")

    await call(
        v0.service.ReportDeploymentPlanned,
        build.planned(
            "d0",
            build.stage("s1", name="ANALYSIS", visible=True, predefined=True),
            build.stage("s2", name="WAIT_APPROVAL", metadata={"Approvers": "ada, bob"}),
            build.stage("s3", name="K8S_CANARY_ROLLOUT"),
        ),
    )

    analysis, approval, rollout = (await plane.read_deployment("d0")).stages
    assert analysis.available_operation == model.MANUAL_OPERATION_SKIP
    assert (analysis.visible, analysis.predefined) == (True, True)
    assert approval.available_operation == model.MANUAL_OPERATION_APPROVE
    assert list(approval.authorized_operators) == ["ada", "bob"]
    assert rollout.available_operation == model.MANUAL_OPERATION_UNKNOWN


async def test_stages_of_v1_stay_as_they_are(
    plane: ServedControlPlane, v1: AgentClient, build: MessageBuilder
) -> None:
    stages = [
        build.stage(
            "s1",
            name="WAIT_APPROVAL",
            available_operation=model.MANUAL_OPERATION_NONE,
            authorized_operators=["eve"],
            requires=["s0"],
        ),
        build.stage(
            "s2",
            name="MINE",
            available_operation=model.MANUAL_OPERATION_SKIP,
            rollback=True,
            metadata={"pipecd/stage-display-metadata": "{}"},
        ),
    ]
    await plane.deployment(
        v1, await v1_application(plane, v1), "d1", *stages, deploy_targets_by_plugin=TARGETS
    )

    assert list((await plane.read_deployment("d1")).stages) == stages


async def test_notes_of_stages_are_kept_for_both(
    plane: ServedControlPlane, v0: AgentClient, v1: AgentClient, build: MessageBuilder
) -> None:
    notes = {
        "d0": {"ApprovedBy": "ada", "canary-percentage": "10"},
        "d1": {"pipecd/stage-display-metadata": '{"x":"y"}', "pipecd/stage-approved-users": "ada"},
    }
    await plane.deployment(v0, await v0_application(plane, v0), "d0", build.stage("s1"))
    await plane.deployment(v1, await v1_application(plane, v1), "d1", build.stage("s1"))

    for agent, deployment_id in ((v0, "d0"), (v1, "d1")):
        await call(
            agent.service.SaveStageMetadata,
            pb.SaveStageMetadataRequest(
                deployment_id=deployment_id, stage_id="s1", metadata=notes[deployment_id]
            ),
        )
        kept = await plane.read_deployment(deployment_id)
        assert dict(kept.stages[0].metadata) == notes[deployment_id]


async def test_each_start_overwrites_what_the_piped_said_before(
    plane: ServedControlPlane, v0: AgentClient, v1: AgentClient
) -> None:
    old = await plane.stores.pipeds.get("default", v0.id)
    new = await plane.stores.pipeds.get("default", v1.id)
    assert [each.name for each in old.platform_providers] == ["older", "k8s"]
    assert not old.cloud_providers
    assert [each.name for each in new.plugins] == ["files"]

    await meta(
        v0, version="v1.0.1", plugins=[piped_pb2.Piped.Plugin(name="k8s", deploy_targets=["k8s"])]
    )

    migrated = await plane.stores.pipeds.get("default", v0.id)
    assert (migrated.version, len(migrated.platform_providers)) == ("v1.0.1", 0)
    assert [each.name for each in migrated.plugins] == ["k8s"]


async def test_live_states_of_both_are_kept_side_by_side(
    plane: ServedControlPlane, v0: AgentClient, v1: AgentClient
) -> None:
    old_id, new_id = await v0_application(plane, v0), await v1_application(plane, v1)
    version = application_live_state_pb2.ApplicationLiveStateVersion(timestamp=5)
    ecs = application_live_state_pb2.ECSApplicationLiveState(
        resources=[
            application_live_state_pb2.ECSResourceState(
                id="t",
                name="t",
                kind="Task",
                health_status=application_live_state_pb2.ECSResourceState.OTHER,
                created_at=1,
                updated_at=1,
            )
        ]
    )
    generic = application_live_state_pb2.ApplicationLiveState(
        resources=[
            application_live_state_pb2.ResourceState(
                id="f",
                name="f",
                plugin_name="files",
                deploy_target="east",
                created_at=1,
                updated_at=1,
            )
        ]
    )
    for agent, application_id, state in (
        (v0, old_id, {"kind": "ECS", "ecs": ecs}),
        (v1, new_id, {"application_live_state": generic}),
    ):
        snapshot = application_live_state_pb2.ApplicationLiveStateSnapshot(
            application_id=application_id,
            piped_id=agent.id,
            project_id="default",
            version=version,
            **state,
        )
        await call(
            agent.service.ReportApplicationLiveState,
            pb.ReportApplicationLiveStateRequest(snapshot=snapshot),
        )

    old = await live_state.read_snapshot(plane.stores, "default", old_id)
    new = await live_state.read_snapshot(plane.stores, "default", new_id)
    assert (old.ecs, old.health_status) == (ecs, old.OTHER)
    assert (new.application_live_state, new.health_status) == (generic, new.UNKNOWN)


async def test_each_has_its_own_memory_of_analyses(
    plane: ServedControlPlane, v0: AgentClient, v1: AgentClient
) -> None:
    old_id, new_id = await v0_application(plane, v0), await v1_application(plane, v1)
    await call(
        v0.service.PutLatestAnalysisResult,
        pb.PutLatestAnalysisResultRequest(
            application_id=old_id, analysis_result=analysis_result_pb2.AnalysisResult(start_time=7)
        ),
    )
    await call(
        v1.service.PutApplicationSharedObject,
        pb.PutApplicationSharedObjectRequest(
            application_id=new_id, plugin_name="analysis", key="latest", object=b"\x00\xff"
        ),
    )

    old = await call(
        v0.service.GetLatestAnalysisResult, pb.GetLatestAnalysisResultRequest(application_id=old_id)
    )
    new = await call(
        v1.service.GetApplicationSharedObject,
        pb.GetApplicationSharedObjectRequest(
            application_id=new_id, plugin_name="analysis", key="latest"
        ),
    )
    assert (old.analysis_result.start_time, new.object) == (7, b"\x00\xff")


@pytest.mark.parametrize(
    "field",
    [
        b'"application_kind":1,"plan_summary":"MQ==","plan_details":"Mg=="',
        (
            b'"plugin_plan_results":[{"plugin_name":"files","deploy_target":"east",'
            b'"plan_summary":"MQ==","diff_language":"diff"}],"plugin_names":["<unknown>"]'
        ),
    ],
    ids=["v0", "v1"],
)
async def test_results_of_plan_previews_pass_through(
    plane: ServedControlPlane, v0: AgentClient, field: bytes
) -> None:
    await call(v0.service.ReportStat, pb.ReportStatRequest(piped_stats=b"up 1\n"))
    asked = await call(
        plane.admin.api.RequestPlanPreview,
        api.RequestPlanPreviewRequest(
            repo_remote_url="git@github.com:org/name.git",
            head_branch="f",
            head_commit="c0ffee",
            base_branch="main",
        ),
    )
    command = await plane.stores.commands.get("default", asked.commands[0])
    await call(
        v0.service.ReportCommandHandled,
        pb.ReportCommandHandledRequest(
            command_id=command.id,
            status=command_pb2.COMMAND_SUCCEEDED,
            handled_at=command.created_at,
            output=b'{"results":[{"application_id":"a",' + field + b"}]}",
        ),
    )

    answer = await call(
        plane.admin.api.GetPlanPreviewResults,
        api.GetPlanPreviewResultsRequest(commands=[command.id]),
    )

    (result,) = answer.results[0].results
    if b"plugin_names" in field:
        assert list(result.plugin_names) == ["<unknown>"]
        assert result.plugin_plan_results == [
            planpreview_pb2.PluginPlanPreviewResult(
                plugin_name="files", deploy_target="east", plan_summary=b"1", diff_language="diff"
            )
        ]
    else:
        assert (result.plan_summary, result.plan_details) == (b"1", b"2")


async def test_suggestions_of_both_are_listed_together(
    plane: ServedControlPlane, v0: AgentClient, v1: AgentClient
) -> None:
    for agent, kind, path in (
        (v1, common_pb2.KUBERNETES, "b/new"),
        (v0, common_pb2.TERRAFORM, "c/old"),
        (v0, common_pb2.TERRAFORM, "a/old"),
    ):
        known = (await plane.stores.unregistered.list_by_project("default")).get(agent.id)
        told = list(known.message.applications) if known else []
        info = common_pb2.ApplicationInfo(
            name=path, kind=kind, repo_id="repo", path=path, piped_id="whoever"
        )
        await call(
            agent.service.ReportUnregisteredApplicationConfigurations,
            pb.ReportUnregisteredApplicationConfigurationsRequest(applications=[*told, info]),
        )

    found = await applications.list_unregistered(plane.stores, "default")
    assert [(info.path, info.kind) for info in found] == [("a/old", 1), ("b/new", 0), ("c/old", 1)]
    assert {info.piped_id for info in found} == {v0.id, v1.id}

    await call(plane.admin.api.DisablePiped, api.DisablePipedRequest(piped_id=v0.id))
    found = await applications.list_unregistered(plane.stores, "default")
    assert [info.path for info in found] == ["b/new"]


async def test_the_wanted_version_is_served_to_both(
    plane: ServedControlPlane, v0: AgentClient, v1: AgentClient
) -> None:
    for agent in (v0, v1):
        await plane.stores.pipeds.update(
            "default", agent.id, lambda piped: setattr(piped, "desired_version", "v9.9.9")
        )
        answer = await call(agent.service.GetDesiredVersion, pb.GetDesiredVersionRequest())
        assert answer.version == "v9.9.9"


async def test_an_application_goes_to_v1_and_can_come_back(
    plane: ServedControlPlane, v0: AgentClient
) -> None:
    """`pipectl migrate database` adds targets and leaves the provider, for the way back."""
    application_id = await v0_application(plane, v0)

    await call(
        plane.admin.api.UpdateApplicationDeployTargets,
        api.UpdateApplicationDeployTargetsRequest(
            application_id=application_id, deploy_targets_by_plugin=TARGETS
        ),
    )

    application = await plane.stores.applications.get("default", application_id)
    assert dict(application.deploy_targets_by_plugin) == TARGETS
    assert (application.platform_provider, application.cloud_provider) == ("k8s", "k8s")


async def test_counts_name_only_kinds_that_pages_of_other_makes_know(
    plane: ServedControlPlane, v0: AgentClient, v1: AgentClient
) -> None:
    """What a v1 application says in its label counts, if it is such a kind."""
    await v0_application(plane, v0)
    await v1_application(plane, v1, "one", kind="ecs")
    await v1_application(plane, v1, "two", kind="TERRAFORM")
    await v1_application(plane, v1, "three", kind="<script>\n")
    disabled = await v1_application(plane, v1, "four")
    gone = await v1_application(plane, v1, "five")
    await applications.set_disabled(plane.stores, PROGRAM, disabled, disabled=True)
    await applications.delete(plane.stores, PROGRAM, gone, lambda: 5)

    answer = await insights.count_applications(plane.stores, "default", lambda: 9)

    assert [(dict(each.labels), each.count) for each in answer.counts] == [
        ({"KIND": "ECS", "ACTIVE_STATUS": "ENABLED"}, 1),
        ({"KIND": "KUBERNETES", "ACTIVE_STATUS": "DISABLED"}, 1),
        ({"KIND": "KUBERNETES", "ACTIVE_STATUS": "ENABLED"}, 1),
        ({"KIND": "TERRAFORM", "ACTIVE_STATUS": "ENABLED"}, 2),
    ]
    assert answer.updated_at == 9


async def test_a_filter_by_kind_is_about_v0_and_labels_are_for_both(
    plane: ServedControlPlane, v0: AgentClient, v1: AgentClient
) -> None:
    await v0_application(plane, v0)
    await v1_application(plane, v1)

    async def found(wanted: ApplicationFilter) -> list[str]:
        page = await plane.stores.applications.page("default", wanted, limit=0, cursor="")
        return [application.name for application in page.items]

    assert await found(ApplicationFilter(kinds=(common_pb2.TERRAFORM,))) == ["old"]
    assert await found(ApplicationFilter(labels={"kind": "files"})) == ["new"]
