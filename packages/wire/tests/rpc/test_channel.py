# SPDX-License-Identifier: Apache-2.0
"""The calling side: which failures are repeated, how long between, and what a caller sees."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2_grpc import ApplicationServiceStub, ProjectServiceStub
from pipecd_wire.rpc import (
    CallError,
    Channel,
    Endpoints,
    Retry,
    call,
    connect,
    serving,
    stream,
    wait_until_ready,
)

if TYPE_CHECKING:
    from pipecd_wire.pipecd.api.api_pb2_grpc import ApplicationServiceAsyncStub

LIMIT = 30.0

HOLD = pb.ReleaseHoldRequest(application_id="app-1")
WATCH = pb.WatchChangesRequest()

Served = Callable[..., Endpoints]


def applications(channel: Channel) -> "ApplicationServiceAsyncStub":
    return ApplicationServiceStub(channel)


class Failing:
    """A handler that answers with these statuses, one per call, and then well."""

    def __init__(self, *statuses: str) -> None:
        self._statuses = list(statuses)
        self.calls = 0

    async def __call__(self, _caller: object, _request: object) -> pb.ReleaseHoldResponse:
        self.calls += 1
        if self._statuses:
            raise CallError(self._statuses.pop(0), "not now")
        return pb.ReleaseHoldResponse(command_id="at last")


QUICK = Retry(base_seconds=0.001, cap_seconds=0.01)


@pytest.mark.parametrize("status", ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED"])
async def test_a_failure_that_may_pass_is_repeated(served: Served, status: str) -> None:
    handler = Failing(status, status)

    async with (
        asyncio.timeout(LIMIT),
        serving(served(handler), "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}") as channel,
    ):
        response = await call(applications(channel).ReleaseHold, HOLD, retry=QUICK)

    assert response.command_id == "at last"
    assert handler.calls == 3


@pytest.mark.parametrize(
    "status", ["INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "INTERNAL", "UNKNOWN"]
)
async def test_a_refusal_and_a_bug_are_not_repeated(served: Served, status: str) -> None:
    handler = Failing(status)

    async with (
        asyncio.timeout(LIMIT),
        serving(served(handler), "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}") as channel,
    ):
        with pytest.raises(CallError, match=f"{status}: not now"):
            await call(applications(channel).ReleaseHold, HOLD, retry=QUICK)

    assert handler.calls == 1


async def test_attempts_come_to_an_end(served: Served) -> None:
    handler = Failing(*["UNAVAILABLE"] * 10)

    async with (
        asyncio.timeout(LIMIT),
        serving(served(handler), "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}") as channel,
    ):
        with pytest.raises(CallError, match="not now"):
            await call(applications(channel).ReleaseHold, HOLD, retry=QUICK)

    assert handler.calls == 3


async def test_without_a_retry_one_failure_is_enough(served: Served) -> None:
    handler = Failing("UNAVAILABLE")

    async with (
        asyncio.timeout(LIMIT),
        serving(served(handler), "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}") as channel,
    ):
        with pytest.raises(CallError):
            await call(applications(channel).ReleaseHold, HOLD)

    assert handler.calls == 1


def test_a_report_is_repeated_for_ever_and_whatever_the_first_answer_was() -> None:
    retry = Retry(attempts=None, also=frozenset({"INTERNAL"}))

    assert retry.again(CallError("INTERNAL", ""), 1_000)
    assert retry.again(CallError("UNAVAILABLE", ""), 1_000)
    assert not retry.again(CallError("NOT_FOUND", ""), 1)


@given(st.integers(min_value=1, max_value=10_000))
def test_the_pause_grows_to_its_cap_and_no_further(attempt: int) -> None:
    retry = Retry(base_seconds=0.2, cap_seconds=10)

    assert 0 <= retry.pause(attempt) <= min(10, 0.2 * 2 ** min(attempt - 1, 10))


def test_pauses_are_spread_so_that_callers_do_not_come_back_together() -> None:
    retry = Retry(base_seconds=1, cap_seconds=1)

    pauses = [retry.pause(1) for _ in range(200)]

    assert min(pauses) < 0.25
    assert max(pauses) > 0.75


async def test_metadata_is_asked_for_before_each_call(served: Served) -> None:
    tokens = iter(["first", "second"])
    seen = []

    async def whoami(caller: dict[str, str], _request: object) -> pb.ReleaseHoldResponse:
        seen.append(caller["token"])
        return pb.ReleaseHoldResponse()

    async with (
        asyncio.timeout(LIMIT),
        serving(served(whoami), "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}", metadata=lambda: [("token", next(tokens))]) as channel,
    ):
        await call(applications(channel).ReleaseHold, HOLD)
        await call(applications(channel).ReleaseHold, HOLD)

    assert seen == ["first", "second"]


async def test_metadata_goes_with_streams_too(served: Served) -> None:
    async def whoami(caller: dict[str, str], _request: object) -> AsyncIterator[Any]:
        yield pb.WatchChangesResponse(changes=[pb.Change(id=caller["token"])])

    async with (
        asyncio.timeout(LIMIT),
        serving(served(streaming=whoami), "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}", metadata=lambda: [("token", "t")]) as channel,
    ):
        responses = stream(ProjectServiceStub(channel).WatchChanges, WATCH)
        assert [response.changes[0].id async for response in responses] == ["t"]


async def test_a_stream_may_have_a_deadline(served: Served) -> None:
    async def silent(_caller: object, _request: object) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield pb.WatchChangesResponse()

    async with (
        asyncio.timeout(LIMIT),
        serving(served(streaming=silent), "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}") as channel,
    ):
        responses = stream(ProjectServiceStub(channel).WatchChanges, WATCH, deadline=0.2)
        with pytest.raises(CallError) as failed:
            await anext(responses)

    assert failed.value.status == "DEADLINE_EXCEEDED"


async def test_a_stream_whose_reader_leaves_is_cancelled_at_the_server(served: Served) -> None:
    ended = asyncio.Event()

    async def endless(_caller: object, _request: object) -> AsyncIterator[Any]:
        try:
            yield pb.WatchChangesResponse()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with (
        asyncio.timeout(LIMIT),
        serving(served(streaming=endless), "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}") as channel,
    ):
        async with aclosing(stream(ProjectServiceStub(channel).WatchChanges, WATCH)) as responses:
            await anext(responses)
        await ended.wait()


async def test_a_peer_that_is_not_there_is_unavailable(served: Served) -> None:
    async with serving(served(), "127.0.0.1:0", grace_seconds=0) as port:
        address = f"127.0.0.1:{port}"

    async with asyncio.timeout(LIMIT), connect(address) as channel:
        with pytest.raises(CallError) as failed:
            await call(applications(channel).ReleaseHold, HOLD, deadline=LIMIT)

    assert failed.value.status == "UNAVAILABLE"
    assert failed.value.transient


async def test_waiting_for_a_peer_that_does_not_come_has_a_limit(served: Served) -> None:
    async with serving(served(), "127.0.0.1:0", grace_seconds=0) as port:
        address = f"127.0.0.1:{port}"

    async with asyncio.timeout(LIMIT), connect(address) as channel:
        with pytest.raises(CallError, match=r"not reachable within 0\.1s") as failed:
            await wait_until_ready(channel, limit=0.1)

    assert failed.value.status == "UNAVAILABLE"


async def test_an_answer_over_the_callers_limit_is_refused(served: Served) -> None:
    async def large(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        return pb.ReleaseHoldResponse(command_id="x" * 2_000)

    async with (
        asyncio.timeout(LIMIT),
        serving(served(large), "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}", max_message=1_000) as channel,
    ):
        with pytest.raises(CallError) as failed:
            await call(applications(channel).ReleaseHold, HOLD)

    assert failed.value.status == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    served: Served, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Companies set http_proxy for everybody; plugins and piped still talk on loopback."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)

    async with (
        serving(served(Failing()), "127.0.0.1:0") as port,
        connect(f"{host}:{port}") as channel,
    ):
        answer = await call(applications(channel).ReleaseHold, HOLD)

    assert answer.command_id == "at last"


class Babbling(grpc.GenericRpcHandler):
    """Answers every call with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def once(_request: bytes, _context: object) -> bytes:
            return self._answer

        async def again(_request: bytes, _context: object) -> AsyncIterator[bytes]:
            yield self._answer

        if handler_call_details.method.endswith("WatchChanges"):
            return grpc.unary_stream_rpc_method_handler(again)
        return grpc.unary_unary_rpc_method_handler(once)


@pytest.mark.parametrize("answer", [b"\xff" * 100, b"\x0a\x02\xff\xfe"], ids=["bytes", "no text"])
async def test_an_answer_that_is_no_message_is_a_failure_of_the_call(answer: bytes) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Babbling(answer),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with asyncio.timeout(LIMIT), connect(f"127.0.0.1:{port}") as channel:
            with pytest.raises(CallError, match="not a message of the protocol"):
                await call(applications(channel).ReleaseHold, HOLD)
            changes = stream(ProjectServiceStub(channel).WatchChanges, WATCH)
            with pytest.raises(CallError, match="not a message of the protocol"):
                await anext(changes)
    finally:
        await server.stop(0)
