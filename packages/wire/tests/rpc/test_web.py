# SPDX-License-Identifier: Apache-2.0
"""gRPC-Web over ASGI, without a server: what goes in, what comes out, what ends the handler."""

import asyncio
import base64
import struct
from collections.abc import AsyncIterator, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pytest

from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import PEER, Endpoints, Metadata, Method, StatusError
from pipecd_wire.rpc.frames import frame
from pipecd_wire.rpc.web import GrpcWeb, Scope, is_grpc_web

RELEASE = "/pipecd.api.v1.ApplicationService/ReleaseHold"
WATCH = "/pipecd.api.v1.ProjectService/WatchChanges"

Served = Callable[..., Endpoints]

FORGED: Any = {PEER: "1.1.1.1"}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    messages: list[bytes]
    trailers: dict[str, str]

    @property
    def grpc_status(self) -> int:
        return int(self.trailers["grpc-status"])

    @property
    def grpc_message(self) -> str:
        return unquote(self.trailers.get("grpc-message", ""))


class Browser:
    """One HTTP request to the application, with a caller that may go away."""

    def __init__(self, app: GrpcWeb, *, leaves: asyncio.Event | None = None) -> None:
        self._app = app
        self._leaves = leaves or asyncio.Event()
        self.sent: list[MutableMapping[str, Any]] = []
        self.left = 0
        """Chunks of the request that nobody has read."""

    async def post(
        self,
        path: str,
        *chunks: bytes,
        method: str = "POST",
        content_type: str = "application/grpc-web+proto",
        ends: bool = True,
        **headers: str,
    ) -> Answer:
        events = [
            {"type": "http.request", "body": chunk, "more_body": not ends or at < len(chunks)}
            for at, chunk in enumerate(chunks, 1)
        ]

        async def receive() -> dict[str, Any]:
            if events:
                return events.pop(0)
            await self._leaves.wait()
            return {"type": "http.disconnect"}

        async def send(event: MutableMapping[str, Any]) -> None:
            self.sent.append(event)

        scope = make_scope(path, method, {"content-type": content_type} | headers)
        async with asyncio.timeout(10):
            await self._app(scope, receive, send)
        self.left = len(events)
        return self._answer()

    def _answer(self) -> Answer:
        start, *rest = self.sent or [{"status": 0, "headers": []}]
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        chunks = [event["body"] for event in rest]
        if "-text" in headers.get("content-type", ""):
            chunks = [base64.b64decode(chunk) for chunk in chunks]
        messages, trailers = unframe(b"".join(chunks))
        return Answer(start["status"], headers, messages, trailers)


def make_scope(path: str, method: str, headers: dict[str, str]) -> Scope:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ],
        "client": ("10.1.2.3", 40000),
    }


def unframe(body: bytes) -> tuple[list[bytes], dict[str, str]]:
    messages, trailers = [], {}
    while body:
        flag, length = struct.unpack(">BI", body[:5])
        payload, body = body[5 : 5 + length], body[5 + length :]
        if flag == 0x80:
            trailers = dict(line.split(":", 1) for line in payload.decode().split("\r\n") if line)
        else:
            messages.append(payload)
    return messages, trailers


def request(application_id: str = "app-1") -> bytes:
    return frame(pb.ReleaseHoldRequest(application_id=application_id).SerializeToString())


async def test_a_unary_call_is_answered_with_one_message_and_trailers(served: Served) -> None:
    answer = await Browser(GrpcWeb(served())).post(RELEASE, request("app-1"))

    assert answer.status == 200
    assert answer.headers["content-type"] == "application/grpc-web+proto"
    assert [pb.ReleaseHoldResponse.FromString(one).command_id for one in answer.messages] == [
        "app-1"
    ]
    assert answer.trailers == {"grpc-status": "0"}


async def test_a_stream_is_answered_message_by_message(served: Served) -> None:
    browser = Browser(GrpcWeb(served()))

    answer = await browser.post(WATCH, frame(b""))

    ids = [pb.WatchChangesResponse.FromString(one).changes[0].id for one in answer.messages]
    assert ids == ["0", "1", "2"]
    assert answer.grpc_status == 0
    assert len(browser.sent) == 5, "the start, each message by itself, the trailers"


async def test_text_mode_speaks_base64_both_ways(served: Served) -> None:
    whole = base64.b64encode(request("app-1"))

    answer = await Browser(GrpcWeb(served())).post(
        RELEASE, whole[:7], whole[7:], content_type="application/grpc-web-text"
    )

    assert answer.headers["content-type"] == "application/grpc-web-text+proto"
    assert pb.ReleaseHoldResponse.FromString(answer.messages[0]).command_id == "app-1"


