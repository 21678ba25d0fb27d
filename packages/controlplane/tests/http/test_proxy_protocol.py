# SPDX-License-Identifier: Apache-2.0
"""Behind a TCP balancer that speaks the PROXY protocol: whose address counts, and what is refused.

The balancer connects from an address of its own, so that it is told from its clients; those connect
from two others.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from pipecd_controlplane.http.server import CertificateFiles, serve_public
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_model.config.values import Duration
from pipecd_test_support.balancer import Balancer, ProxyVersion, make_proxy_header
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2_grpc import ApplicationServiceStub
from pipecd_wire.rpc import ClientTls, Endpoints, call, connect
from pipecd_wire.rpc.frames import frame

LIMIT = 30.0
SOON = Duration(milliseconds=100)
BALANCER, ONE, OTHER = "127.0.0.9", "127.0.0.1", "127.0.0.2"

RELEASE = "/pipecd.api.v1.ApplicationService/ReleaseHold"
FORWARDED = ("x-forwarded-for", "198.51.100.66")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ServeBehind = Callable[..., AbstractAsyncContextManager[str]]
"""`async with serve(max_connections_per_address=…) as address`."""

HEADER = make_proxy_header(2, ("203.0.113.7", 40_000), ("203.0.113.1", 443))
LOCAL = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00"


@pytest.fixture
def site() -> Starlette:
    async def client(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.client.host if request.client else "nobody")

    return Starlette(routes=[Route("/client", client)])


@pytest.fixture
def serve(site: Starlette, endpoints: Endpoints) -> ServeBehind:
    def serving(
        *, tls: CertificateFiles | None = None, **limits: Any
    ) -> AbstractAsyncContextManager[str]:
        return serve_public(
            site,
            endpoints,
            "127.0.0.1",
            0,
            tls=tls,
            grace_seconds=0.1,
            limits=FrontLimitsConfig(**limits),
            trusted_proxies=(BALANCER,),
            proxy_protocol=True,
        )

    return serving


@asynccontextmanager
async def balanced(address: str, version: ProxyVersion = 2) -> AsyncIterator[str]:
    async with Balancer([address], send_proxy=version, source=BALANCER).listening() as balancer:
        yield balancer.address


@asynccontextmanager
async def dialled(
    address: str, source: str = ONE, context: ssl.SSLContext | None = None
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


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """Returns what comes until the end, however the end comes."""
    received = b""
    try:
        while data := await reader.read(64 * 1024):
            received += data
    except ConnectionError:
        pass
    return received


async def exchange(
    address: str, request: bytes, source: str = ONE, context: ssl.SSLContext | None = None
) -> bytes:
    async with dialled(address, source, context) as (reader, writer):
        writer.write(request)
        return await read_all(reader)


def get(path: str, *fields: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: x", *fields, "", ""]).encode()


GET = get("/client", "connection: close")


def ask_over_web(*fields: str) -> bytes:
    message = frame(pb.ReleaseHoldRequest(application_id="peer").SerializeToString())
    lines = [
        f"POST {RELEASE} HTTP/1.1",
        "host: x",
        f"content-length: {len(message)}",
        "content-type: application/grpc-web",
        "connection: close",
        *fields,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + message


async def ask_over_grpc(address: str, tls: ClientTls | None = None) -> str:
    async with connect(address, tls=tls, metadata=lambda: [FORWARDED]) as channel:
        stub = ApplicationServiceStub(channel)
        request = pb.ReleaseHoldRequest(application_id="peer")
        return (await call(stub.ReleaseHold, request, deadline=LIMIT)).command_id


@pytest.mark.parametrize("version", [1, 2])
async def test_clients_of_a_balancer_are_known_by_their_own_addresses(
    serve: ServeBehind, version: ProxyVersion
) -> None:
    """What they say of themselves in X-Forwarded-For, which a TCP balancer passes on, is a lie."""
    told = ": ".join(FORWARDED)
    async with serve() as address, balanced(address, version) as front:
        assert await ask_over_grpc(front) == ONE
        for source in (ONE, OTHER):
            page = await exchange(front, get("/client", told, "connection: close"), source)
            assert page.endswith(f"\r\n\r\n{source}".encode())
            assert source.encode() in await exchange(front, ask_over_web(told), source)


@pytest.mark.parametrize("version", [1, 2])
async def test_the_same_under_tls_that_the_server_ends(
    serve: ServeBehind, version: ProxyVersion, tls: CertificateFiles, roots: bytes
) -> None:
    told = ": ".join(FORWARDED)
    context = ssl.create_default_context(cadata=roots.decode())
    async with serve(tls=tls) as address, balanced(address, version) as front:
        assert await ask_over_grpc(front, ClientTls(roots=roots)) == ONE
        for source in (ONE, OTHER):
            page = get("/client", told, "connection: close")
            assert (await exchange(front, page, source, context)).endswith(source.encode())
            asked = await exchange(front, ask_over_web(told), source, context)
            assert source.encode() in asked


@pytest.mark.parametrize("behind", [b"GET /cli", PREFACE])
async def test_two_clients_of_one_balancer_have_limits_of_their_own(
    serve: ServeBehind, behind: bytes
) -> None:
    limits = {"max_strangers_per_address": 2, "max_connections_per_address": 2}
    async with serve(**limits) as address, balanced(address) as front, AsyncExitStack() as opened:
        kept, kept_writer = await opened.enter_async_context(dialled(front, OTHER))
        kept_writer.write(get("/client"))
        await kept.readuntil(OTHER.encode())
        crowd = [await opened.enter_async_context(dialled(front, ONE)) for _ in range(3)]
        for _, writer in crowd:
            writer.write(behind)
        leaving = {asyncio.create_task(read_all(reader)) for reader, _ in crowd}
        gone, left = await asyncio.wait(leaving, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        kept_writer.write(GET)

        assert len(gone) == 1
        assert (await read_all(kept)).endswith(OTHER.encode())


async def test_who_comes_past_the_balancer_is_used_as_it_is(serve: ServeBehind) -> None:
    """Also when it writes a header: only the balancer's counts."""
    async with serve() as address:
        page = await exchange(address, get("/client", "connection: close", ": ".join(FORWARDED)))
        assert page.endswith(ONE.encode())
        assert b"203.0.113.7" not in await exchange(address, HEADER + GET)


