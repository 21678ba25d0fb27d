# SPDX-License-Identifier: Apache-2.0
"""Who gets in, over the real wire."""

import asyncio
from typing import Any

import bcrypt
import pytest

from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.waiting import Soon
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.apiservice import service_pb2_grpc as apiservice_grpc
from pipecd_wire.model import apikey_pb2, piped_pb2
from pipecd_wire.pipecd.api import api_pb2, api_pb2_grpc
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.pipedservice import service_pb2_grpc as pipedservice_grpc
from pipecd_wire.rpc import CallError, call, connect, stream
from pipecd_wire.rpc.endpoint import LATE_SECONDS
from pipecd_wire.rpc.frames import frame


async def refusal(method: Any, request: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        await call(method, request)
    return caught.value


async def shown(plane: ServedControlPlane, authorization: str | None) -> Any:
    """A piped's stub with any credential."""
    pairs = [("authorization", authorization)] if authorization is not None else []
    channel = await plane.opened.enter_async_context(connect(plane.address, metadata=lambda: pairs))
    return pipedservice_grpc.PipedServiceStub(channel)


async def test_a_piped_with_its_key_gets_in(plane: ServedControlPlane) -> None:
    agent = await plane.agent()

    answer = await call(agent.service.ListApplications, pb.ListApplicationsRequest())

    assert list(answer.applications) == []


async def test_a_wrong_piped_key_is_a_sentence_with_a_hint(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    wrong = await plane.agent_with("default", agent.id, "x" * 50)

    error = await refusal(wrong.service.ListApplications, pb.ListApplicationsRequest())

    assert error.status == "UNAUTHENTICATED"
    assert error.message == (
        "unknown piped or wrong piped key"
        " (check projectID, pipedID and the key in the piped config)"
    )


@pytest.mark.parametrize(("project", "piped"), [("other", None), ("default", "nobody")])
async def test_the_right_key_for_the_wrong_piped_is_wrong(
    plane: ServedControlPlane, project: str, piped: str | None
) -> None:
    agent = await plane.agent()
    wrong = await plane.agent_with(project, piped or agent.id, agent.key)

    error = await refusal(wrong.service.ListApplications, pb.ListApplicationsRequest())

    assert error.status == "UNAUTHENTICATED"
    assert "unknown piped or wrong piped key" in error.message


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "PIPED-TOKEN",
        "PIPED-TOKEN ",
        "PIPED-TOKEN default,only-two",
        "PIPED-TOKEN default,,key",
        "PIPED-TOKEN default,a,b,c",
        "PIPED-TOKEN  default,a,b",
        "Bearer default,a,b",
        "piped-token default,a,b",
    ],
)
async def test_a_malformed_credential_is_refused(
    plane: ServedControlPlane, authorization: str | None
) -> None:
    service = await shown(plane, authorization)

    error = await refusal(service.ListApplications, pb.ListApplicationsRequest())

    assert error.status == "UNAUTHENTICATED"


async def test_a_refusal_does_not_repeat_the_credential(plane: ServedControlPlane) -> None:
    service = await shown(plane, "PIPED-TOKEN default,me,s3cr3t,more")

    error = await refusal(service.ListApplications, pb.ListApplicationsRequest())

    assert "s3cr3t" not in error.message