async def test_a_caller_may_ask_in_binary_and_be_answered_in_text(served: Served) -> None:
    answer = await Browser(GrpcWeb(served())).post(
        RELEASE, request(), accept="application/grpc-web-text"
    )

    assert answer.headers["content-type"] == "application/grpc-web-text+proto"
    assert answer.grpc_status == 0


async def test_a_request_may_come_in_pieces(served: Served) -> None:
    body = request("app-1")

    answer = await Browser(GrpcWeb(served())).post(RELEASE, body[:3], b"", body[3:])

    assert pb.ReleaseHoldResponse.FromString(answer.messages[0]).command_id == "app-1"


async def test_headers_become_metadata_and_the_address_cannot_be_forged(served: Served) -> None:
    seen: list[Metadata] = []

    async def admit(_method: Method, metadata: Metadata) -> None:
        seen.append(metadata)

    await Browser(GrpcWeb(served(admit=admit))).post(
        RELEASE,
        request(),
        authorization="API-KEY k",
        cookie="token=t",
        trace_bin="AAAA",
        **FORGED,
    )

    [metadata] = seen
    assert metadata["authorization"] == "API-KEY k"
    assert metadata["cookie"] == "token=t"
    assert "trace-bin" not in metadata
    assert metadata[PEER] == "10.1.2.3"


