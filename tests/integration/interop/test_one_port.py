# SPDX-License-Identifier: Apache-2.0
"""Everything at once on one port: many clients of all kinds, and messages of all sizes."""

import asyncio
import ssl
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from pipecd_test_support.interop import InteropServer, ServeInterop
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.api.api_pb2_grpc import DeploymentServiceStub
from pipecd_wire.rpc import CallError, Channel, ClientTls, call, connect, stream
from pipecd_wire.rpc.frames import frame

LIMIT = 60.0
MAX_MESSAGE = 10 * 1024 * 1024

RESOURCE_EXHAUSTED = "grpc-status:8"


def connecting(
    place: InteropServer,
) -> AbstractAsyncContextManager[Channel]:
    tls = None if place.roots is None else ClientTls(roots=place.roots)
    return connect(
        place.address,
        tls=tls,
        metadata=lambda: [("authorization", "API-KEY interop")],
        # The caller's own limit is out of the way: the server is to refuse.
        max_message=2 * MAX_MESSAGE,
    )


async def get_application(channel: Channel, application_id: str) -> str:
    request = pb.GetApplicationRequest(application_id=application_id)
    response = await call(APIServiceStub(channel).GetApplication, request, deadline=LIMIT)
    return response.application.id


async def http(place: InteropServer, request: bytes) -> bytes:
    host, port = place.address.split(":")
    context = None
    if place.roots is not None:
        context = ssl.create_default_context(cadata=place.roots.decode())
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.transport.abort()


def grpc_web(application_id: str) -> bytes:
    message = pb.GetApplicationRequest(application_id=application_id).SerializeToString()
    body = frame(message)
    return (
        "POST /grpc.service.apiservice.APIService/GetApplication HTTP/1.1\r\n"
        "host: x\r\nconnection: close\r\nauthorization: API-KEY interop\r\n"
        f"content-type: application/grpc-web+proto\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body


def id_of_length(length: int) -> str:
    """An id with which the whole request message has this many bytes."""
    overhead = len(pb.GetApplicationRequest(application_id="x" * length).SerializeToString())
    return "app" + "x" * (length - (overhead - length) - len("app"))


async def test_a_message_of_ten_mebibytes_passes(serve: ServeInterop) -> None:
    largest = id_of_length(MAX_MESSAGE - 100)  # the answer carries it too, and a little more

    async with asyncio.timeout(LIMIT), serve() as place, connecting(place) as channel:
        assert await get_application(channel, largest) == largest
        assert largest.encode() in await http(place, grpc_web(largest))


async def test_a_message_over_ten_mebibytes_is_refused(serve: ServeInterop) -> None:
    too_large = id_of_length(MAX_MESSAGE + 1)

    async with asyncio.timeout(LIMIT), serve() as place, connecting(place) as channel:
        with pytest.raises(CallError) as failed:
            await get_application(channel, too_large)
        over_web = await http(place, grpc_web(too_large))

    assert failed.value.status == "RESOURCE_EXHAUSTED"
    assert RESOURCE_EXHAUSTED.encode() in over_web


async def test_fifty_clients_of_all_kinds_at_once(serve: ServeInterop) -> None:
    async def one_call(place: InteropServer, number: int) -> None:
        async with connecting(place) as channel:
            assert await get_application(channel, f"app-{number}") == f"app-{number}"

    async def one_stream(place: InteropServer, _number: int) -> None:
        request = api_pb2.FollowStageLogRequest(deployment_id="d", stage_id="s")
        async with connecting(place) as channel:
            follow = DeploymentServiceStub(channel).FollowStageLog
            assert len([response async for response in stream(follow, request)]) == 4

    async def one_web_call(place: InteropServer, number: int) -> None:
        answer = await http(place, grpc_web(f"app-{number}"))
        assert f"app-{number}".encode() in answer

    async def one_page(place: InteropServer, _number: int) -> None:
        answer = await http(place, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert answer.endswith(b"ok")

    async def one_that_leaves(place: InteropServer, _number: int) -> None:
        await http(place, b"PRI * HTTP/2.0\r\n\r\nnonsense")

    kinds = (one_call, one_stream, one_web_call, one_page, one_that_leaves)
    async with asyncio.timeout(LIMIT), serve() as place:
        await one_call(place, 0)
        tasks, files = len(asyncio.all_tasks()), open_files()
        async with asyncio.TaskGroup() as clients:
            for number in range(50):
                clients.create_task(kinds[number % len(kinds)](place, number))

        while len(asyncio.all_tasks()) > tasks or open_files() > files:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
