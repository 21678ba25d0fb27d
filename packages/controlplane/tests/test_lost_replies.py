# SPDX-License-Identifier: Apache-2.0
"""The server is killed after a commit and before the reply: the agent's repeat changes nothing.

One case for each RPC with which an agent writes; an RPC that is added without one fails a test.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipecd_controlplane.serve.server_command import DIE_AFTER_COMMIT
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_process import RunServer
from pipecd_test_support.controlplane_server import Serve
from pipecd_test_support.stored_rows import read_tables
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.apiservice import service_pb2_grpc as api_grpc
from pipecd_wire.model import (
    analysis_result_pb2,
    application_pb2,
    command_pb2,
    common_pb2,
    event_pb2,
    piped_pb2,
)
from pipecd_wire.model import application_live_state_pb2 as live
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipecd.control import control_pb2
from pipecd_wire.pipecd.push import push_pb2, push_pb2_grpc
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.pipedservice import service_pb2_grpc as pipedservice_grpc
from pipecd_wire.rpc import CallError, call, connect
from pipecd_wire.rpc.handlers import describe

PIPED_SERVICE = "/grpc.service.pipedservice.PipedService/"
PUSH_SERVICE = "/pipecd.push.v1.PushService/"
REGISTER_PIPED = "/grpc.service.apiservice.APIService/RegisterPiped"

NOON = 1_700_000_000


@dataclass
class World:
    """What is there before the call: `d1` runs its stage `s1`, `d0` is not planned yet."""

    build: MessageBuilder
    piped_id: str
    key: str
    application_id: str
    command_id: str
    event_id: str = ""


Request = Callable[[World], Any]


def reference(world: World) -> application_pb2.ApplicationDeploymentReference:
    made = application_pb2.ApplicationDeploymentReference(deployment_id="d1", started_at=NOON)
    made.trigger.CopyFrom(world.build.trigger())
    return made


def information(world: World) -> common_pb2.ApplicationInfo:
    return common_pb2.ApplicationInfo(
        id=world.application_id,
        name="renamed",
        repo_id="repo",
        path="apps/hello",
        piped_id=world.piped_id,
        labels={"team": "a"},
    )


def logs(world: World) -> dict[str, Any]:
    return {"deployment_id": "d1", "stage_id": "s1", "blocks": world.build.blocks(1, 2, 3)}


def pod(name: str) -> live.KubernetesResourceState:
    return live.KubernetesResourceState(
        id=name, name=name, api_version="v1", kind="Pod", created_at=NOON, updated_at=NOON
    )


def snapshot(world: World, *names: str) -> live.ApplicationLiveStateSnapshot:
    return live.ApplicationLiveStateSnapshot(
        application_id=world.application_id,
        piped_id=world.piped_id,
        project_id="default",
        kubernetes=live.KubernetesApplicationLiveState(resources=[pod(name) for name in names]),
        version=live.ApplicationLiveStateVersion(timestamp=NOON),
    )


CASES: dict[str, Request] = {
    PIPED_SERVICE + "ReportStat": lambda _: pb.ReportStatRequest(piped_stats=b"up 1\n"),
    PIPED_SERVICE + "ReportPipedMeta": lambda _: pb.ReportPipedMetaRequest(version="v2.0.0"),
    PIPED_SERVICE + "ReportApplicationSyncState": lambda w: pb.ReportApplicationSyncStateRequest(
        application_id=w.application_id,
        state=application_pb2.ApplicationSyncState(
            status=application_pb2.OUT_OF_SYNC, timestamp=NOON
        ),
    ),
    PIPED_SERVICE + "ReportApplicationDeployingStatus": lambda w: (
        pb.ReportApplicationDeployingStatusRequest(application_id=w.application_id, deploying=True)
    ),
    PIPED_SERVICE + "ReportApplicationMostRecentDeployment": lambda w: (
        pb.ReportApplicationMostRecentDeploymentRequest(
            application_id=w.application_id,
            status=model.DEPLOYMENT_SUCCESS,
            deployment=reference(w),
        )
    ),
    PIPED_SERVICE + "CreateDeployment": lambda w: pb.CreateDeploymentRequest(
        deployment=w.build.deployment(
            id="d2",
            application_id=w.application_id,
            piped_id=w.piped_id,
            project_id="default",
        )
    ),
    PIPED_SERVICE + "ReportDeploymentPlanned": lambda w: w.build.planned(
        "d0", w.build.stage("s1"), summary="planned"
    ),
    PIPED_SERVICE + "ReportDeploymentStatusChanged": lambda _: (
        pb.ReportDeploymentStatusChangedRequest(
            deployment_id="d1", status=model.DEPLOYMENT_ROLLING_BACK
        )
    ),
    PIPED_SERVICE + "ReportDeploymentCompleted": lambda _: pb.ReportDeploymentCompletedRequest(
        deployment_id="d1",
        status=model.DEPLOYMENT_FAILURE,
        stage_statuses={"s1": model.STAGE_FAILURE},
        completed_at=NOON,
    ),
    PIPED_SERVICE + "SaveDeploymentMetadata": lambda _: pb.SaveDeploymentMetadataRequest(
        deployment_id="d1", metadata={"a": "b"}
    ),
    PIPED_SERVICE + "SaveDeploymentSharedMetadata": lambda _: (
        pb.SaveDeploymentSharedMetadataRequest(deployment_id="d1", metadata={"a": "b"})
    ),
    PIPED_SERVICE + "SaveDeploymentPluginMetadata": lambda _: (
        pb.SaveDeploymentPluginMetadataRequest(
            deployment_id="d1", plugin_name="wait", metadata={"a": "b"}
        )
    ),
    PIPED_SERVICE + "SaveStageMetadata": lambda _: pb.SaveStageMetadataRequest(
        deployment_id="d1", stage_id="s1", metadata={"a": "b"}
    ),
    PIPED_SERVICE + "ReportStageLogs": lambda w: pb.ReportStageLogsRequest(**logs(w)),
    PIPED_SERVICE + "ReportStageLogsFromLastCheckpoint": lambda w: (
        pb.ReportStageLogsFromLastCheckpointRequest(**logs(w), completed=True)
    ),
    PIPED_SERVICE + "ReportStageStatusChanged": lambda w: w.build.stage_report(
        "d1", "s1", model.STAGE_RUNNING
    ),
    PIPED_SERVICE + "ReportCommandHandled": lambda w: pb.ReportCommandHandledRequest(
        command_id=w.command_id,
        status=command_pb2.COMMAND_SUCCEEDED,
        metadata={"triggered-deployment-id": "d1"},
        handled_at=NOON,
        output=b"done",
    ),
    PIPED_SERVICE + "UpdateApplicationConfigurations": lambda w: (
        pb.UpdateApplicationConfigurationsRequest(applications=[information(w)])
    ),
    PIPED_SERVICE + "ReportUnregisteredApplicationConfigurations": lambda w: (
        pb.ReportUnregisteredApplicationConfigurationsRequest(applications=[information(w)])
    ),
    PIPED_SERVICE + "PutApplicationSharedObject": lambda w: pb.PutApplicationSharedObjectRequest(
        application_id=w.application_id, plugin_name="wait", key="state", object=b"\x00\x01"
    ),
    PIPED_SERVICE + "ReportApplicationLiveState": lambda w: pb.ReportApplicationLiveStateRequest(
        snapshot=snapshot(w, "p2")
    ),
    PIPED_SERVICE + "ReportApplicationLiveStateEvents": lambda w: (
        pb.ReportApplicationLiveStateEventsRequest(
            kubernetes_events=[
                live.KubernetesResourceStateEvent(
                    id="e1",
                    application_id=w.application_id,
                    state=pod("p3"),
                    snapshot_version=live.ApplicationLiveStateVersion(timestamp=NOON, index=1),
                    created_at=NOON,
                )
            ]
        )
    ),
    PIPED_SERVICE + "ReportEventStatuses": lambda w: pb.ReportEventStatusesRequest(
        events=[
            pb.ReportEventStatusesRequest.Event(
                id=w.event_id, status=event_pb2.EVENT_SUCCESS, status_description="done"
            )
        ]
    ),
    PIPED_SERVICE + "PutLatestAnalysisResult": lambda w: pb.PutLatestAnalysisResultRequest(
        application_id=w.application_id,
        analysis_result=analysis_result_pb2.AnalysisResult(start_time=NOON),
    ),
    PIPED_SERVICE + "CreateDeploymentChain": lambda w: pb.CreateDeploymentChainRequest(
        first_deployment=w.build.deployment(
            id="d3",
            application_id=w.application_id,
            piped_id=w.piped_id,
            project_id="default",
        ),
        matchers=[pb.CreateDeploymentChainRequest.ApplicationMatcher(name="nobody")],
    ),
    PUSH_SERVICE + "ReportCommandHandled": lambda _: push_pb2.ReportCommandHandledRequest(
        command_id="own", succeeded=True, reason="done"
    ),
    PUSH_SERVICE + "RegisterApplications": lambda _: push_pb2.RegisterApplicationsRequest(
        applications=[
            push_pb2.FoundApplication(name="found", repository_id="repo", path="apps/found")
        ]
    ),
    PUSH_SERVICE + "ReportPlugins": lambda _: push_pb2.ReportPluginsRequest(
        plugins=[push_pb2.PluginState(name="wait", state=push_pb2.PluginState.READY)]
    ),
    PUSH_SERVICE + "ReportProgress": lambda w: push_pb2.ReportProgressRequest(
        deployment_id="d1",
        reports=[
            push_pb2.ProgressReport(stage_status=w.build.stage_report("d1", "s1", status))
            for status in (model.STAGE_RUNNING, model.STAGE_SUCCESS)
        ],
    ),
    PUSH_SERVICE + "RegisterEvent": lambda _: push_pb2.RegisterEventRequest(
        deployment_id="d1", name="deployed", data="1"
    ),
    PUSH_SERVICE + "ReportQueue": lambda _: push_pb2.ReportQueueRequest(
        queued=[control_pb2.QueuedDeployment(deployment_id="one", position=1)]
    ),
}

ANSWERED_ALREADY = {PIPED_SERVICE + "CreateDeployment", PIPED_SERVICE + "CreateDeploymentChain"}
"""A repeat is told that the id is taken, which for an agent is as good as a yes."""

KEPT_NOWHERE = {PUSH_SERVICE + "AnswerQuestion"}
"""It needs the lease and writes nothing: the answer goes to whoever waits for it."""


def test_every_rpc_with_which_an_agent_writes_has_its_case() -> None:
    services = {
        PIPED_SERVICE: pb.DESCRIPTOR.services_by_name["PipedService"],
        PUSH_SERVICE: push_pb2.DESCRIPTOR.services_by_name["PushService"],
    }
    writing = {
        prefix + method.name
        for prefix, service in services.items()
        for method in service.methods
        if not describe(method).without_lease
    }

    assert set(CASES) == writing - KEPT_NOWHERE


@pytest.fixture
async def world(serve: Serve, tmp_path: Path, build: MessageBuilder) -> World:
    async with serve(tmp_path) as plane:
        agent = await plane.agent()
        application_id = await plane.application(agent)
        await plane.deployment(agent, application_id, "d0")
        await plane.deployment(agent, application_id, "d1", build.stage("s1"))
        await plane.stores.push_commands.add("default", agent.id, push_pb2.Command(id="own"))
        asked = await call(
            plane.admin.api.SyncApplication,
            api.SyncApplicationRequest(application_id=application_id),
        )
        event = await call(
            plane.admin.api.RegisterEvent, api.RegisterEventRequest(name="image", data="v1")
        )
        made = World(build, agent.id, agent.key, application_id, asked.command_id, event.event_id)
        await call(
            agent.service.ReportApplicationLiveState,
            pb.ReportApplicationLiveStateRequest(snapshot=snapshot(made, "p1")),
        )
        return made


@asynccontextmanager
async def agent_at(address: str, world: World) -> AsyncIterator[dict[str, Any]]:
    """The stubs of the agent, by the beginnings of their paths."""
    pairs = [("authorization", f"PIPED-TOKEN default,{world.piped_id},{world.key}")]
    async with connect(address, metadata=lambda: pairs) as channel:
        yield {
            PIPED_SERVICE: pipedservice_grpc.PipedServiceStub(channel),
            PUSH_SERVICE: push_pb2_grpc.PushServiceStub(channel),
        }


def method_of(stubs: dict[str, Any], path: str) -> Any:
    service, slash, name = path.rpartition("/")
    return getattr(stubs[service + slash], name)


def everything(folder: Path) -> dict[str, set[tuple[Any, ...]]]:
    """All rows of all tables, without the times at which a piped was last heard."""
    tables = {
        name: {row_of(name, row) for row in rows} for name, rows in read_tables(folder).items()
    }
    assert tables["deployment"], "the dump is of nothing"
    return tables


def row_of(table: str, row: dict[str, Any]) -> tuple[Any, ...]:
    row.pop("updated_at", None)
    if table == "piped":
        piped = piped_pb2.Piped.FromString(row["data"])
        piped.ClearField("started_at")
        piped.ClearField("updated_at")
        row |= {"version": 0, "data": piped.SerializeToString(deterministic=True)}
    return tuple(row.items())


@pytest.mark.parametrize("path", CASES)
async def test_a_report_whose_reply_was_lost_is_repeated_without_effect(
    server: RunServer, tmp_path: Path, world: World, path: str
) -> None:
    request = CASES[path](world)
    before = everything(tmp_path)

    async with server(tmp_path, env={DIE_AFTER_COMMIT: path}) as running:
        async with agent_at(running.address, world) as stubs:
            with pytest.raises(CallError) as lost:
                await call(method_of(stubs, path), request)
        assert lost.value.transient
        assert await running.wait_ended() == -9
    committed = everything(tmp_path)
    assert committed != before

    async with (
        server(tmp_path) as again,
        agent_at(again.address, world) as stubs,
    ):
        if path in ANSWERED_ALREADY:
            with pytest.raises(CallError) as refused:
                await call(method_of(stubs, path), request)
            assert refused.value.status == "ALREADY_EXISTS"
        else:
            await call(method_of(stubs, path), request)
        assert everything(tmp_path) == committed


async def test_a_registration_whose_reply_was_lost_is_repeated_with_its_idempotency_key(
    server: RunServer, tmp_path: Path, world: World
) -> None:
    """No second piped is made, and the repeat gets a key that works."""
    request = api.RegisterPipedRequest(name="second")

    @asynccontextmanager
    async def user_at(address: str) -> AsyncIterator[Any]:
        key = (tmp_path / "admin.key").read_text().strip()
        pairs = [("authorization", f"API-KEY {key}"), ("pipecd-idempotency-key", "once")]
        async with connect(address, metadata=lambda: pairs) as channel:
            yield api_grpc.APIServiceStub(channel)

    async with server(tmp_path, env={DIE_AFTER_COMMIT: REGISTER_PIPED}) as running:
        async with user_at(running.address) as user:
            with pytest.raises(CallError):
                await call(user.RegisterPiped, request)
        assert await running.wait_ended() == -9

    async with server(tmp_path) as again, user_at(again.address) as user:
        made = await call(user.RegisterPiped, request)
        made = await call(user.RegisterPiped, request)
        second = World(world.build, made.id, made.key, "", "")
        async with agent_at(again.address, second) as stubs:
            await call(stubs[PIPED_SERVICE].ListApplications, pb.ListApplicationsRequest())

    assert len(everything(tmp_path)["piped"]) == 2
