# SPDX-License-Identifier: Apache-2.0
"""Who may call at all, over real gRPC on both loopback addresses."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial

import grpc.aio
import pytest

from pipecd_runtime.peer import has_ipv6
from pipecd_test_support.stranger import (
    ME,
    NEEDS_ROOT,
    NOBODY,
    UNKNOWN_METHODS,
    attempts,
    call_as,
    methods_of,
)
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2_grpc import ApplicationServiceStub, ProjectServiceStub
from pipecd_wire.rpc import (
    Authenticator,
    CallError,
    Channel,
    Endpoints,
    IncomingCall,
    Server,
    StatusError,
    call,
    connect,
    has_token,
    require_own_user,
    stream,
)
from pipecd_wire.rpc.authentication import split_peer

LIMIT = 60.0
HOLD = pb.ReleaseHoldRequest(application_id="app-1")
WATCH = pb.WatchChangesRequest()
SERVICES = [
    pb.DESCRIPTOR.services_by_name[name] for name in ("ApplicationService", "ProjectService")
]
PATHS = [*methods_of(*SERVICES), *UNKNOWN_METHODS]
HOSTS = [
    "127.0.0.1",
    pytest.param("[::1]", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6")),
]

Served = Callable[..., Endpoints]


@asynccontextmanager
async def serving(
    endpoints: Endpoints, authenticator: Authenticator, host: str = "127.0.0.1"
) -> AsyncIterator[str]:
    """A server with an authenticator; the value is its address."""
    server = Server(endpoints, authenticator=authenticator)
    port = server.listen(f"{host}:0")
    await server.start()
    try:
        async with asyncio.timeout(LIMIT):
            yield f"{host}:{port}"
    finally:
        await server.stop(0)


async def with_token(call: IncomingCall) -> None:
    if not has_token(call, "token", "right"):
        raise StatusError("UNAUTHENTICATED", "no")


async def ids_of(channel: Channel) -> list[str]:
    answers = stream(ProjectServiceStub(channel).WatchChanges, WATCH)
    return [each.changes[0].id async for each in answers]


@pytest.mark.parametrize("host", HOSTS)
async def test_our_own_user_is_served(served: Served, host: str) -> None:
    async with (
        serving(served(), require_own_user, host) as address,
        connect(address) as channel,
    ):
        answer = await call(ApplicationServiceStub(channel).ReleaseHold, HOLD)

        assert answer.command_id == "app-1"
        assert await ids_of(channel) == ["0", "1", "2"]


@pytest.mark.parametrize("host", HOSTS)
async def test_everybody_but_the_expected_user_is_refused(served: Served, host: str) -> None:
    only_another = partial(require_own_user, uid=ME + 1)
    async with serving(served(), only_another, host) as address:
        statuses = await call_as(ME, address, attempts(PATHS))

    expected = (
        f"UNAUTHENTICATED: only processes of the user {ME + 1} are served: "
        f"the caller is the user {ME} of this machine, not {ME + 1}"
    )
    assert set(statuses) == {expected}


@pytest.mark.skipif(ME != 0, reason=NEEDS_ROOT)
@pytest.mark.parametrize("host", HOSTS)
async def test_another_user_of_the_machine_is_refused(served: Served, host: str) -> None:
    async with serving(served(), require_own_user, host) as address:
        strangers = await call_as(NOBODY, address, attempts(PATHS))
        ours = await call_as(ME, address, attempts(PATHS))

    assert {each.partition(":")[0] for each in strangers} == {"UNAUTHENTICATED"}
    assert {each.partition(":")[0] for each in ours} == {
        "OK",  # the echo, the stream
        "INVALID_ARGUMENT",
        "UNIMPLEMENTED",
    }


@pytest.mark.parametrize(
    "proof",
    [(), (("token", ""),), (("token", "wrong"),), (("token", "right "),), (("other", "right"),)],
)
async def test_a_wrong_token_is_refused_whatever_is_called(
    served: Served, proof: tuple[tuple[str, str], ...]
) -> None:
    """Bytes that are no message would be INVALID_ARGUMENT, had anybody read them."""
    async with serving(served(), with_token) as address:
        statuses = await call_as(ME, address, attempts(PATHS, *proof))

    assert set(statuses) == {"UNAUTHENTICATED: no"}


async def test_the_right_token_is_served(served: Served) -> None:
    proof = [("token", "right")]
    async with (
        serving(served(), with_token) as address,
        connect(address, metadata=lambda: proof) as channel,
    ):
        answer = await call(ApplicationServiceStub(channel).ReleaseHold, HOLD)

        assert answer.command_id == "app-1"
        assert await ids_of(channel) == ["0", "1", "2"]


async def test_an_empty_token_is_never_right() -> None:
    call = IncomingCall(metadata={"token": ""}, peer="", server_ports=frozenset())

    assert not has_token(call, "token", "")


async def test_a_refused_message_is_never_read(served: Served) -> None:
    """One over the limit would be RESOURCE_EXHAUSTED, had it been taken."""
    async with serving(served(), with_token) as address, connect(address) as channel:
        large = pb.ReleaseHoldRequest(application_id="x" * (9 * 1024 * 1024))
        with pytest.raises(CallError, match="UNAUTHENTICATED"):
            await call(ApplicationServiceStub(channel).ReleaseHold, large)


async def test_an_authenticator_with_a_bug_lets_nobody_in(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_call: IncomingCall) -> None:
        raise KeyError("a bug")

    async with serving(served(), broken) as address, connect(address) as channel:
        with pytest.raises(CallError, match="INTERNAL: internal error"):
            await call(ApplicationServiceStub(channel).ReleaseHold, HOLD)

    assert "a bug" in caplog.text


async def test_a_call_without_a_message_is_told_so(served: Served) -> None:
    async with serving(served(), require_own_user) as address, connect(address) as channel:
        path = "/pipecd.api.v1.ApplicationService/ReleaseHold"
        assert path in PATHS

        async def nothing() -> AsyncIterator[bytes]:
            for each in list[bytes]():
                yield each

        method: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(path)
        with pytest.raises(Exception, match="exactly one message"):
            await method(nothing())


async def test_a_cancelled_call_ends_its_handler(served: Served) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with serving(served(wait), require_own_user) as address, connect(address) as channel:
        async with asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(
                call(ApplicationServiceStub(channel).ReleaseHold, HOLD, deadline=None)
            )
            await begun.wait()
            calling.cancel()
        await ended.wait()


async def test_a_stream_that_is_left_ends_its_handler(served: Served) -> None:
    ended = asyncio.Event()

    async def endless(_caller: object, _request: object) -> AsyncIterator[pb.WatchChangesResponse]:
        try:
            yield pb.WatchChangesResponse()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with (
        serving(served(streaming=endless), require_own_user) as address,
        connect(address) as channel,
    ):
        async with aclosing(stream(ProjectServiceStub(channel).WatchChanges, WATCH)) as answers:
            await anext(answers)
        await ended.wait()


async def test_each_connection_of_a_port_is_judged_anew(served: Served) -> None:
    """The address of a caller may be that of an earlier one, who was somebody else."""
    judged: list[IncomingCall] = []

    async def note(call: IncomingCall) -> None:
        judged.append(call)
        await require_own_user(call)

    async with serving(served(), note) as address:
        for _ in range(3):
            async with connect(address) as channel:
                await call(ApplicationServiceStub(channel).ReleaseHold, HOLD)
                await call(ApplicationServiceStub(channel).ReleaseHold, HOLD)

    assert len(judged) == 6
    assert {each.server_ports for each in judged} == {frozenset({int(address.rpartition(":")[2])})}


async def test_whoever_calls_and_hangs_up_is_not_taken_for_root(served: Served) -> None:
    """A socket without a process is root's by the kernel's table. piped often is root."""
    arrived: asyncio.Future[IncomingCall] = asyncio.get_running_loop().create_future()

    async def hold(call: IncomingCall) -> None:
        arrived.set_result(call)
        await asyncio.Event().wait()

    async with serving(served(), hold) as address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port))) as caller:
            caller.sendall(raw_call("/pipecd.api.v1.ApplicationService/ReleaseHold"))
            call = await arrived
        with pytest.raises(StatusError, match=r"has hung up|no process"):
            await require_own_user(call, uid=0)


def raw_call(path: str) -> bytes:
    """The bytes of a call in HTTP/2, with an empty message."""

    def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
        head = len(payload).to_bytes(3) + bytes([kind, flags])
        return head + stream_id.to_bytes(4) + payload

    def header(name: str, value: str) -> bytes:
        return b"".join((b"\x00", *(bytes([len(t)]) + t.encode() for t in (name, value))))

    pairs = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    headers = b"".join(header(name, value) for name, value in pairs.items())
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(4, 0, 0, b"")
        + frame(1, 4, 1, headers)
        + frame(0, 1, 1, b"\x00" * 5)
    )


async def test_refused_calls_are_logged_but_do_not_fill_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(served(), with_token) as address:
        await call_as(ME, address, attempts(["/a.B/C"] * 50))

    [line] = [each for each in caplog.records if each.message == "rpc.caller_refused"]
    assert vars(line)["fields"]["reason"] == "no"


@pytest.mark.parametrize("peer", ["", "unix:", "unix:@abc", "ipv4:127.0.0.1", "ipv4:127.0.0.1:x"])
async def test_a_caller_without_an_address_is_refused(peer: str) -> None:
    call = IncomingCall(metadata={}, peer=peer, server_ports=frozenset({1}))

    with pytest.raises(StatusError) as refused:
        await require_own_user(call)

    assert refused.value.status == "UNAUTHENTICATED"


def test_an_address_is_read_from_what_grpc_says() -> None:
    assert split_peer("ipv4:127.0.0.1:41808") == ("127.0.0.1", 41808)
    assert split_peer("ipv6:%5B::1%5D:41808") == ("::1", 41808)
    assert split_peer("ipv6:%5B::ffff:127.0.0.1%5D:1") == ("::ffff:127.0.0.1", 1)
