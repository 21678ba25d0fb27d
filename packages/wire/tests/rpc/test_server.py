# SPDX-License-Identifier: Apache-2.0
"""Endpoints over real gRPC on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2_grpc import ApplicationServiceStub, ProjectServiceStub
from pipecd_wire.rpc import (
    PEER,
    AddressError,
    CallError,
    CallLimits,
    Channel,
    Endpoints,
    Metadata,
    Method,
    Server,
    call,
    connect,
    serving,
    stream,
    wait_until_ready,
)

if TYPE_CHECKING:
    from pipecd_wire.pipecd.api.api_pb2_grpc import ApplicationServiceAsyncStub

LIMIT = 30.0
"""Seconds after which a test gives up; nothing here takes long."""

HOLD = pb.ReleaseHoldRequest(application_id="app-1")
WATCH = pb.WatchChangesRequest()

Served = Callable[..., Endpoints]


@asynccontextmanager
async def running(endpoints: Endpoints, **options: Any) -> AsyncIterator[Channel]:
    async with (
        asyncio.timeout(LIMIT),
        serving(endpoints, "127.0.0.1:0", grace_seconds=0, **options) as port,
        connect(f"127.0.0.1:{port}") as channel,
    ):
        yield channel


def applications(channel: Channel) -> "ApplicationServiceAsyncStub":
    return ApplicationServiceStub(channel)


class TeapotError(Exception):
    status = "FAILED_PRECONDITION"
    hint = "ask for tea"


async def test_a_unary_call_is_answered(served: Served) -> None:
    async with running(served()) as channel:
        assert (await call(applications(channel).ReleaseHold, HOLD)).command_id == "app-1"


async def test_a_stream_is_answered(served: Served) -> None:
    async with running(served()) as channel:
        ids = [
            response.changes[0].id
            async for response in stream(ProjectServiceStub(channel).WatchChanges, WATCH)
        ]

    assert ids == ["0", "1", "2"]


async def test_an_error_comes_out_at_the_caller_as_it_was_raised(served: Served) -> None:
    async def handler(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        raise TeapotError("not a 'Kännchen'")

    async with running(served(handler)) as channel:
        with pytest.raises(CallError) as failed:
            await call(applications(channel).ReleaseHold, HOLD)

    assert failed.value.status == "FAILED_PRECONDITION"
    assert failed.value.message == "not a 'Kännchen' (ask for tea)"
    assert failed.value.method == "/pipecd.api.v1.ApplicationService/ReleaseHold"
    assert not failed.value.transient


@pytest.mark.parametrize("words", ["ä" * 20_000, "file \udcff has no name"])
async def test_an_error_arrives_whatever_its_words_are(served: Served, words: str) -> None:
    """They travel in a header, which has a limit and knows no lone surrogates."""

    async def handler(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        raise TeapotError(words)

    async with running(served(handler)) as channel:
        with pytest.raises(CallError) as failed:
            await call(applications(channel).ReleaseHold, HOLD)

    assert failed.value.status == "FAILED_PRECONDITION"
    assert failed.value.message[:4] == words[:4]


async def test_an_error_within_a_stream_comes_out_after_its_messages(served: Served) -> None:
    async def one_then_none(_caller: object, _request: object) -> AsyncIterator[Any]:
        yield pb.WatchChangesResponse()
        raise TeapotError("no more")

    async with running(served(streaming=one_then_none)) as channel:
        responses = stream(ProjectServiceStub(channel).WatchChanges, WATCH)
        await anext(responses)
        with pytest.raises(CallError, match="no more"):
            await anext(responses)


async def test_an_invalid_request_is_refused_with_the_fields_name(served: Served) -> None:
    async with running(served()) as channel:
        with pytest.raises(CallError, match="invalid request: application_id") as failed:
            await call(applications(channel).ReleaseHold, pb.ReleaseHoldRequest())

    assert failed.value.status == "INVALID_ARGUMENT"


async def test_bytes_that_are_no_message_are_invalid(served: Served) -> None:
    async with running(served()) as channel:
        raw: Any = channel.unary_unary("/pipecd.api.v1.ApplicationService/ReleaseHold")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await raw(b"\xff\xff", timeout=LIMIT)

    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_unknown_method_is_unimplemented(served: Served) -> None:
    async with running(served()) as channel:
        raw: Any = channel.unary_unary("/pipecd.api.v1.ApplicationService/Nonsense")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await raw(b"", timeout=LIMIT)

    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_message_over_the_limit_is_refused(served: Served) -> None:
    large = pb.ReleaseHoldRequest(application_id="x" * 2_000)

    async with running(served(), max_message=1_000) as channel:
        with pytest.raises(CallError) as failed:
            await call(applications(channel).ReleaseHold, large)

    assert failed.value.status == "RESOURCE_EXHAUSTED"


async def test_metadata_and_the_callers_address_reach_admit(served: Served) -> None:
    seen: list[Metadata] = []

    async def admit(_method: Method, metadata: Metadata) -> None:
        seen.append(metadata)

    async with (
        asyncio.timeout(LIMIT),
        serving(served(admit=admit), "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}", metadata=lambda: [("authorization", "API-KEY k")]) as channel,
    ):
        await call(applications(channel).ReleaseHold, HOLD, metadata=[("extra", "1")])

    [metadata] = seen
    assert metadata["authorization"] == "API-KEY k"
    assert metadata["extra"] == "1"
    assert metadata[PEER] == "127.0.0.1"


async def test_a_deadline_ends_the_call_and_its_handler(served: Served) -> None:
    ended = asyncio.Event()

    async def slow(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with running(served(slow)) as channel:
        with pytest.raises(CallError) as failed:
            await call(applications(channel).ReleaseHold, HOLD, deadline=0.2)
        await ended.wait()

    assert failed.value.status == "DEADLINE_EXCEEDED"
    assert failed.value.transient


async def test_a_cancelled_call_ends_its_handler(served: Served) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def slow(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with running(served(slow)) as channel, asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call(applications(channel).ReleaseHold, HOLD))
        await started.wait()
        calling.cancel()
        await ended.wait()


async def test_leaving_a_stream_ends_its_handler_in_the_task_that_runs_it(served: Served) -> None:
    """A generator that is left to the garbage collector would end later, in another task."""
    tasks: list[asyncio.Task[Any] | None] = []
    ended = asyncio.Event()

    async def endless(_caller: object, _request: object) -> AsyncIterator[Any]:
        tasks.append(asyncio.current_task())
        try:
            while True:  # faster than anybody reads: the server waits in its write
                yield pb.WatchChangesResponse(changes=[pb.Change(id="x" * 10_000)])
        finally:
            tasks.append(asyncio.current_task())
            ended.set()

    async with running(served(streaming=endless)) as channel:
        responses = stream(ProjectServiceStub(channel).WatchChanges, WATCH)
        async with aclosing(responses):
            await anext(responses)
        await ended.wait()

    begun_in, ended_in = tasks
    assert begun_in is ended_in


async def test_a_taken_port_is_refused(served: Served) -> None:
    """Without its option gRPC would share the port, and each server would get half of the calls."""
    async with serving(served(), "127.0.0.1:0", grace_seconds=0) as port:
        with pytest.raises(AddressError, match="is the port taken"):
            Server(served()).listen(f"127.0.0.1:{port}")


async def test_a_graceful_stop_lets_running_calls_finish_and_takes_no_new_ones(
    served: Served,
) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def slow(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        started.set()
        await finish.wait()
        return pb.ReleaseHoldResponse(command_id="finished")

    server = Server(served(slow))
    address = f"127.0.0.1:{server.listen('127.0.0.1:0')}"
    await server.start()
    async with (
        asyncio.timeout(LIMIT),
        connect(address) as channel,
        asyncio.TaskGroup() as tasks,
    ):
        running_call = tasks.create_task(call(applications(channel).ReleaseHold, HOLD))
        await started.wait()
        stopping = tasks.create_task(server.stop(LIMIT))
        await refused_at(address)
        assert not running_call.done()
        finish.set()
        assert (await running_call).command_id == "finished"
        await stopping


async def refused_at(address: str) -> None:
    """Wait until nobody takes new connections there."""
    host, port = address.split(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except ConnectionRefusedError:
            return
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "ending", ["refused", "bug", "not admitted", "invalid", "stream", "unread"]
)
async def test_a_server_whose_calls_have_failed_stops_at_once(served: Served, ending: str) -> None:
    """A call that was ended with an error must not count as running for the whole grace."""

    async def fails(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        raise TeapotError("no") if ending == "refused" else ValueError("a bug")

    async def fails_later(_caller: object, _request: object) -> AsyncIterator[Any]:
        yield pb.WatchChangesResponse()
        raise TeapotError("no more")

    async def admit(_method: Method, _metadata: Metadata) -> None:
        if ending == "not admitted":
            raise TeapotError("who are you")

    server = Server(served(fails, fails_later, admit=admit))
    port = server.listen("127.0.0.1:0")
    await server.start()
    # The connection stays open: an agent's does, and the stop must not wait for it either.
    async with asyncio.timeout(LIMIT), connect(f"127.0.0.1:{port}") as channel:
        for _ in range(20):
            match ending:
                case "stream":
                    with pytest.raises(CallError):
                        _ = [
                            r async for r in stream(ProjectServiceStub(channel).WatchChanges, WATCH)
                        ]
                case "unread":  # the caller leaves before it hears of the error
                    responses = stream(ProjectServiceStub(channel).WatchChanges, WATCH)
                    async with aclosing(responses):
                        await anext(responses)
                case _:
                    request = pb.ReleaseHoldRequest() if ending == "invalid" else HOLD
                    with pytest.raises(CallError):
                        await call(applications(channel).ReleaseHold, request)
        await server.stop(LIMIT * 1000)


async def test_a_stop_ends_calls_that_outlast_its_grace(served: Served) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def stuck(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    server = Server(served(stuck))
    port = server.listen("127.0.0.1:0")
    await server.start()
    async with (
        asyncio.timeout(LIMIT),
        connect(f"127.0.0.1:{port}") as channel,
        asyncio.TaskGroup() as tasks,
    ):
        calling = tasks.create_task(refusal(channel))
        await started.wait()
        await server.stop(0.1)
        await ended.wait()
        assert (await calling).transient


async def refusal(channel: Channel) -> CallError:
    with pytest.raises(CallError) as failed:
        await call(applications(channel).ReleaseHold, HOLD)
    return failed.value


async def test_a_client_that_pings_often_is_not_cut_off(served: Served) -> None:
    """Go clients ping while nothing happens; by default gRPC calls that an attack."""
    pinging = [
        ("grpc.keepalive_time_ms", 1_200),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    by_default = grpc.aio.server()
    default_port = by_default.add_insecure_port("127.0.0.1:0")
    await by_default.start()
    async with (
        asyncio.timeout(LIMIT * 2),
        serving(served(), "127.0.0.1:0", grace_seconds=0) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=pinging) as ours,
        grpc.aio.insecure_channel(f"127.0.0.1:{default_port}", options=pinging) as other,
    ):
        await wait_until_ready(ours, limit=LIMIT)
        await wait_until_ready(other, limit=LIMIT)

        cut_off = other.wait_for_state_change(grpc.ChannelConnectivity.READY)
        await cut_off  # the other server, after a few pings; ours has had as many by now

        assert ours.get_state() is grpc.ChannelConnectivity.READY
    await by_default.stop(0)


async def test_a_stranger_is_refused_without_its_request_being_read(served: Served) -> None:
    """Its headers say who it is. The rest never comes, and is not waited for."""

    class UnknownError(Exception):
        status = "UNAUTHENTICATED"

    async def deny(_method: Method, _metadata: Metadata) -> None:
        raise UnknownError("who are you?")

    async with running(served(admit=deny)) as channel:
        begun: Any = channel.stream_unary("/pipecd.api.v1.ApplicationService/ReleaseHold")()
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await begun

    assert failed.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_request_that_does_not_arrive_is_given_up(served: Served) -> None:
    limits = CallLimits(read_seconds=0.1)

    async with limited(served(), limits) as channel:
        begun: Any = channel.stream_unary("/pipecd.api.v1.ApplicationService/ReleaseHold")()
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await begun

    assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert failed.value.details() == "the request did not arrive within 0.1 seconds"


async def test_a_call_without_a_message_is_refused(served: Served) -> None:
    async with running(served()) as channel:
        begun: Any = channel.stream_unary("/pipecd.api.v1.ApplicationService/ReleaseHold")(iter([]))
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await begun

    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("limits", "metadata"),
    [
        (CallLimits(max_header_fields=20), [(f"field-{number}", "x") for number in range(30)]),
        (CallLimits(max_header_bytes=20_000), [("field", "x" * 30_000)]),
    ],
)
async def test_headers_over_the_limit_are_refused(
    served: Served, limits: CallLimits, metadata: list[tuple[str, str]]
) -> None:
    async with limited(served(), limits) as channel:
        stub = applications(channel)
        with pytest.raises(CallError) as failed:
            await call(stub.ReleaseHold, HOLD, metadata=metadata)
        assert (await call(stub.ReleaseHold, HOLD)).command_id == "app-1"

    assert failed.value.status == "RESOURCE_EXHAUSTED"


async def test_headers_within_the_limit_always_pass(served: Served) -> None:
    """gRPC's own default refuses some of the calls between 8 and 16 KiB, by chance."""
    async with limited(served(), CallLimits(max_header_bytes=65_536)) as channel:
        for _ in range(20):
            await call(applications(channel).ReleaseHold, HOLD, metadata=[("field", "x" * 60_000)])


