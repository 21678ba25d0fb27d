# SPDX-License-Identifier: Apache-2.0
"""Where the control plane that came before breaks, loses or leaks something: ours does not."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.message import Message

from pipecd_controlplane.store.commands import MOST_AT_ONCE
from pipecd_controlplane.usecases import limits
from pipecd_model import command
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.rpc import UnaryMethod, call_refused
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.model import logblock_pb2
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import call


@pytest.mark.parametrize(
    "fields", [{"statuses": [""]}, {"kinds": [""]}, {"statuses": ["NONSENSE"]}, {"limit": -1}]
)
async def test_a_blank_or_wrong_filter_is_refused_and_the_server_goes_on(
    plane: ServedControlPlane, fields: dict[str, Any]
) -> None:
    error = await call_refused(
        plane.admin.api.ListDeployments, api.ListDeploymentsRequest(**fields)
    )

    assert error.status == "INVALID_ARGUMENT"
    await call(plane.admin.api.ListDeployments, api.ListDeploymentsRequest())


async def test_writers_at_the_same_moment_lose_nothing(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    """Metadata, stages and status of one deployment, all at once."""
    agent = await plane.agent()
    stages = [build.stage(f"s{number}") for number in range(20)]
    await plane.deployment(agent, await plane.application(agent), "d1", *stages)
    service = agent.service

    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            reports: list[tuple[UnaryMethod, Message]] = [
                (
                    service.SaveDeploymentMetadata,
                    pb.SaveDeploymentMetadataRequest(
                        deployment_id="d1", metadata={f"k{number}": "v"}
                    ),
                ),
                (
                    service.SaveDeploymentPluginMetadata,
                    pb.SaveDeploymentPluginMetadataRequest(
                        deployment_id="d1", plugin_name="p", metadata={f"k{number}": "v"}
                    ),
                ),
                (
                    service.ReportStageStatusChanged,
                    build.stage_report("d1", f"s{number}", model.STAGE_SUCCESS),
                ),
            ]
            for method, request in reports:
                tasks.create_task(call(method, request, deadline=60))

    kept = await plane.read_deployment("d1")
    assert len(kept.metadata) == 20
    assert len(kept.metadata_v2.plugins["p"].keyValues) == 20
    assert {stage.status for stage in kept.stages} == {model.STAGE_SUCCESS}


async def test_a_line_of_any_length_does_not_cut_the_log(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    await plane.deployment(agent, await plane.application(agent), "d1", build.stage("s1"))
    blocks = [
        logblock_pb2.LogBlock(index=index, log="x" * length, created_at=1)
        for index, length in enumerate((10, 70_000, 1_500_000, 10))
    ]
    for block in blocks[:3]:
        await call(
            agent.service.ReportStageLogs,
            pb.ReportStageLogsRequest(deployment_id="d1", stage_id="s1", blocks=[block]),
        )
    await call(
        agent.service.ReportStageLogsFromLastCheckpoint,
        pb.ReportStageLogsFromLastCheckpointRequest(
            deployment_id="d1", stage_id="s1", blocks=blocks[2:], completed=True
        ),
    )

    answer = await call(plane.admin.api.ListStageLogs, api.ListStageLogsRequest(deployment_id="d1"))

    log = answer.stage_logs["s1"]
    assert [len(block.log) for block in log.blocks] == [10, 70_000, 1_500_000, 10]
    assert log.completed


async def test_a_long_name_is_kept_whole(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    name = "n" * 300
    application_id = await plane.application(agent, name=name)
    await plane.deployment(agent, application_id, "d1", application_name=name)

    listed = await call(
        plane.admin.api.ListDeployments, api.ListDeploymentsRequest(application_name=name)
    )

    assert [each.application_name for each in listed.deployments] == [name]
    error = await call_refused(
        plane.admin.api.AddApplication,
        api.AddApplicationRequest(
            name="n" * 501, piped_id=agent.id, git_path=plane.build.git_path()
        ),
    )
    assert (error.status, "name: 501 characters" in error.message) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/", "a/b", "..", "\x00", "ä"])
async def test_names_of_shared_objects_are_only_names(plane: ServedControlPlane, name: str) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    here = {"application_id": application_id, "plugin_name": name, "key": name}

    await call(
        agent.service.PutApplicationSharedObject,
        pb.PutApplicationSharedObjectRequest(**here, object=b"mine"),
    )

    answer = await call(
        agent.service.GetApplicationSharedObject, pb.GetApplicationSharedObjectRequest(**here)
    )
    assert answer.object == b"mine"
    other = pb.GetApplicationSharedObjectRequest(**{**here, "key": "k"})
    assert (
        await call_refused(agent.service.GetApplicationSharedObject, other)
    ).status == "NOT_FOUND"


async def test_what_could_not_be_read_again_is_refused(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)

    error = await call_refused(
        agent.service.PutApplicationSharedObject,
        pb.PutApplicationSharedObjectRequest(
            application_id=application_id,
            plugin_name="p",
            key="k",
            object=bytes(limits.SHARED_OBJECT_BYTES),
        ),
    )

    assert error.status == "INVALID_ARGUMENT"


async def test_a_deployment_cannot_grow_past_what_an_agent_takes(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    await plane.deployment(agent, await plane.application(agent), "d1")
    large = "x" * (limits.DEPLOYMENT_BYTES // 2)
    save = agent.service.SaveDeploymentMetadata

    await call(save, pb.SaveDeploymentMetadataRequest(deployment_id="d1", metadata={"a": large}))
    error = await call_refused(
        save, pb.SaveDeploymentMetadataRequest(deployment_id="d1", metadata={"b": large})
    )

    assert error.status == "INVALID_ARGUMENT"
    answer = await call(
        agent.service.ListNotCompletedDeployments, pb.ListNotCompletedDeploymentsRequest()
    )
    assert [list(each.metadata) for each in answer.deployments] == [["a"]]
    await call(
        agent.service.ReportDeploymentCompleted,
        pb.ReportDeploymentCompletedRequest(
            deployment_id="d1", status=model.DEPLOYMENT_CANCELLED, completed_at=5
        ),
    )


@pytest.mark.parametrize("field", ["project_id", "piped_id"])
async def test_a_deployment_cannot_be_slipped_into_anothers_list(
    plane: ServedControlPlane, field: str
) -> None:
    agent, other = await plane.agent(), await plane.agent(name="other")
    application_id = await plane.application(agent)
    foreign = {"project_id": "theirs", "piped_id": other.id}[field]
    fields = {"project_id": "default", "piped_id": agent.id, field: foreign}
    deployment = plane.build.deployment(application_id=application_id, **fields)

    error = await call_refused(
        agent.service.CreateDeployment, pb.CreateDeploymentRequest(deployment=deployment)
    )

    assert error.status == "INVALID_ARGUMENT"
    listed = await call(
        other.service.ListNotCompletedDeployments, pb.ListNotCompletedDeploymentsRequest()
    )
    assert not listed.deployments


async def test_a_moved_application_belongs_to_its_new_piped_at_once(
    plane: ServedControlPlane,
) -> None:
    old, new = await plane.agent(name="old"), await plane.agent(name="new")
    application_id = await plane.application(old)
    report = pb.ReportApplicationDeployingStatusRequest(
        application_id=application_id, deploying=True
    )
    await call(old.service.ReportApplicationDeployingStatus, report)

    await call(
        plane.admin.api.UpdateApplication,
        api.UpdateApplicationRequest(
            application_id=application_id, piped_id=new.id, git_path=plane.build.git_path()
        ),
    )

    await call(new.service.ReportApplicationDeployingStatus, report)
    refused = await call_refused(old.service.ReportApplicationDeployingStatus, report)
    assert refused.status == "PERMISSION_DENIED"


def test_a_stage_that_its_plugin_lets_skip_can_be_skipped(build: MessageBuilder) -> None:
    """Upstream goes by the name ANALYSIS alone."""
    deployment = build.deployment(
        status=model.DEPLOYMENT_RUNNING,
        stages=[
            build.stage(
                "s1",
                name="MY_CHECKS",
                status=model.STAGE_RUNNING,
                available_operation=model.MANUAL_OPERATION_SKIP,
            )
        ],
    )

    made = command.skip(deployment, "s1", by="ada", at=datetime.fromtimestamp(5, UTC))

    assert made.skip_stage.stage_id == "s1"


async def test_commands_that_wait_do_not_overflow_a_list(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    for number in range(MOST_AT_ONCE + 3):
        await plane.stores.commands.add(
            plane.build.command(
                id=f"c{number:04}",
                piped_id=agent.id,
                project_id="default",
                created_at=plane.build.NOON + number,
            )
        )

    answer = await call(agent.service.ListUnhandledCommands, pb.ListUnhandledCommandsRequest())

    assert len(answer.commands) == MOST_AT_ONCE
    assert answer.commands[0].id == "c0000"


async def test_nothing_of_a_deleted_application_changes(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    gone, there = await plane.application(agent), await plane.application(agent, name="there")
    service = plane.admin.api
    await call(service.DeleteApplication, api.DeleteApplicationRequest(application_id=gone))
    kept = await plane.stores.applications.get("default", gone)
    assert (kept.deleted, kept.disabled, kept.deleted_at > 0) == (True, True, True)

    for method, request in (
        (service.EnableApplication, api.EnableApplicationRequest(application_id=gone)),
        (service.DisableApplication, api.DisableApplicationRequest(application_id=gone)),
        (
            service.UpdateApplication,
            api.UpdateApplicationRequest(
                application_id=gone, piped_id=agent.id, git_path=plane.build.git_path()
            ),
        ),
        (
            service.RenameApplicationConfigFile,
            api.RenameApplicationConfigFileRequest(
                application_ids=[there, gone], new_filename="new.yaml"
            ),
        ),
        (
            service.UpdateApplicationDeployTargets,
            api.UpdateApplicationDeployTargetsRequest(
                application_id=gone,
                deploy_targets_by_plugin={"p": model.DeployTargets(deploy_targets=["t"])},
            ),
        ),
    ):
        assert (await call_refused(method, request)).status == "INVALID_ARGUMENT"
    await call(service.DeleteApplication, api.DeleteApplicationRequest(application_id=gone))

    assert await plane.stores.applications.get("default", gone) == kept
    other = await plane.stores.applications.get("default", there)
    assert other.git_path.config_filename != "new.yaml", "all of them, or none"
