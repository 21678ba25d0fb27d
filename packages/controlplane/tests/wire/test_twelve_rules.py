# SPDX-License-Identifier: Apache-2.0
"""The twelve rules that agents, command lines and web clients of upstream rely on.

Paths, metadata and bytes are written out: no stub, no chain of ours stands between.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Protocol

import grpc
import pytest
from google.protobuf.message import Message

from pipecd_controlplane.usecases import sessions
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import application_pb2, command_pb2, deployment_pb2
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.pipedservice import service_pb2 as piped
from pipecd_wire.rpc import CallError, call, connect
from pipecd_wire.webservice import service_pb2 as web

LIMIT = 20.0

PIPED = "/grpc.service.pipedservice.PipedService/"
API = "/grpc.service.apiservice.APIService/"
WEB = "/grpc.service.webservice.WebService/"
LEGACY = {
    PIPED: "/pipe.api.service.pipedservice.PipedService/",
    API: "/pipe.api.service.apiservice.APIService/",
    WEB: "/pipe.api.service.webservice.WebService/",
}


class Send(Protocol):
    """Sends a message to a path; returns the bytes of the response."""

    async def __call__(self, path: str, message: Message | bytes = b"") -> bytes: ...


@asynccontextmanager
async def wire(plane: ServedControlPlane, **metadata: str) -> AsyncIterator[Send]:
    """Send bytes to a path and get bytes: `await send(path, message)`."""
    pairs = list(metadata.items())
    async with connect(plane.address, metadata=lambda: pairs) as channel:

        async def send(path: str, message: Message | bytes = b"") -> bytes:
            data = message if isinstance(message, bytes) else message.SerializeToString()
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
            return await call(method, data, deadline=LIMIT)

        yield send


def token(agent: AgentClient, project_id: str = "default") -> str:
    return f"PIPED-TOKEN {project_id},{agent.id},{agent.key}"


def key(plane: ServedControlPlane) -> str:
    return f"API-KEY {plane.admin.key}"


async def cookie(plane: ServedControlPlane) -> str:
    identity = sessions.UserIdentity(
        subject="ada", via=access_pb2.Session.STATIC_ADMIN, roles=("Admin",)
    )
    value = await sessions.start(
        plane.stores, "default", identity, now=lambda: 2**31, hours=1_000_000
    )
    return f"token={value}"


async def status(sending: Awaitable[bytes]) -> tuple[str, str]:
    with pytest.raises(CallError) as caught:
        await sending
    return caught.value.status, caught.value.message


async def over_web(plane: ServedControlPlane, path: str, message: bytes, headers: str) -> bytes:
    """A gRPC-Web call in binary mode, as bytes on a socket."""
    body = b"\x00" + len(message).to_bytes(4, "big") + message
    host, port = plane.address.rsplit(":", 1)
    async with asyncio.timeout(LIMIT):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"POST {path} HTTP/1.1\r\nhost: {plane.address}\r\nconnection: close\r\n{headers}"
            "content-type: application/grpc-web+proto\r\nx-grpc-web: 1\r\n"
            f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        answer = await reader.read()
        writer.transport.abort()
        return answer


async def test_rule_1_the_paths_and_their_legacy_prefix(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    for prefix, method, credential in (
        (PIPED, "GetDesiredVersion", {"authorization": token(agent)}),
        (API, "ListApplications", {"authorization": key(plane)}),
        (WEB, "GetMe", {"cookie": await cookie(plane)}),
    ):
        async with wire(plane, **credential) as send:
            assert await send(prefix + method) == await send(LEGACY[prefix] + method)


async def test_rule_2_everything_is_on_one_address(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    async with wire(plane, authorization=token(agent)) as send:
        assert await send(PIPED + "ListApplications") == b""
    over = await over_web(plane, API + "ListApplications", b"", f"authorization: {key(plane)}\r\n")
    me = await over_web(plane, WEB + "GetMe", b"", f"cookie: {await cookie(plane)}\r\n")
    host, port = plane.address.rsplit(":", 1)
    async with asyncio.timeout(LIMIT):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        page = await reader.read()
        writer.transport.abort()

    for answer in (over, me):
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"application/grpc-web+proto" in answer.lower()
        assert b"grpc-status:0" in answer.replace(b" ", b"")
    assert b"ada" in me
    assert page.startswith(b"HTTP/1.1 200")


async def test_rule_3_credentials_have_one_space(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    good, path = token(agent), PIPED + "ListApplications"
    for wrong in (
        good.replace(" ", "  "),
        good.replace(" ", ""),
        good.lower(),
        good + " ",
        good.replace(",", " ,"),
        key(plane),
        "",
    ):
        async with wire(plane, authorization=wrong) as send:
            assert (await status(send(path)))[0] == "UNAUTHENTICATED", wrong
    async with wire(plane, authorization=good) as send:
        await send(path)
    async with wire(plane, authorization=f"{key(plane)} ") as send:
        assert (await status(send(API + "ListApplications")))[0] == "UNAUTHENTICATED"
    for strange in ("token", "token=", ";", "a;token=x;", "=;=", await cookie(plane) + "x"):
        async with wire(plane, cookie=strange) as send:
            assert (await status(send(WEB + "GetMe")))[0] == "UNAUTHENTICATED", strange


def test_rule_4_every_call_is_unary() -> None:
    services = (
        piped.DESCRIPTOR.services_by_name["PipedService"],
        api.DESCRIPTOR.services_by_name["APIService"],
        web.DESCRIPTOR.services_by_name["WebService"],
    )

    assert [len(service.methods) for service in services] == [36, 23, 51]
    for service in services:
        for method in service.methods:
            assert not method.client_streaming
            assert not method.server_streaming


async def test_rule_5_what_is_not_there_yet_is_not_found(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    app = await plane.application(agent)
    async with wire(plane, authorization=token(agent)) as send:
        for method, request in (
            (
                "GetApplicationMostRecentDeployment",
                piped.GetApplicationMostRecentDeploymentRequest(
                    application_id=app, status=deployment_pb2.DEPLOYMENT_SUCCESS
                ),
            ),
            ("GetLatestAnalysisResult", piped.GetLatestAnalysisResultRequest(application_id=app)),
            (
                "GetApplicationSharedObject",
                piped.GetApplicationSharedObjectRequest(
                    application_id=app, plugin_name="p", key="k"
                ),
            ),
            ("GetLatestEvent", piped.GetLatestEventRequest(name="image")),
        ):
            assert (await status(send(PIPED + method, request)))[0] == "NOT_FOUND", method


async def test_rule_5_a_repeated_report_is_taken_like_the_first(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    """Also a late one that would take a status back: it is heard, and changes nothing."""
    agent = await plane.agent()
    app = await plane.application(agent)
    await plane.deployment(agent, app, "d1", build.stage("s1"))
    running = deployment_pb2.DEPLOYMENT_RUNNING
    reports = [
        ("ReportDeploymentPlanned", build.planned("d1", build.stage("s1"))),
        (
            "ReportDeploymentStatusChanged",
            piped.ReportDeploymentStatusChangedRequest(deployment_id="d1", status=running),
        ),
        ("ReportStageStatusChanged", build.stage_report("d1", "s1", deployment_pb2.STAGE_SUCCESS)),
        (
            "ReportDeploymentCompleted",
            piped.ReportDeploymentCompletedRequest(
                deployment_id="d1",
                status=deployment_pb2.DEPLOYMENT_SUCCESS,
                completed_at=5,
                stage_statuses={"s1": deployment_pb2.STAGE_SUCCESS},
            ),
        ),
        (
            "ReportApplicationDeployingStatus",
            piped.ReportApplicationDeployingStatusRequest(application_id=app, deploying=True),
        ),
    ]
    async with wire(plane, authorization=token(agent)) as send:
        for method, request in reports:
            await send(PIPED + method, request)
        done = await plane.read_deployment("d1")
        for method, request in [*reports, *reversed(reports)]:
            await send(PIPED + method, request)

    assert await plane.read_deployment("d1") == done
    assert done.status == deployment_pb2.DEPLOYMENT_SUCCESS


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_rule_6_the_last_page_of_unfinished_deployments_has_no_cursor(
    plane: ServedControlPlane, count: int
) -> None:
    agent = await plane.agent()
    app = await plane.application(agent)
    for number in range(count):
        # Three of them do not fit into one message of 10 MiB.
        await plane.deployment(agent, app, f"d{number}", summary="x" * 4_000_000)

    found, cursor, pages = [], "", 0
    async with wire(plane, authorization=token(agent)) as send:
        while True:
            answer = piped.ListNotCompletedDeploymentsResponse.FromString(
                await send(
                    PIPED + "ListNotCompletedDeployments",
                    piped.ListNotCompletedDeploymentsRequest(cursor=cursor),
                )
            )
            found += [deployment.id for deployment in answer.deployments]
            cursor, pages = answer.cursor, pages + 1
            if not cursor:
                break

    assert sorted(found) == [f"d{number}" for number in range(count)]
    assert pages == (2 if count == 3 else 1)


async def test_rule_7_a_piped_learns_its_name_and_where_people_look(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent(name="east")
    async with wire(plane, authorization=token(agent)) as send:
        answer = piped.ReportPipedMetaResponse.FromString(
            await send(PIPED + "ReportPipedMeta", piped.ReportPipedMetaRequest(version="v0.57.1"))
        )

    assert (answer.name, answer.web_base_url) == ("east", f"http://{plane.address}")


async def test_rule_8_what_a_piped_tells_is_kept_as_it_is(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    """Ids, statuses and stages included, and fields that this server does not know."""
    agent = await plane.agent()
    app = await plane.application(agent)
    told = build.deployment(
        id="an id of the piped's own",
        application_id=app,
        piped_id=agent.id,
        project_id="default",
        status=deployment_pb2.DEPLOYMENT_ROLLING_BACK,
        stages=[build.stage("s9", status=3), build.stage("s1", status=1)],
    )
    unknown = b"\xfa\x7d\x05later"  # field 2015, a string
    request = piped.CreateDeploymentRequest()
    request.deployment.ParseFromString(told.SerializeToString() + unknown)

    async with wire(plane, authorization=token(agent)) as send:
        await send(PIPED + "CreateDeployment", request)
        answer = await send(
            PIPED + "GetDeployment", piped.GetDeploymentRequest(id="an id of the piped's own")
        )

    assert unknown in answer
    kept = piped.GetDeploymentResponse.FromString(answer).deployment
    kept.DiscardUnknownFields()
    assert kept == told


async def test_rule_9_large_messages_pass(plane: ServedControlPlane) -> None:
    """A piped sends 4 MiB and takes 10; ours takes 10 as well."""
    agent = await plane.agent()
    app = await plane.application(agent)
    for megabytes in (3, 7):
        large = bytes(megabytes * 1024 * 1024)
        async with wire(plane, authorization=token(agent)) as send:
            await send(
                PIPED + "PutApplicationSharedObject",
                piped.PutApplicationSharedObjectRequest(
                    application_id=app, plugin_name="p", key="k", object=large
                ),
            )
            answer = await send(
                PIPED + "GetApplicationSharedObject",
                piped.GetApplicationSharedObjectRequest(
                    application_id=app, plugin_name="p", key="k"
                ),
            )
        assert len(answer) > len(large)


async def test_rule_9_a_list_fits_what_gos_pipectl_takes(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    app = await plane.application(agent)
    for number in range(3):
        await plane.deployment(agent, app, f"d{number}", summary="x" * 2_000_000)

    async with wire(plane, authorization=key(plane)) as send:
        answer = await send(API + "ListDeployments", api.ListDeploymentsRequest(limit=100))

    assert len(answer) < 4 * 1024 * 1024
    assert api.ListDeploymentsResponse.FromString(answer).cursor


async def test_rule_10_command_output_is_gos_plain_json(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    async with wire(plane, authorization=token(agent)) as send:
        await send(PIPED + "ReportStat", piped.ReportStatRequest(piped_stats=b"up 1\n"))
    asked = api.RequestPlanPreviewRequest(
        repo_remote_url="git@github.com:org/name.git",
        head_branch="f",
        head_commit="c0ffee",
        base_branch="main",
    )
    async with wire(plane, authorization=key(plane)) as program:
        (command_id,) = api.RequestPlanPreviewResponse.FromString(
            await program(API + "RequestPlanPreview", asked)
        ).commands
        created = (await plane.stores.commands.get("default", command_id)).created_at
        output = {
            "command_id": command_id,
            "piped_id": agent.id,
            "results": [
                {
                    "application_id": "a",
                    "application_name": "a",
                    "application_kind": 5,
                    "sync_strategy": 1,
                    "plan_summary": base64.b64encode(b"1 change").decode(),
                    "created_at": created,
                }
            ],
        }
        async with wire(plane, authorization=token(agent)) as send:
            await send(
                PIPED + "ReportCommandHandled",
                piped.ReportCommandHandledRequest(
                    command_id=command_id,
                    status=command_pb2.COMMAND_SUCCEEDED,
                    handled_at=created,
                    output=json.dumps(output).encode(),
                ),
            )
        answer = api.GetPlanPreviewResultsResponse.FromString(
            await program(
                API + "GetPlanPreviewResults",
                api.GetPlanPreviewResultsRequest(commands=[command_id]),
            )
        )

    (result,) = answer.results[0].results
    assert (result.application_kind, result.sync_strategy) == (5, 1)
    assert (result.plan_summary, result.created_at) == (b"1 change", created)


async def test_rule_11_traces_of_pipeds_get_a_clean_answer(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    bearer = f"Bearer default,{agent.id},{agent.key}"

    async with wire(plane, authorization=bearer) as send:
        assert await send(path, b"") == b""
    async with wire(plane, authorization=f"{bearer}x") as send:
        assert (await status(send(path, b"")))[0] in {"UNAUTHENTICATED", "PERMISSION_DENIED"}


async def test_rule_12_a_violation_is_named_after_the_caller_is_known(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    wrong = piped.ReportApplicationSyncStateRequest(
        application_id="a", state=application_pb2.ApplicationSyncState(timestamp=0)
    )
    path = PIPED + "ReportApplicationSyncState"

    async with wire(plane, authorization=token(agent)) as send:
        code, message = await status(send(path, wrong))
        assert code == "INVALID_ARGUMENT"
        assert message.startswith("invalid request: ")
        assert "timestamp" in message
        code, message = await status(send(path, b"\xff\xff\xff"))
        assert (code, message[:17]) == ("INVALID_ARGUMENT", "invalid request: ")
    async with wire(plane, authorization="PIPED-TOKEN a,b,c") as send:
        assert (await status(send(path, wrong)))[0] == "UNAUTHENTICATED"
