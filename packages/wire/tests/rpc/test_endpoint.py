# SPDX-License-Identifier: Apache-2.0
"""The chain of every call: admit, validate, handle, and what a caller is told when one refuses."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from google.protobuf.message import Message

from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipedservice import service_pb2 as piped
from pipecd_wire.rpc import (
    CallError,
    Endpoint,
    Endpoints,
    Metadata,
    Method,
    StatusError,
    TwoHandlersError,
    admit_all,
    rpc,
)

RELEASE = "/pipecd.api.v1.ApplicationService/ReleaseHold"
WATCH = "/pipecd.api.v1.ProjectService/WatchChanges"

Served = Callable[..., Endpoints]


class DeniedError(Exception):
    status = "PERMISSION_DENIED"
    hint = "ask an admin"


def found(endpoints: Endpoints, path: str) -> Endpoint:
    endpoint = endpoints.find(path)
    assert endpoint is not None
    return endpoint


async def test_the_handler_gets_what_admit_answered(served: Served) -> None:
    async def admit(method: Method, metadata: Metadata) -> str:
        return f"{metadata['who']} for {method.name}"

    async def whoami(caller: str, _request: pb.ReleaseHoldRequest) -> pb.ReleaseHoldResponse:
        return pb.ReleaseHoldResponse(command_id=caller)

    endpoint = found(served(whoami, admit=admit), RELEASE)

    response = await endpoint.unary(pb.ReleaseHoldRequest(application_id="a"), {"who": "ann"})

    assert response == pb.ReleaseHoldResponse(command_id="ann for ReleaseHold")


@pytest.mark.parametrize(("seconds", "asked"), [(0.5, ["admit"]), (90.0, ["admit", "late"])])
async def test_a_request_that_was_long_in_coming_is_admitted_once_more(
    seconds: float, asked: list[str]
) -> None:
    told: list[str] = []
    now = 1000.0

    class Api:
        @rpc("ReleaseHold")
        async def release_hold(
            self, caller: str, _request: pb.ReleaseHoldRequest
        ) -> pb.ReleaseHoldResponse:
            return pb.ReleaseHoldResponse(command_id=caller)

    async def admit(_method: Method, _metadata: Metadata) -> str:
        told.append("admit")
        return "early"

    async def admit_late(_method: Method, _metadata: Metadata) -> str:
        told.append("late")
        raise DeniedError("no more")

    async def arrive() -> pb.ReleaseHoldRequest:
        nonlocal now
        now += seconds
        return pb.ReleaseHoldRequest(application_id="a")

    endpoints = Endpoints(admit=admit, admit_late=admit_late, clock=lambda: now)
    service = pb.DESCRIPTOR.services_by_name["ApplicationService"]
    endpoints.add(service, Api(), unimplemented=set(service.methods_by_name) - {"ReleaseHold"})
    endpoint = found(endpoints, RELEASE)

    if "late" in asked:
        with pytest.raises(StatusError, match="no more"):
            await endpoint.unary(arrive, {})
    else:
        assert (await endpoint.unary(arrive, {})).command_id == "early"  # type: ignore[attr-defined]
    assert told == asked


async def test_a_stranger_is_not_told_that_the_request_is_invalid(served: Served) -> None:
    """Admit comes before validation: who may not call learns nothing about the call."""

    async def deny(_method: Method, _metadata: Metadata) -> None:
        raise DeniedError("not yours")

    endpoint = found(served(admit=deny), RELEASE)

    with pytest.raises(StatusError) as refused:
        await endpoint.unary(pb.ReleaseHoldRequest(), {})

    assert refused.value.status == "PERMISSION_DENIED"
    assert refused.value.message == "not yours (ask an admin)"


async def test_an_invalid_request_does_not_reach_the_handler(served: Served) -> None:
    reached = []

    async def handler(_caller: object, request: pb.ReleaseHoldRequest) -> pb.ReleaseHoldResponse:
        reached.append(request)
        return pb.ReleaseHoldResponse()

    endpoint = found(served(handler), RELEASE)

    with pytest.raises(StatusError, match="invalid request: application_id") as refused:
        await endpoint.unary(pb.ReleaseHoldRequest(), {})

    assert refused.value.status == "INVALID_ARGUMENT"
    assert reached == []


async def test_what_a_known_peer_gets_wrong_can_be_put_right_first(served: Served) -> None:
    def name_it(request: pb.ReleaseHoldRequest) -> None:
        request.application_id = request.application_id or "all"

    reached = []

    @rpc("ReleaseHold", prepare=name_it)
    async def handler(_caller: object, request: pb.ReleaseHoldRequest) -> pb.ReleaseHoldResponse:
        reached.append(request.application_id)
        return pb.ReleaseHoldResponse()

    endpoint = Endpoint(found(served(), RELEASE).method, handler, admit_all, ())

    await endpoint.unary(pb.ReleaseHoldRequest(), {})

    assert reached == ["all"]


async def test_a_bug_is_logged_with_its_traceback_and_the_caller_gets_its_number(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_caller: object, _request: pb.ReleaseHoldRequest) -> pb.ReleaseHoldResponse:
        raise KeyError("a secret of ours")

    endpoint = found(served(broken), RELEASE)

    with caplog.at_level(logging.ERROR), pytest.raises(StatusError) as refused:
        await endpoint.unary(pb.ReleaseHoldRequest(application_id="a"), {})

    [record] = caplog.records
    assert record.exc_info is not None
    assert record.__dict__["fields"]["bug"] in refused.value.message
    assert refused.value.status == "INTERNAL"
    assert "secret" not in refused.value.message


async def test_an_error_that_calls_itself_ok_is_a_bug(served: Served) -> None:
    class FineError(Exception):
        status = "OK"

    async def handler(_caller: object, _request: pb.ReleaseHoldRequest) -> pb.ReleaseHoldResponse:
        raise FineError("all is well")

    with pytest.raises(StatusError) as refused:
        await found(served(handler), RELEASE).unary(pb.ReleaseHoldRequest(application_id="a"), {})

    assert refused.value.status == "INTERNAL"


async def test_the_status_of_a_failed_call_of_the_handler_is_passed_on(served: Served) -> None:
    async def handler(_caller: object, _request: pb.ReleaseHoldRequest) -> pb.ReleaseHoldResponse:
        raise CallError("NOT_FOUND", "no such thing there")

    with pytest.raises(StatusError, match="no such thing there") as refused:
        await found(served(handler), RELEASE).unary(pb.ReleaseHoldRequest(application_id="a"), {})

    assert refused.value.status == "NOT_FOUND"


async def test_an_owed_rpc_is_unimplemented(served: Served) -> None:
    endpoint = found(served(), "/pipecd.api.v1.ApplicationService/SetFreeze")

    with pytest.raises(StatusError, match="SetFreeze is not served yet") as refused:
        await endpoint.unary(pb.SetFreezeRequest(application_id="a"), {})

    assert refused.value.status == "UNIMPLEMENTED"


async def test_a_stream_ends_with_the_status_of_its_error(served: Served) -> None:
    async def two_then_gone(
        _caller: object, _request: pb.WatchChangesRequest
    ) -> AsyncIterator[pb.WatchChangesResponse]:
        yield pb.WatchChangesResponse()
        yield pb.WatchChangesResponse()
        raise DeniedError("no longer yours")

    endpoint = found(served(streaming=two_then_gone), WATCH)

    responses = endpoint.stream(pb.WatchChangesRequest(), {})

    await anext(responses)
    await anext(responses)
    with pytest.raises(StatusError, match="no longer yours"):
        await anext(responses)


async def test_closing_a_stream_early_ends_its_handler(served: Served) -> None:
    ended = []

    async def endless(
        _caller: object, _request: pb.WatchChangesRequest
    ) -> AsyncIterator[pb.WatchChangesResponse]:
        try:
            while True:
                yield pb.WatchChangesResponse()
        finally:
            ended.append("ended")

    endpoint = found(served(streaming=endless), WATCH)

    async with aclosing(endpoint.stream(pb.WatchChangesRequest(), {})) as responses:
        await anext(responses)

    assert ended == ["ended"]


async def test_a_guard_stands_between_a_stream_and_its_caller(served: Served) -> None:
    ended, seen = [], []

    async def endless(
        _caller: object, _request: pb.WatchChangesRequest
    ) -> AsyncIterator[pb.WatchChangesResponse]:
        try:
            while True:
                yield pb.WatchChangesResponse()
        finally:
            ended.append("ended")

    async def one_only(
        method: Method,
        metadata: Metadata,
        caller: object,
        request: object,
        answers: AsyncGenerator[Message, None],
    ) -> AsyncGenerator[Any, None]:
        seen.append((method.path, metadata, caller, request))
        async with aclosing(answers):
            yield await anext(answers)
            raise DeniedError("no longer yours")

    request, metadata = pb.WatchChangesRequest(), {"who": "ann"}
    endpoint = found(served(streaming=endless, guard_stream=one_only), WATCH)

    async with aclosing(endpoint.stream(request, metadata)) as responses:
        await anext(responses)
        with pytest.raises(StatusError, match="no longer yours"):
            await anext(responses)

    assert ended == ["ended"]
    assert seen == [(WATCH, metadata, metadata, request)]


async def test_observers_are_told_how_every_call_ended(served: Served) -> None:
    seen: list[tuple[str, str]] = []

    def observe(method: Method, status: str, seconds: float) -> None:
        assert seconds >= 0
        seen.append((method.name, status))

    endpoints = served(observers=(observe,))

    await found(endpoints, RELEASE).unary(pb.ReleaseHoldRequest(application_id="a"), {})
    with pytest.raises(StatusError):
        await found(endpoints, RELEASE).unary(pb.ReleaseHoldRequest(), {})
    async for _ in found(endpoints, WATCH).stream(pb.WatchChangesRequest(), {}):
        pass
    async with aclosing(found(endpoints, WATCH).stream(pb.WatchChangesRequest(), {})) as responses:
        await anext(responses)

    assert seen == [
        ("ReleaseHold", "OK"),
        ("ReleaseHold", "INVALID_ARGUMENT"),
        ("WatchChanges", "OK"),
        ("WatchChanges", "CANCELLED"),
    ]


def test_bytes_that_are_no_message_are_the_callers_fault(served: Served) -> None:
    with pytest.raises(StatusError, match="not a ReleaseHoldRequest") as refused:
        found(served(), RELEASE).parse(b"\xff\xff")

    assert refused.value.status == "INVALID_ARGUMENT"


def test_an_unknown_path_has_no_endpoint(served: Served) -> None:
    assert served().find("/pipecd.api.v1.ApplicationService/Nonsense") is None


def test_a_service_is_not_served_twice(served: Served) -> None:
    endpoints = served()

    with pytest.raises(TwoHandlersError, match="served twice"):
        endpoints.add(
            pb.DESCRIPTOR.services_by_name["ProjectService"],
            unimplemented=["WatchChanges", "ListAudit"],
        )


def test_the_legacy_prefix_finds_the_same_endpoint() -> None:
    """v0 pipeds call `/pipe.api.service.…`, which a gateway once rewrote."""
    service = piped.DESCRIPTOR.services_by_name["PipedService"]
    endpoints = Endpoints(admit=admit_all)
    endpoints.add(service, unimplemented=[method.name for method in service.methods])

    legacy = endpoints.find("/pipe.api.service.pipedservice.PipedService/ReportPipedMeta")

    assert legacy is not None
    assert legacy is endpoints.find("/grpc.service.pipedservice.PipedService/ReportPipedMeta")