async def test_calls_beyond_the_limit_of_all_are_refused(served: Served) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def slow(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        started.set()
        await finish.wait()
        return pb.ReleaseHoldResponse(command_id="late")

    async with limited(served(slow), CallLimits(max_calls=1)) as channel:
        stub = applications(channel)
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(call(stub.ReleaseHold, HOLD))
            await started.wait()
            with pytest.raises(CallError) as failed:
                await call(stub.ReleaseHold, HOLD)
            finish.set()

    assert failed.value.status == "RESOURCE_EXHAUSTED"
    assert first.result().command_id == "late"


@asynccontextmanager
async def limited(endpoints: Endpoints, limits: CallLimits) -> AsyncIterator[Channel]:
    server = Server(endpoints, limits=limits)
    port = server.listen("127.0.0.1:0")
    await server.start()
    try:
        async with asyncio.timeout(LIMIT), connect(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(0)


async def test_a_client_that_keeps_to_the_limit_of_calls_is_never_refused(served: Served) -> None:
    """Each call begins as soon as the answer to another one is there, as gRPC clients do it."""
    limits = CallLimits(max_streams_per_connection=2)
    async with limited(served(), limits) as channel:
        stub = applications(channel)
        async with asyncio.TaskGroup() as calls:
            made = [calls.create_task(call(stub.ReleaseHold, HOLD)) for _ in range(1000)]

    assert {done.result().command_id for done in made} == {"app-1"}