async def test_a_disabled_piped_is_out_with_the_next_call(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    await call(plane.admin.api.DisablePiped, apiservice.DisablePipedRequest(piped_id=agent.id))

    error = await refusal(agent.service.ListApplications, pb.ListApplicationsRequest())

    assert error.status == "UNAUTHENTICATED"
    assert "the piped 'agent' is disabled" in error.message

    await call(plane.admin.api.EnablePiped, apiservice.EnablePipedRequest(piped_id=agent.id))
    await call(agent.service.ListApplications, pb.ListApplicationsRequest())


async def test_a_disabled_piped_loses_its_watch_at_once(
    plane: ServedControlPlane, soon: Soon
) -> None:
    agent = await plane.agent()
    request = push_pb2.WatchRequest(instance_id="i", data_folder_id="f")
    watch = stream(agent.push.Watch, request)
    await soon(anext(watch))

    await call(plane.admin.api.DisablePiped, apiservice.DisablePipedRequest(piped_id=agent.id))

    with pytest.raises(CallError) as caught:
        await soon(anext(watch))
    assert caught.value.status == "UNAUTHENTICATED"


async def test_a_key_that_was_taken_away_is_out_with_the_next_call(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()

    def take_away(piped: piped_pb2.Piped) -> None:
        del piped.keys[:]

    await plane.stores.pipeds.update("default", agent.id, take_away)

    error = await refusal(agent.service.ListApplications, pb.ListApplicationsRequest())
    assert error.status == "UNAUTHENTICATED"


async def test_a_key_that_was_taken_away_before_its_request_came_is_out(
    plane: ServedControlPlane, soon: Soon
) -> None:
    """The server says `100 Continue` when it has let the caller in and wants the request."""
    agent = await plane.agent()
    request = frame(pb.ListApplicationsRequest().SerializeToString())
    head = (
        "POST /grpc.service.pipedservice.PipedService/ListApplications HTTP/1.1\r\nhost: x\r\n"
        "content-type: application/grpc-web\r\nexpect: 100-continue\r\nconnection: close\r\n"
        f"authorization: PIPED-TOKEN default,{agent.id},{agent.key}\r\n"
        f"content-length: {len(request)}\r\n\r\n"
    )

    def drop_keys(piped: piped_pb2.Piped) -> None:
        del piped.keys[:]

    host, _, port = plane.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(head.encode())
        assert b"100 Continue" in await soon(reader.readuntil(b"\r\n\r\n"))
        await plane.stores.pipeds.update("default", agent.id, drop_keys)
        await asyncio.sleep(LATE_SECONDS)
        writer.write(request)
        assert b"grpc-status:16" in await soon(reader.read())
    finally:
        writer.close()


async def test_either_of_two_piped_keys_works(plane: ServedControlPlane) -> None:
    agent, other = await plane.agent(), await plane.agent(name="other")
    both = await plane.stores.pipeds.get("default", other.id)

    def add(piped: piped_pb2.Piped) -> None:
        piped.keys.extend(both.keys)

    await plane.stores.pipeds.update("default", agent.id, add)

    for key in (agent.key, other.key):
        shown_key = await plane.agent_with("default", agent.id, key)
        await call(shown_key.service.ListApplications, pb.ListApplicationsRequest())


async def test_a_read_only_key_reads_and_does_not_write(plane: ServedControlPlane) -> None:
    key = await plane.new_key("reader", role=apikey_pb2.APIKey.READ_ONLY)
    reader = await plane.user(key)

    await call(reader.api.ListApplications, apiservice.ListApplicationsRequest())
    error = await refusal(reader.api.RegisterPiped, apiservice.RegisterPipedRequest(name="x"))

    assert error.status == "PERMISSION_DENIED"
    assert error.message == "the API key 'reader' may only read"


async def test_a_wrong_api_key_is_refused(plane: ServedControlPlane) -> None:
    wrong = plane.admin.key[:-1] + ("a" if plane.admin.key[-1] != "a" else "b")
    for key in (wrong, "unknown.secret", "nodot", "a.b.c", "."):
        user = await plane.user(key)
        error = await refusal(user.api.ListApplications, apiservice.ListApplicationsRequest())
        assert error.status == "UNAUTHENTICATED"
        assert key not in error.message


async def test_a_disabled_api_key_is_out_with_the_next_call(plane: ServedControlPlane) -> None:
    key = await plane.new_key("robot")
    robot = await plane.user(key)
    await call(robot.api.ListApplications, apiservice.ListApplicationsRequest())

    def disable(record: apikey_pb2.APIKey) -> None:
        record.disabled = True

    await plane.stores.api_keys.update("default", key.partition(".")[0], disable)

    error = await refusal(robot.api.ListApplications, apiservice.ListApplicationsRequest())
    assert (error.status, error.message) == ("UNAUTHENTICATED", "the API key 'robot' is disabled")


async def test_each_kind_of_caller_has_its_own_services(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    as_api = apiservice_grpc.APIServiceStub(agent.channel)
    as_piped = pipedservice_grpc.PipedServiceStub(plane.admin.channel)

    error = await refusal(as_api.ListApplications, apiservice.ListApplicationsRequest())
    assert (error.status, error.message) == (
        "UNAUTHENTICATED",
        "ListApplications needs an API key or a session",
    )
    error = await refusal(as_piped.ListApplications, pb.ListApplicationsRequest())
    assert (error.status, error.message) == (
        "UNAUTHENTICATED",
        "ListApplications needs a piped token",
    )


async def test_a_session_is_not_known_yet(plane: ServedControlPlane) -> None:
    channel = await plane.opened.enter_async_context(
        connect(plane.address, metadata=lambda: [("cookie", "token=abc")])
    )
    stub = api_pb2_grpc.PipedServiceStub(channel)

    error = await refusal(stub.ListPipeds, api_pb2.ListPipedsRequest())

    assert error.status == "UNAUTHENTICATED"


async def test_a_request_is_judged_after_its_caller(plane: ServedControlPlane) -> None:
    """A stranger learns nothing about what a request must hold."""
    bad = apiservice.GetApplicationRequest()
    stranger = await plane.user("unknown.secret")

    assert (await refusal(stranger.api.GetApplication, bad)).status == "UNAUTHENTICATED"
    error = await refusal(plane.admin.api.GetApplication, bad)
    assert error.status == "INVALID_ARGUMENT"
    assert error.message.startswith("invalid request: application_id")


async def test_who_shows_many_wrong_keys_is_no_longer_looked_at(plane: ServedControlPlane) -> None:
    """Each one costs us time; a right key that was seen before costs none and goes on."""
    user = await plane.user(await plane.new_key("with a slow hash"))
    key_id = user.key.partition(".")[0]

    cheap = bcrypt.hashpw(user.key.encode(), bcrypt.gensalt(4)).decode()

    def make_cheap(record: apikey_pb2.APIKey) -> None:
        """Seventy of the real ones may take longer than a stranger's connection lasts."""
        record.key_hash = cheap

    await plane.stores.api_keys.update("default", key_id, make_cheap)
    await call(user.api.ListApplications, apiservice.ListApplicationsRequest())

    async def status_of(stub: Any, number: int) -> str:
        pairs = [("authorization", f"API-KEY {key_id}.wrong{number}")]
        request = apiservice.ListApplicationsRequest()
        with pytest.raises(CallError) as caught:
            await call(stub.ListApplications, request, metadata=pairs, deadline=100)
        return caught.value.status

    async with connect(plane.address) as channel, asyncio.TaskGroup() as tasks:
        stub = apiservice_grpc.APIServiceStub(channel)
        asked = [tasks.create_task(status_of(stub, number)) for number in range(70)]
        statuses = {await each for each in asked}

    assert statuses == {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"}
    await call(user.api.ListApplications, apiservice.ListApplicationsRequest())