async def test_without_the_setting_a_header_is_no_header(
    site: Starlette, endpoints: Endpoints
) -> None:
    serving = serve_public(site, endpoints, "127.0.0.1", 0, trusted_proxies=(BALANCER,))
    async with serving as address:
        assert b" 400 " in await exchange(address, HEADER + GET, BALANCER)


@pytest.mark.parametrize("tls_first", [False, True])
async def test_a_header_may_come_in_pieces_with_all_that_follows_behind_it(
    serve: ServeBehind, tls: CertificateFiles, roots: bytes, tls_first: bool
) -> None:
    text = make_proxy_header(1, ("203.0.113.7", 40_000), ("203.0.113.1", 443))
    context = ssl.create_default_context(cadata=roots.decode())
    async with serve(tls=tls if tls_first else None) as address:
        for header in (HEADER, text):
            async with dialled(address, BALANCER) as (reader, writer):
                for place in range(len(header) - 1):
                    writer.write(header[place : place + 1])
                    await asyncio.sleep(0)
                writer.write(header[-1:])
                if tls_first:
                    await writer.start_tls(context, server_hostname="127.0.0.1")
                writer.write(GET)
                assert (await read_all(reader)).endswith(b"203.0.113.7")


async def test_header_and_request_may_come_in_one_packet(serve: ServeBehind) -> None:
    async with serve() as address:
        assert (await exchange(address, HEADER + GET, BALANCER)).endswith(b"203.0.113.7")


