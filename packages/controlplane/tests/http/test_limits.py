# SPDX-License-Identifier: Apache-2.0
"""What the server refuses: too large, too slow, too many; and that it refuses nothing else."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from pipecd_controlplane.http.admin import serve_admin
from pipecd_controlplane.http.server import CertificateFiles, serve_public
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_model.config.values import Duration
from pipecd_test_support.echo_service import EchoApi, make_echo_endpoints
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2_grpc import ApplicationServiceStub, ProjectServiceStub
from pipecd_wire.rpc import CallError, Channel, Endpoints, Metadata, Method, call, connect, stream
from pipecd_wire.rpc.frames import frame

LIMIT = 60.0
SOON = Duration(milliseconds=100)
KIB = 1024

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 3, 4, 6, 7, 9
ENHANCE_YOUR_CALM = 0xB

KEY = ("authorization", "API-KEY good")
RELEASE = "/pipecd.api.v1.ApplicationService/ReleaseHold"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class UnknownError(Exception):
    status = "UNAUTHENTICATED"


async def admit(_method: Method, metadata: Metadata) -> Metadata:
    if metadata.get("authorization") != KEY[1] and metadata.get("cookie") != "token=good":
        raise UnknownError("who are you?")
    return metadata


ServeLimited = Callable[..., AbstractAsyncContextManager[str]]
"""`async with serve(max_url_bytes=…) as address`."""


@pytest.fixture
def guarded(api: EchoApi) -> Endpoints:
    """The tiny service, for whoever has the key or the cookie."""
    return make_echo_endpoints(api, admit)


@pytest.fixture
def site() -> Starlette:
    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok")

    async def form(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    async def large(_request: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(1024):
                yield b"x" * (64 * KIB)

        return StreamingResponse(chunks())

    routes = [Route("/healthz", healthz), Route("/large", large)]
    return Starlette(routes=[*routes, Route("/form", form, methods=["POST"])])


@pytest.fixture
def serve(site: Starlette, guarded: Endpoints) -> ServeLimited:
    """Serve with other limits than the default: `async with serve(max_url_bytes=…) as address`."""

    def serving(**limits: Any) -> AbstractAsyncContextManager[str]:
        return serve_public(
            site, guarded, "127.0.0.1", 0, grace_seconds=0.1, limits=FrontLimitsConfig(**limits)
        )

    return serving


@asynccontextmanager
async def dialled(
    address: str, *, source: str = "127.0.0.1", context: ssl.SSLContext | None = None
) -> AsyncIterator[Streams]:
    host, port = address.rsplit(":", 1)
    async with asyncio.timeout(LIMIT):
        reader, writer = await asyncio.open_connection(
            host, int(port), local_addr=(source, 0), ssl=context
        )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


async def exchange(address: str, request: bytes) -> bytes:
    """Send a request; returns all that comes until the server closes."""
    async with dialled(address) as (reader, writer):
        writer.write(request)
        return await read_all(reader)


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """Returns what comes until the end, however the end comes."""
    received = b""
    try:
        while data := await reader.read(64 * KIB):
            received += data
    except ConnectionError:
        pass
    return received


def get(path: str, *fields: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "host: x", *fields]
    return "\r\n".join([*lines, "", ""]).encode()


def post(path: str, body: bytes, *fields: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}", *fields]
    return "\r\n".join([*lines, "", ""]).encode() + body


def hold_over_web(*fields: str, application_id: str = "app-1") -> bytes:
    message = pb.ReleaseHoldRequest(application_id=application_id).SerializeToString()
    kind = "content-type: application/grpc-web"
    return post(RELEASE, frame(message), kind, "connection: close", *fields)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def caller(address: str) -> Any:
    return connect(address, metadata=lambda: [KEY])


async def hold(channel: Channel, application_id: str = "app-1") -> str:
    stub = ApplicationServiceStub(channel)
    request = pb.ReleaseHoldRequest(application_id=application_id)
    return (await call(stub.ReleaseHold, request, deadline=LIMIT)).command_id


class TestSizes:
    @pytest.mark.parametrize(
        ("request_head", "status"),
        [
            (get("/healthz", "a: " + "x" * 9 * KIB), 431),
            (get("/healthz", *["a: " + "x" * KIB] * 9), 431),
            (get("/healthz", *["a: b"] * 21), 431),
            (get("/healthz?" + "x" * 9 * KIB), 414),
            (get("/healthz", "a: " + "x" * 7 * KIB, "connection: close"), 200),
            (get("/healthz?" + "x" * 7 * KIB, "connection: close"), 200),
            (get("/healthz", *["a: b"] * 18, "connection: close"), 200),
        ],
    )
    async def test_a_head_over_its_limits_is_refused(
        self, serve: ServeLimited, request_head: bytes, status: int
    ) -> None:
        limits = {"max_header_bytes": 8 * KIB, "max_url_bytes": 8 * KIB, "max_header_fields": 20}
        async with serve(**limits) as address:
            assert status_of(await exchange(address, request_head)) == status

    @pytest.mark.parametrize("part", [b"GET /", b"GET / HTTP/1.1\r\na: ", b"GET / HTTP/1.1\r\na"])
    async def test_a_part_of_a_head_that_never_ends_is_refused(
        self, serve: ServeLimited, part: bytes
    ) -> None:
        """The parser tells of a field when it is whole: until then bytes are counted."""
        limits = {"max_header_bytes": 8 * KIB, "max_url_bytes": 8 * KIB}
        async with serve(**limits) as address, dialled(address) as (reader, writer):
            writer.write(part)
            for _ in range(40):
                writer.write(b"x" * KIB)
                await asyncio.sleep(0)
            answer = await read_all(reader)

        assert status_of(answer) in {414, 431}

    async def test_by_default_64_kib_pass_and_more_do_not(self, serve: ServeLimited) -> None:
        async with serve() as address:
            for size, url, head in ((60, 200, 200), (70, 414, 431)):
                close = "connection: close"
                in_url = await exchange(address, get("/healthz?" + "x" * size * KIB, close))
                in_head = await exchange(address, get("/healthz", "a: " + "x" * size * KIB, close))
                assert (status_of(in_url), status_of(in_head)) == (url, head)

    @pytest.mark.parametrize(
        ("request_", "status"),
        [
            (post("/form", b"x" * 64 * KIB, "connection: close"), 200),
            (post("/form", b"x" * 65 * KIB, "connection: close"), 413),
            (b"POST /form HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999999\r\n\r\n", 413),
            (
                b"POST /form HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffff\r\n"
                + b"x" * 0xFFFF
                + b"\r\nffff\r\nxx",
                413,
            ),
        ],
        ids=["fits", "too-long", "announced", "chunked"],
    )
    async def test_a_form_over_its_limit_is_refused(
        self, serve: ServeLimited, request_: bytes, status: int
    ) -> None:
        async with serve() as address:
            assert status_of(await exchange(address, request_)) == status

    async def test_chunks_that_are_nearly_all_framing_are_refused(
        self, serve: ServeLimited
    ) -> None:
        head = b"POST /form HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        async with serve() as address, dialled(address) as (reader, writer):
            writer.write(head)
            for _ in range(100):
                writer.write(b"1;a=" + b"x" * 2 * KIB + b"\r\nx\r\n")
                await asyncio.sleep(0)
            assert status_of(await read_all(reader)) == 400

    async def test_small_chunks_and_trailers_are_no_harm(self, serve: ServeLimited) -> None:
        head = b"POST /form HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
        body = b"1\r\nx\r\n" * 500 + b"0\r\nchecksum: 1\r\n\r\n"
        async with serve() as address:
            answer = await exchange(address, head + b"connection: close\r\n\r\n" + body)

        assert answer.endswith(b"500")

    async def test_requests_that_are_sent_ahead_are_answered_in_order(
        self, serve: ServeLimited
    ) -> None:
        async with serve() as address:
            ahead = get("/healthz") * 9 + get("/healthz", "connection: close")
            assert (await exchange(address, ahead)).count(b"HTTP/1.1 200") == 10

    async def test_too_many_requests_that_are_sent_ahead_end_the_connection(
        self, serve: ServeLimited
    ) -> None:
        async with serve() as address:
            assert (await exchange(address, get("/healthz") * 1000)).count(b"200 OK") < 50


class TestTimes:
    async def test_a_head_that_does_not_end_is_given_up(self, serve: ServeLimited) -> None:
        async with serve(header_timeout=SOON) as address, dialled(address) as (reader, writer):
            answer = asyncio.create_task(read_all(reader))
            writer.write(b"GET / HTTP/1.1\r\n")
            while not answer.done():
                writer.write(b"a: b\r\n")
                await asyncio.wait([answer], timeout=0.02)
            assert status_of(await answer) == 408

    async def test_the_head_of_a_later_request_has_its_time_too(self, serve: ServeLimited) -> None:
        async with serve(header_timeout=SOON) as address:
            answer = await exchange(address, get("/healthz") + b"GET / HTTP/1.1\r\n")

        assert answer.count(b"HTTP/1.1") == 2
        assert b"408 Request Timeout" in answer

    async def test_blank_lines_do_not_keep_a_connection(self, serve: ServeLimited) -> None:
        async with serve(header_timeout=SOON) as address, dialled(address) as (reader, writer):
            writer.write(get("/healthz"))
            await reader.readuntil(b"ok")
            answer = asyncio.create_task(read_all(reader))
            while not answer.done():
                writer.write(b"\r\n")
                await asyncio.wait([answer], timeout=0.02)
            assert await answer == b""

    @pytest.mark.parametrize("limits", [{"body_idle_timeout": SOON}, {"body_timeout": SOON}])
    async def test_a_body_that_does_not_end_is_given_up(
        self, serve: ServeLimited, limits: dict[str, Duration]
    ) -> None:
        limits = {"body_idle_timeout": SOON, **limits}
        head = b"POST /form HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n"
        async with serve(**limits) as address:
            assert status_of(await exchange(address, head + b"x")) == 408

    async def test_a_body_that_comes_a_byte_at_a_time_is_given_up(
        self, serve: ServeLimited
    ) -> None:
        head = b"POST /form HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        limits = {"body_timeout": Duration(milliseconds=300), "body_idle_timeout": SOON}
        async with serve(**limits) as address, dialled(address) as (reader, writer):
            writer.write(head)
            answer = asyncio.create_task(read_all(reader))
            while not answer.done():
                writer.write(b"1\r\nx\r\n")
                await asyncio.wait([answer], timeout=0.02)
            assert status_of(await answer) == 408

    async def test_a_message_of_a_known_caller_that_does_not_end_is_given_up(
        self, serve: ServeLimited
    ) -> None:
        async with serve(body_idle_timeout=SOON) as address:
            whole = hold_over_web(": ".join(KEY))
            assert status_of(await exchange(address, whole[:-3])) == 408
            assert status_of(await exchange(address, whole)) == 200

    async def test_a_tls_handshake_that_does_not_end_is_given_up(
        self, site: Starlette, guarded: Endpoints, tls: CertificateFiles
    ) -> None:
        limits = FrontLimitsConfig(tls_handshake_timeout=SOON)
        async with serve_public(site, guarded, "127.0.0.1", 0, tls=tls, limits=limits) as address:
            for begun in (b"", b"\x16\x03\x01\x02\x00\x01"):
                assert await exchange(address, begun) == b""

    async def test_a_caller_that_does_not_read_is_let_go(self, serve: ServeLimited) -> None:
        async with serve(write_timeout=SOON) as address, dialled(address) as (reader, writer):
            transport: Any = writer.transport
            transport.pause_reading()
            writer.write(get("/large"))
            while not transport.is_closing():
                writer.write(b"\r\n")
                await asyncio.sleep(0.02)
            assert not reader.at_eof()

    async def test_a_slow_reader_gets_all_of_it(self, serve: ServeLimited) -> None:
        """What counts is that it takes something, not how much."""
        async with (
            serve(write_timeout=Duration(seconds=20)) as address,
            dialled(address) as (reader, writer),
        ):
            writer.write(get("/large", "connection: close"))
            received = 0
            while data := await reader.read(256 * KIB):
                received += len(data)
        assert received > 64 * 1024 * KIB


class TestWhoIsCalling:
    async def test_a_stranger_is_refused_before_its_body_comes(self, serve: ServeLimited) -> None:
        head = f"POST {RELEASE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc-web\r\n"
        async with serve() as address:
            answer = await exchange(address, f"{head}content-length: 9000000\r\n\r\n".encode())

        assert b"grpc-status:16" in answer

    async def test_a_stranger_that_goes_on_sending_is_cut_off(self, serve: ServeLimited) -> None:
        head = f"POST {RELEASE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc-web\r\n"
        async with serve() as address, dialled(address) as (reader, writer):
            writer.write(f"{head}content-length: 900000000\r\n\r\n".encode())
            answer = asyncio.create_task(read_all(reader))
            while not answer.done():
                writer.write(b"x" * KIB)
                await asyncio.wait([answer], timeout=0.02)
            assert b"grpc-status:16" in await answer

    async def test_messages_of_known_callers_may_be_large(self, serve: ServeLimited) -> None:
        large = "x" * (9 * 1024 * KIB)
        async with serve() as address, caller(address) as channel:
            assert await hold(channel, large) == large
            answer = await exchange(address, hold_over_web(": ".join(KEY), application_id=large))
            assert b"grpc-status:0" in answer

    async def test_bytes_held_for_strangers_have_a_limit(self, serve: ServeLimited) -> None:
        """Each holds less than its own limit; together they hold too much."""
        limits = {"max_stranger_bytes": 64 * KIB, "max_form_bytes": 64 * KIB}
        async with serve(**limits) as address, AsyncExitStack() as opened:
            readers = []
            for _ in range(8):
                reader, writer = await opened.enter_async_context(dialled(address))
                writer.write(b"GET / HTTP/1.1\r\na: ")
                for _ in range(15):
                    writer.write(b"x" * KIB)
                    await writer.drain()
                    await asyncio.sleep(0)
                readers.append(reader)
            assert await readers[0].read() == b""
            async with caller(address) as channel:
                assert await hold(channel) == "app-1"

    @pytest.mark.parametrize(
        "request_",
        [
            post("/form", b"", "a: " + "x" * 12 * KIB).replace(b"length: 0", b"length: 9"),
            get("/large") + get("/healthz", "a: " + "x" * 4 * KIB) * 3,
        ],
        ids=["without-body", "sent-ahead"],
    )
    async def test_heads_of_requests_that_wait_are_held_bytes_too(
        self, serve: ServeLimited, request_: bytes
    ) -> None:
        limits = {"max_stranger_bytes": 64 * KIB, "max_form_bytes": 64 * KIB}
        async with serve(**limits) as address, AsyncExitStack() as opened:
            first, writer = await opened.enter_async_context(dialled(address))
            writer.write(request_)
            for _ in range(8):
                _, writer = await opened.enter_async_context(dialled(address))
                writer.write(request_)
            received = await read_all(first)

        assert b"408" not in received
        assert len(received) < 64 * 1024 * KIB


class TestStrangersAndKnownCallers:
    async def test_a_stranger_gives_way_to_a_new_one_of_its_address(
        self, serve: ServeLimited
    ) -> None:
        limits = {"max_strangers_per_address": 3}
        async with serve(**limits) as address, AsyncExitStack() as opened:
            first, *_ = [
                await opened.enter_async_context(dialled(address, source="127.0.0.7"))
                for _ in range(4)
            ]
            assert await read_all(first[0]) == b""
            async with dialled(address, source="127.0.0.7") as (reader, writer):
                writer.write(get("/healthz", "connection: close"))
                assert (await reader.read()).endswith(b"ok")

    async def test_known_callers_stay_when_strangers_come(
        self, serve: ServeLimited, api: EchoApi
    ) -> None:
        limits = {"max_strangers_per_address": 3, "max_stranger_connections": 4}
        async with (
            serve(**limits) as address,
            caller(address) as channel,
            aclosing(watch(channel)) as responses,
            AsyncExitStack() as opened,
        ):
            await anext(responses)
            for number in range(30):
                await opened.enter_async_context(
                    dialled(address, source=f"127.0.0.{number % 5 + 1}")
                )
            assert await hold(channel) == "app-1"
            api.finish.set()
            assert (await anext(responses)).changes[0].id == "second"

    async def test_an_address_that_takes_everything_pays_for_it_itself(
        self, serve: ServeLimited
    ) -> None:
        limits = {"max_stranger_connections": 10, "max_strangers_per_address": 10}
        async with serve(**limits) as address, AsyncExitStack() as opened:
            reader, writer = await opened.enter_async_context(dialled(address, source="127.0.0.2"))
            for _ in range(40):
                await opened.enter_async_context(dialled(address, source="127.0.0.3"))
            writer.write(get("/healthz", "connection: close"))
            assert (await reader.read()).endswith(b"ok")

    async def test_a_caller_that_was_let_in_over_grpc_web_is_known(
        self, serve: ServeLimited
    ) -> None:
        request = hold_over_web(": ".join(KEY)).replace(b"connection: close\r\n", b"")
        async with serve(max_strangers_per_address=2) as address, AsyncExitStack() as opened:
            reader, writer = await opened.enter_async_context(dialled(address))
            writer.write(request)
            await reader.readuntil(b"\r\n0\r\n\r\n")
            for _ in range(6):
                await opened.enter_async_context(dialled(address))
            writer.write(request)
            assert b"200 OK" in await reader.readuntil(b"\r\n0\r\n\r\n")

    async def test_first_calls_that_come_all_at_once_are_all_answered(
        self, serve: ServeLimited
    ) -> None:
        """An agent that starts makes twenty; some wait until the first was let in."""
        limits = {"max_stranger_calls_per_connection": 2, "max_stranger_calls": 3}
        async with serve(**limits) as address, AsyncExitStack() as opened:
            channels = [await opened.enter_async_context(caller(address)) for _ in range(5)]
            async with asyncio.TaskGroup() as tasks:
                for channel in channels:
                    for _ in range(30):
                        tasks.create_task(hold(channel))

    async def test_calls_that_are_refused_are_all_answered_too(self, serve: ServeLimited) -> None:
        limits = {"max_stranger_calls_per_connection": 2, "max_stranger_calls": 3}
        refused = 0

        async def be_refused(channel: Channel) -> None:
            nonlocal refused
            with pytest.raises(CallError) as failed:
                await hold(channel)
            assert failed.value.status == "UNAUTHENTICATED"
            refused += 1

        async with serve(**limits) as address, AsyncExitStack() as opened:
            channels = [await opened.enter_async_context(connect(address)) for _ in range(5)]
            async with asyncio.TaskGroup() as tasks:
                for channel in channels:
                    for _ in range(30):
                        tasks.create_task(be_refused(channel))

        assert refused == 150

    async def test_the_admin_port_answers_when_others_hold_its_connections(
        self, site: Starlette
    ) -> None:
        limits = FrontLimitsConfig(max_admin_connections=3)
        async with serve_admin(site, "127.0.0.1", 0, limits) as address, AsyncExitStack() as opened:
            for _ in range(10):
                _, writer = await opened.enter_async_context(dialled(address))
                writer.write(b"GET /")
            answer = await exchange(address, get("/healthz", "connection: close"))
            large = await exchange(address, get("/healthz", "a: " + "x" * 70 * KIB))

        assert answer.endswith(b"ok")
        assert status_of(large) == 431


def watch(channel: Channel) -> Any:
    return stream(ProjectServiceStub(channel).WatchChanges, pb.WatchChangesRequest())


def http2_frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    size = struct.pack(">I", len(payload))[1:]
    return size + struct.pack(">BBI", kind, flags, stream_id) + payload


async def read_frames(reader: asyncio.StreamReader) -> list[tuple[int, bytes]]:
    """Returns kind and payload of each frame until the end of the connection."""
    received = await read_all(reader)
    found = []
    while len(received) >= 9:
        length = int.from_bytes(received[:3], "big")
        found.append((received[3], received[9 : 9 + length]))
        received = received[9 + length :]
    assert received == b"", "the connection has ended within a frame"
    return found


class TestHttp2:
    async def test_a_connection_without_a_call_that_was_let_in_is_told_to_go(
        self, serve: ServeLimited
    ) -> None:
        async with serve(identify_timeout=SOON) as address, dialled(address) as (reader, writer):
            writer.write(PREFACE + http2_frame(SETTINGS))
            frames = await read_frames(reader)

        assert frames[-1][0] == GOAWAY
        assert frames[-1][1][4:8] == bytes(4)

    async def test_a_known_caller_is_not(self, serve: ServeLimited, api: EchoApi) -> None:
        """An agent holds a stream on which nothing may happen for hours."""
        async with (
            serve(identify_timeout=SOON) as address,
            caller(address) as channel,
            aclosing(watch(channel)) as responses,
        ):
            await anext(responses)
            async with dialled(address) as (reader, writer):  # so long it has taken
                writer.write(PREFACE + http2_frame(SETTINGS))
                await read_frames(reader)
            api.finish.set()
            assert (await anext(responses)).changes[0].id == "second"

    @pytest.mark.parametrize(
        "flood",
        [
            http2_frame(SETTINGS) * 2000,
            http2_frame(PING, 0, 0, b"01234567") * 2000,
            http2_frame(2, 0, 1, bytes(5)) * 2000,
            http2_frame(0xF0) * 2000,
            http2_frame(RST_STREAM, 0, 1, bytes(4)) * 20,
            http2_frame(1, 0, 1, b"\x83") + http2_frame(CONTINUATION, 0, 1) * 100,
            http2_frame(1, 0, 1, b"\x83") + http2_frame(CONTINUATION, 0, 1, bytes(16_000)) * 5,
        ],
        ids=["settings", "ping", "priority", "unknown", "reset", "empty-heads", "endless-head"],
    )
    async def test_frames_that_nobody_needs_end_the_connection(
        self, serve: ServeLimited, flood: bytes
    ) -> None:
        async with serve() as address, dialled(address) as (reader, writer):
            writer.write(PREFACE + http2_frame(SETTINGS))
            await reader.readexactly(9)
            writer.write(flood)
            await read_all(reader)

    async def test_the_limits_of_grpc_are_announced(self, serve: ServeLimited) -> None:
        async with serve() as address, dialled(address) as (reader, writer):
            writer.write(PREFACE + http2_frame(SETTINGS))
            length = int.from_bytes((await reader.readexactly(9))[:3], "big")
            settings = dict(struct.iter_unpack(">HI", await reader.readexactly(length)))

        assert settings[3] == 100  # SETTINGS_MAX_CONCURRENT_STREAMS
        assert settings[6] == 64 * KIB  # SETTINGS_MAX_HEADER_LIST_SIZE

    async def test_headers_over_the_limit_are_refused(self, serve: ServeLimited) -> None:
        async with serve() as address, caller(address) as channel:
            stub = ApplicationServiceStub(channel)
            request = pb.ReleaseHoldRequest(application_id="app-1")
            for wide in ([("a", "x" * 70 * KIB)], [(f"a{number}", "x") for number in range(200)]):
                with pytest.raises(CallError):
                    await call(stub.ReleaseHold, request, metadata=wide, deadline=LIMIT)
            assert await hold(channel) == "app-1"

    async def test_a_known_caller_that_takes_no_answer_is_let_go(self, serve: ServeLimited) -> None:
        """Its window stays shut, while its connection is as alive as any."""
        shut = http2_frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
        message = frame(pb.ReleaseHoldRequest(application_id="app-1").SerializeToString())
        async with serve(answer_timeout=SOON) as address, dialled(address) as (reader, writer):
            writer.write(PREFACE + shut + http2_call(1, KEY) + http2_frame(0, 1, 1, message))
            await read_all(reader)

    async def test_little_of_a_call_may_come_before_it_is_known_whose_it_is(
        self, serve: ServeLimited
    ) -> None:
        async with serve() as address, dialled(address) as (reader, writer):
            writer.write(PREFACE + http2_frame(SETTINGS))
            length = int.from_bytes((await reader.readexactly(9))[:3], "big")
            settings = dict(struct.iter_unpack(">HI", await reader.readexactly(length)))

        assert settings.get(4, 65_535) <= 65_536  # SETTINGS_INITIAL_WINDOW_SIZE


def http2_call(stream_id: int, *fields: tuple[str, str]) -> bytes:
    head = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", RELEASE),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *fields,
    )
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in head
    )
    return http2_frame(1, 4, stream_id, block)


class TestPlacesOfStrangers:
    @pytest.mark.parametrize(
        "heads",
        [
            http2_call(1)[:20],
            http2_call(1).replace(b"\x01\x04", b"\x01\x00", 1),
            http2_call(2),
            http2_call(0),
            http2_call(9) + http2_call(7) + http2_call(5) + http2_call(3),
            http2_call(1).replace(RELEASE.encode(), b"/" * len(RELEASE)),
            http2_frame(1, 4, 1, b""),
        ],
        ids=["cut", "without-end", "even", "zero", "backwards", "unknown", "empty"],
    )
    async def test_heads_that_begin_no_call_keep_no_place_from_a_new_caller(
        self, serve: ServeLimited, heads: bytes
    ) -> None:
        limits = {"max_stranger_calls": 4, "max_stranger_calls_per_connection": 4}
        async with serve(**limits) as address, AsyncExitStack() as opened:
            for _ in range(8):
                reader, writer = await opened.enter_async_context(dialled(address))
                writer.write(PREFACE + http2_frame(SETTINGS) + heads)
                await reader.readexactly(9)  # the server has seen what was sent with the preface
            async with caller(address) as channel:
                assert await hold(channel) == "app-1"

    async def test_heads_that_do_not_end_count_as_bytes_of_strangers(
        self, serve: ServeLimited
    ) -> None:
        limits = {"max_stranger_bytes": 64 * KIB, "max_form_bytes": 64 * KIB}
        unfinished = http2_frame(1, 0, 1, bytes(12 * KIB))
        async with serve(**limits) as address, AsyncExitStack() as opened:
            first, writer = await opened.enter_async_context(dialled(address))
            writer.write(PREFACE + http2_frame(SETTINGS) + unfinished)
            for _ in range(8):
                _, writer = await opened.enter_async_context(dialled(address))
                writer.write(PREFACE + http2_frame(SETTINGS) + unfinished)
            await read_all(first)


class TestProxies:
    @pytest.mark.parametrize(
        ("proxies", "expected"), [(("127.0.0.0/8",), "203.0.113.9"), ((), "127.0.0.1")]
    )
    async def test_only_a_trusted_proxy_says_whose_request_it_is(
        self, site: Starlette, guarded: Endpoints, proxies: tuple[str, ...], expected: str
    ) -> None:
        forwarded = ("x-forwarded-for", "198.51.100.1, 203.0.113.9")
        async with serve_public(site, guarded, "127.0.0.1", 0, trusted_proxies=proxies) as address:
            async with connect(address, metadata=lambda: [KEY, forwarded]) as channel:
                assert await hold(channel, "peer") == expected
            over_web = hold_over_web(": ".join(KEY), ": ".join(forwarded), application_id="peer")
            assert expected.encode() in await exchange(address, over_web)

    async def test_a_trusted_proxy_has_no_limit_of_its_own(
        self, site: Starlette, guarded: Endpoints
    ) -> None:
        limits = FrontLimitsConfig(max_strangers_per_address=2, max_connections_per_address=2)
        serving = serve_public(
            site, guarded, "127.0.0.1", 0, limits=limits, trusted_proxies=("127.0.0.5",)
        )
        async with serving as address, AsyncExitStack() as opened:
            opens = [
                await opened.enter_async_context(dialled(address, source="127.0.0.5"))
                for _ in range(8)
            ]
            for reader, writer in opens:
                writer.write(get("/healthz", "connection: close"))
                assert (await reader.read()).endswith(b"ok")


class TestOtherSites:
    @pytest.mark.parametrize(
        ("fields", "status"),
        [
            (["cookie: token=good"], 0),
            (["cookie: token=good", "origin: http://x"], 0),
            (["cookie: token=good", "origin: https://pipecd.example"], 0),
            (["cookie: token=good", "sec-fetch-site: same-origin", "origin: http://y"], 0),
            (["cookie: token=good", "origin: http://y"], 7),
            (["cookie: token=good", "origin: null"], 7),
            (["cookie: token=good", "origin: "], 7),
            (["cookie: token=good", "origin: x"], 7),
            (["cookie: token=good", "sec-fetch-site: cross-site", "origin: http://x"], 7),
            (["cookie: token=good", "sec-fetch-site: same-site"], 7),
            ([": ".join(KEY), "origin: http://y"], 0),
        ],
    )
    async def test_a_cookie_counts_only_for_our_own_pages(
        self, site: Starlette, guarded: Endpoints, fields: list[str], status: int
    ) -> None:
        url = "https://pipecd.example"
        async with serve_public(site, guarded, "127.0.0.1", 0, public_url=url) as address:
            answer = await exchange(address, hold_over_web(*fields))

        assert f"grpc-status:{status}".encode() in answer

    async def test_the_origin_null_is_nobodys_without_a_public_address_either(
        self, serve: ServeLimited
    ) -> None:
        async with serve() as address:
            answer = await exchange(address, hold_over_web("cookie: token=good", "origin: null"))

        assert b"grpc-status:7" in answer