async def test_a_refusal_is_a_status_with_a_sentence(served: Served) -> None:
    class MissingError(Exception):
        status = "NOT_FOUND"

    async def handler(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        raise MissingError("no application 'größer' (100% sure)")

    answer = await Browser(GrpcWeb(served(handler))).post(RELEASE, request())

    assert answer.status == 200
    assert answer.messages == []
    assert answer.grpc_status == 5
    assert answer.grpc_message == "no application 'größer' (100% sure)"


async def test_an_error_after_some_messages_ends_the_stream_with_its_status(
    served: Served,
) -> None:
    async def one_then_broken(_caller: object, _request: object) -> AsyncIterator[Any]:
        yield pb.WatchChangesResponse()
        raise KeyError("bug")

    answer = await Browser(GrpcWeb(served(streaming=one_then_broken))).post(WATCH, frame(b""))

    assert len(answer.messages) == 1
    assert answer.grpc_status == 13


async def test_validation_is_the_same_as_over_grpc(served: Served) -> None:
    answer = await Browser(GrpcWeb(served())).post(RELEASE, request(""))

    assert answer.grpc_status == 3
    assert answer.grpc_message.startswith("invalid request: application_id")


async def test_an_unknown_method_is_unimplemented(served: Served) -> None:
    answer = await Browser(GrpcWeb(served())).post("/pipecd.api.v1.Nothing/Do", frame(b""))

    assert answer.grpc_status == 12


async def test_bytes_that_are_no_message_are_invalid(served: Served) -> None:
    answer = await Browser(GrpcWeb(served())).post(RELEASE, frame(b"\xff\xff"))

    assert answer.grpc_status == 3


async def test_a_message_at_the_limit_passes_and_one_over_it_is_refused(served: Served) -> None:
    app = GrpcWeb(served(), max_message=100)
    fits, over = request("x" * 98), request("x" * 99)
    assert len(fits) == 105

    assert (await Browser(app).post(RELEASE, fits)).grpc_status == 0
    assert (await Browser(app).post(RELEASE, over)).grpc_status == 8


async def test_a_text_message_at_the_limit_passes_and_one_over_it_is_refused(
    served: Served,
) -> None:
    app = GrpcWeb(served(), max_message=100)
    text = "application/grpc-web-text"
    fits, over = (base64.b64encode(request("x" * size)) for size in (98, 99))

    assert (await Browser(app).post(RELEASE, fits, content_type=text)).grpc_status == 0
    assert (await Browser(app).post(RELEASE, over, content_type=text)).grpc_status == 8


async def test_an_endless_request_is_not_read_to_its_end(served: Served) -> None:
    browser = Browser(GrpcWeb(served(), max_message=100))

    answer = await browser.post(RELEASE, *[b"x" * 50] * 10_000)

    assert answer.grpc_status == 8


async def test_an_answer_over_the_limit_is_refused(served: Served) -> None:
    async def large(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        return pb.ReleaseHoldResponse(command_id="x" * 200)

    answer = await Browser(GrpcWeb(served(large), max_message=100)).post(RELEASE, request())

    assert answer.messages == []
    assert answer.grpc_status == 8


async def test_the_deadline_of_the_caller_ends_the_handler(served: Served) -> None:
    ended = asyncio.Event()

    async def slow(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    answer = await Browser(GrpcWeb(served(slow))).post(RELEASE, request(), grpc_timeout="10m")

    assert answer.grpc_status == 4
    assert ended.is_set()


async def test_a_malformed_deadline_is_refused(served: Served) -> None:
    answer = await Browser(GrpcWeb(served())).post(RELEASE, request(), grpc_timeout="soon")

    assert answer.grpc_status == 3


async def test_a_caller_that_leaves_ends_the_handler_of_a_unary_call(served: Served) -> None:
    leaves, ended = asyncio.Event(), []

    async def slow(_caller: object, _request: object) -> pb.ReleaseHoldResponse:
        leaves.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        raise AssertionError

    browser = Browser(GrpcWeb(served(slow)), leaves=leaves)
    await browser.post(RELEASE, request())

    assert ended == ["ended"]
    assert browser.sent == [], "nobody is there to read an answer"


async def test_a_caller_that_leaves_ends_the_handler_of_a_stream(served: Served) -> None:
    leaves, ended = asyncio.Event(), []

    async def endless(_caller: object, _request: object) -> AsyncIterator[Any]:
        try:
            yield pb.WatchChangesResponse()
            leaves.set()
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    answer = await Browser(GrpcWeb(served(streaming=endless)), leaves=leaves).post(
        WATCH, frame(b"")
    )

    assert ended == ["ended"]
    assert len(answer.messages) == 1
    assert answer.trailers == {}


async def test_a_caller_that_leaves_within_its_request_reaches_no_handler(
    served: Served,
) -> None:
    reached: list[object] = []
    leaves = asyncio.Event()
    leaves.set()

    async def handler(_caller: object, got: pb.ReleaseHoldRequest) -> pb.ReleaseHoldResponse:
        reached.append(got)
        return pb.ReleaseHoldResponse()

    browser = Browser(GrpcWeb(served(handler)), leaves=leaves)

    await browser.post(RELEASE, request()[:4], ends=False)

    assert reached == []
    assert browser.sent == []


async def test_only_post_is_answered(served: Served) -> None:
    answer = await Browser(GrpcWeb(served())).post(RELEASE, b"", method="GET")

    assert answer.status == 405
    assert answer.headers["allow"] == "POST"


async def test_a_codec_that_we_do_not_speak_is_refused(served: Served) -> None:
    answer = await Browser(GrpcWeb(served())).post(
        RELEASE, request(), content_type="application/grpc-web+json"
    )

    assert answer.status == 415


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/grpc-web", True),
        ("application/grpc-web+proto", True),
        ("application/grpc-web-text; charset=utf-8", True),
        ("Application/GRPC-Web", True),
        ("application/json", False),
        ("application/grpc", False),
    ],
)
def test_a_host_can_tell_which_requests_are_grpc_web(content_type: str, expected: bool) -> None:
    scope = make_scope("/x", "POST", {"content-type": content_type})

    assert is_grpc_web(scope) is expected


def test_a_request_without_a_type_is_not_grpc_web() -> None:
    assert not is_grpc_web(make_scope("/x", "GET", {}))


class DeniedError(Exception):
    status = "UNAUTHENTICATED"


async def deny(_method: Method, _metadata: Metadata) -> None:
    raise DeniedError("who are you?")


async def test_the_body_of_a_stranger_is_not_read(served: Served) -> None:
    """Who is calling is asked on the headers: nothing is held for somebody who is not let in."""
    browser = Browser(GrpcWeb(served(admit=deny)))
    chunks = [b"x" * 50] * 10

    answer = await browser.post(RELEASE, *chunks, ends=False)

    assert answer.grpc_status == 16
    assert browser.left == 10


async def test_a_host_learns_of_callers_that_were_let_in(served: Served) -> None:
    seen: list[str] = []

    def note(scope: Scope) -> None:
        seen.append(scope["path"])

    await Browser(GrpcWeb(served(admit=deny), identified=note)).post(RELEASE, request())
    await Browser(GrpcWeb(served(), identified=note)).post(WATCH, frame(b""))

    assert seen == [WATCH]


async def test_a_host_may_refuse_by_the_head_of_a_request(served: Served) -> None:
    def screen(_scope: Scope) -> None:
        raise StatusError("PERMISSION_DENIED", "from another site")

    browser = Browser(GrpcWeb(served(), screen=screen))
    answer = await browser.post(RELEASE, request())

    assert (answer.grpc_status, answer.grpc_message) == (7, "from another site")
    assert browser.left == 1