async def test_a_check_of_the_balancers_own_counts_as_its_own(serve: ServeBehind) -> None:
    """With limits like any other's: whose connections they are is not known."""
    limits = {"max_strangers_per_address": 1, "max_connections_per_address": 1}
    async with serve(**limits) as address:
        assert (await exchange(address, LOCAL + GET, BALANCER)).endswith(BALANCER.encode())
        async with dialled(address, BALANCER) as (first, writer):
            writer.write(LOCAL + b"GET /cli")
            waiting = asyncio.create_task(read_all(first))
            async with dialled(address, BALANCER) as (_, second):
                second.write(LOCAL + b"GET /cli")
                assert await waiting == b""


@pytest.mark.parametrize(
    "start",
    [
        GET,
        PREFACE,
        b"\x16\x03\x01\x02\x00\x01",
        b"PROXY nonsense\r\n" + GET,
        HEADER[:13] + b"\xff" + HEADER[14:] + GET,
    ],
    ids=["http", "grpc", "tls", "text", "binary"],
)
async def test_a_balancer_without_a_header_is_refused_and_the_log_says_so(
    serve: ServeBehind, start: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve() as address:
        with caplog.at_level(logging.WARNING, "pipecd_controlplane.http.accept"):
            assert await exchange(address, start, BALANCER) == b""
        [record] = caplog.records

    assert record.message == "front.refused"
    assert record.levelno == logging.WARNING


async def test_a_connection_that_says_nothing_and_goes_is_no_line_of_the_log(
    serve: ServeBehind, caplog: pytest.LogCaptureFixture
) -> None:
    """So balancers check whether a port is open."""
    async with serve() as address, dialled(address, BALANCER) as (reader, writer):
        writer.write_eof()
        assert await read_all(reader) == b""

    assert caplog.records == []


@pytest.mark.parametrize("start", [b"", HEADER[:5], HEADER[:20], b"PROXY TCP4 203.0.113.7 "])
async def test_a_header_that_does_not_end_is_given_up(
    serve: ServeBehind, tls: CertificateFiles, start: bytes
) -> None:
    async with serve(tls=tls, header_timeout=SOON) as address:
        assert await exchange(address, start, BALANCER) == b""


async def test_a_header_that_comes_a_byte_at_a_time_is_given_up(serve: ServeBehind) -> None:
    async with (
        serve(header_timeout=SOON) as address,
        dialled(address, BALANCER) as (reader, writer),
    ):
        end = asyncio.create_task(read_all(reader))
        writer.write(b"PROXY UNKNOWN ")
        while not end.done():
            writer.write(b"x")
            await asyncio.wait([end], timeout=0.02)
        assert await end == b""


async def test_a_client_that_has_no_room_is_refused(
    serve: ServeBehind, caplog: pytest.LogCaptureFixture
) -> None:
    """Callers that were let in are not evicted for it; the log names it, not its balancer."""
    caplog.set_level(logging.INFO, "pipecd_controlplane.http.accept")
    limits = {"max_strangers_per_address": 1, "max_connections_per_address": 1}
    async with (
        serve(**limits) as address,
        balanced(address) as front,
        connect(front) as channel,
    ):
        request = pb.ReleaseHoldRequest(application_id="peer")
        stub = ApplicationServiceStub(channel)
        assert (await call(stub.ReleaseHold, request, deadline=LIMIT)).command_id == ONE
        assert await exchange(front, GET, ONE) == b""
        assert (await exchange(front, GET, OTHER)).endswith(OTHER.encode())
    [record] = caplog.records
    assert record.levelno == logging.INFO
    assert record.fields["peer"] == ONE  # type: ignore[attr-defined]


async def test_connections_that_wait_for_a_header_end_when_the_server_stops(
    serve: ServeBehind,
) -> None:
    async with AsyncExitStack() as opened:
        async with serve() as address:
            reader, writer = await opened.enter_async_context(dialled(address, BALANCER))
            writer.write(HEADER[:5])
            assert (await exchange(address, GET)).endswith(ONE.encode())  # it was accepted before
        assert await read_all(reader) == b""
