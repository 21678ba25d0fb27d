# SPDX-License-Identifier: Apache-2.0
"""One address for gRPC, gRPC-Web and HTTP, in plain text and under TLS."""

import asyncio
import contextlib
import signal
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from pipecd_controlplane.http.server import CertificateFiles, serve_public
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_model.config.values import Duration
from pipecd_model.errors import ConfigError
from pipecd_test_support.echo_service import EchoApi
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2_grpc import ApplicationServiceStub, ProjectServiceStub
from pipecd_wire.rpc import (
    AddressError,
    CallError,
    Channel,
    ClientTls,
    Endpoints,
    call,
    connect,
    stream,
    wait_until_ready,
)
from pipecd_wire.rpc.frames import frame

LIMIT = 30.0

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
SETTINGS = 4

BRIEF = FrontLimitsConfig(
    header_timeout=Duration(milliseconds=50),
    body_timeout=Duration(milliseconds=50),
    body_idle_timeout=Duration(milliseconds=50),
    keep_alive_timeout=Duration(milliseconds=50),
)

GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def hold(channel: Channel, application_id: str, deadline: float = LIMIT) -> str:
    stub = ApplicationServiceStub(channel)
    request = pb.ReleaseHoldRequest(application_id=application_id)
    return (await call(stub.ReleaseHold, request, deadline=deadline)).command_id


def watch(channel: Channel) -> AsyncGenerator[pb.WatchChangesResponse, None]:
    return stream(ProjectServiceStub(channel).WatchChanges, pb.WatchChangesRequest())


@asynccontextmanager
async def dialled(
    address: str, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def exchange(address: str, request: bytes, context: ssl.SSLContext | None = None) -> bytes:
    async with asyncio.timeout(LIMIT), dialled(address, context) as (reader, writer):
        writer.write(request)
        return await reader.read()


def web_request(path: str, message: bytes) -> bytes:
    body = frame(message)
    return (
        f"POST /pipecd.api.v1.{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        f"content-type: application/grpc-web\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body


def hold_over_web(application_id: str) -> bytes:
    message = pb.ReleaseHoldRequest(application_id=application_id).SerializeToString()
    return web_request("ApplicationService/ReleaseHold", message)


def trusting(roots: bytes, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=roots.decode())
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


async def test_grpc_grpc_web_and_http_share_one_port(
    endpoints: Endpoints, pages: Starlette
) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serve_public(pages, endpoints, "127.0.0.1", 0) as address,
        connect(address) as channel,
    ):
        assert await hold(channel, "app-1") == "app-1"
        assert (await exchange(address, GET)).endswith(b"ok")
        assert b"app-2" in await exchange(address, hold_over_web("app-2"))


async def test_grpc_grpc_web_and_http_share_one_port_under_tls(
    endpoints: Endpoints, pages: Starlette, tls: CertificateFiles, roots: bytes
) -> None:
    context = trusting(roots, "h2", "http/1.1")

    async with (
        asyncio.timeout(LIMIT),
        serve_public(pages, endpoints, "127.0.0.1", 0, tls=tls) as address,
        connect(address, tls=ClientTls(roots=roots)) as channel,
    ):
        assert await hold(channel, "app-1") == "app-1"
        assert (await exchange(address, GET, context)).endswith(b"ok")
        assert b"app-2" in await exchange(address, hold_over_web("app-2"), context)


@pytest.mark.parametrize(
    ("offered", "chosen"), [(["h2", "http/1.1"], "http/1.1"), (["h2"], "h2"), ([], None)]
)
async def test_a_browser_gets_http_1_and_a_grpc_client_http_2(
    endpoints: Endpoints,
    pages: Starlette,
    tls: CertificateFiles,
    roots: bytes,
    offered: list[str],
    chosen: str | None,
) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serve_public(pages, endpoints, "127.0.0.1", 0, tls=tls) as address,
        dialled(address, trusting(roots, *offered)) as (_, writer),
    ):
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == chosen


async def test_a_tls_client_without_alpn_is_told_by_its_first_bytes(
    endpoints: Endpoints, pages: Starlette, tls: CertificateFiles, roots: bytes
) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serve_public(pages, endpoints, "127.0.0.1", 0, tls=tls) as address,
    ):
        assert (await exchange(address, GET, trusting(roots))).endswith(b"ok")
        async with dialled(address, trusting(roots)) as (reader, writer):
            writer.write(PREFACE + EMPTY_SETTINGS)
            assert (await reader.readexactly(9))[3] == SETTINGS


async def test_first_bytes_may_come_one_by_one(endpoints: Endpoints, pages: Starlette) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serve_public(pages, endpoints, "127.0.0.1", 0) as address,
    ):
        async with dialled(address) as (reader, writer):
            await one_by_one(writer, PREFACE + EMPTY_SETTINGS)
            assert (await reader.readexactly(9))[3] == SETTINGS
        async with dialled(address) as (reader, writer):
            await one_by_one(writer, GET)
            assert (await reader.read()).endswith(b"ok")
        async with dialled(address) as (reader, writer):  # begins as HTTP/2 does, but is not
            await one_by_one(writer, b"PROPFIND /healthz HTTP/1.1\r\nconnection: close\r\n\r\n")
            assert b"405" in await reader.readline()


async def one_by_one(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.get_extra_info("socket").setsockopt(6, 1, 1)  # TCP_NODELAY
    for byte in data:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)


async def test_a_connection_that_says_nothing_is_closed(
    endpoints: Endpoints, pages: Starlette
) -> None:
    async with serve_public(pages, endpoints, "127.0.0.1", 0, limits=BRIEF) as address:
        assert await exchange(address, b"PR") == b""


async def test_a_handler_sees_the_address_of_its_caller(
    endpoints: Endpoints, pages: Starlette
) -> None:
    """Audit needs it, although the gRPC server itself only sees a unix socket."""
    async with (
        asyncio.timeout(LIMIT),
        serve_public(pages, endpoints, "127.0.0.1", 0) as address,
        connect(address) as channel,
    ):
        assert await hold(channel, "peer") == "127.0.0.1"
        assert b"127.0.0.1" in await exchange(address, hold_over_web("peer"))


async def test_limits_of_http_do_not_cut_a_quiet_grpc_stream(
    endpoints: Endpoints, pages: Starlette, api: EchoApi
) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serve_public(pages, endpoints, "127.0.0.1", 0, limits=BRIEF) as address,
        connect(address) as channel,
        aclosing(watch(channel)) as responses,
    ):
        first = await anext(responses)
        await exchange(address, b"")  # closed as silent: so long it has taken
        api.finish.set()
        second = await anext(responses)

    assert [first.changes[0].id, second.changes[0].id] == ["first", "second"]


async def test_limits_of_http_do_not_cut_a_quiet_grpc_web_stream(
    endpoints: Endpoints, pages: Starlette, api: EchoApi
) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serve_public(pages, endpoints, "127.0.0.1", 0, limits=BRIEF) as address,
        dialled(address) as (reader, writer),
    ):
        writer.write(web_request("ProjectService/WatchChanges", b""))
        assert b"first" in await reader.readuntil(b"first")
        await exchange(address, b"")
        api.finish.set()
        assert b"grpc-status:0" in await reader.readuntil(b"grpc-status:0")


@pytest.mark.parametrize("way", ["grpc", "grpc-web"])
async def test_a_caller_that_goes_away_ends_the_handler(
    endpoints: Endpoints, pages: Starlette, api: EchoApi, way: str
) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serve_public(pages, endpoints, "127.0.0.1", 0) as address,
    ):
        if way == "grpc":
            async with connect(address) as channel, aclosing(watch(channel)) as responses:
                await anext(responses)
        else:
            async with dialled(address) as (reader, writer):
                writer.write(web_request("ProjectService/WatchChanges", b""))
                await reader.readuntil(b"first")
        await api.ended.wait()


async def test_connections_that_come_and_go_leave_nothing_behind(
    endpoints: Endpoints, pages: Starlette
) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serve_public(pages, endpoints, "127.0.0.1", 0) as address,
    ):
        await come_and_go(address)  # whatever is made once is made now
        tasks, files = len(asyncio.all_tasks()), open_files()

        for _ in range(30):
            await come_and_go(address)

        while len(asyncio.all_tasks()) > tasks or open_files() > files:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def come_and_go(address: str) -> None:
    async with connect(address) as channel:
        await hold(channel, "app-1")
    await exchange(address, GET)
    async with dialled(address) as (reader, writer):
        writer.write(PREFACE + EMPTY_SETTINGS)
        await reader.readexactly(9)
    async with dialled(address) as (_, writer):
        writer.write(PREFACE)
    async with dialled(address):
        pass


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("way", ["grpc", "grpc-web"])
async def test_a_stop_lets_running_calls_finish(
    endpoints: Endpoints, pages: Starlette, api: EchoApi, way: str
) -> None:
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        async with serve_public(pages, endpoints, "127.0.0.1", 0, grace_seconds=LIMIT) as address:
            calling: asyncio.Task[Any] = tasks.create_task(
                hold_once(address, "wait")
                if way == "grpc"
                else exchange(address, hold_over_web("wait"))
            )
            await api.started.wait()
            tasks.create_task(finish_when_stopping(address, api))

        assert api.ended.is_set()
        answer = await calling

    assert answer == "wait" if way == "grpc" else b"grpc-status:0" in answer


async def finish_when_stopping(address: str, api: EchoApi) -> None:
    """Let the handler go on once no new connection is taken."""
    with contextlib.suppress(ConnectionError):
        while True:
            async with dialled(address):
                pass
    await asyncio.sleep(0.2)  # a stop that does not wait has ended the handler by now
    api.finish.set()


async def hold_once(address: str, application_id: str) -> str:
    async with connect(address) as channel:
        return await hold(channel, application_id)


@pytest.mark.parametrize("way", ["grpc", "grpc-web"])
async def test_a_stop_ends_calls_that_outlast_its_grace(
    endpoints: Endpoints, pages: Starlette, api: EchoApi, way: str
) -> None:
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        async with serve_public(pages, endpoints, "127.0.0.1", 0, grace_seconds=0.1) as address:
            if way == "grpc":
                tasks.create_task(cut_off(address))
            else:
                tasks.create_task(exchange(address, hold_over_web("wait")))
            await api.started.wait()

        assert api.ended.is_set()


async def cut_off(address: str) -> None:
    with pytest.raises(CallError) as failed:
        await hold_once(address, "wait")
    assert failed.value.transient


async def test_a_stop_does_not_wait_for_idle_connections(
    endpoints: Endpoints, pages: Starlette
) -> None:
    """A piped holds its channel open for ever; it must not hold up a restart."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(LIMIT), AsyncExitStack() as clients:
        async with serve_public(pages, endpoints, "127.0.0.1", 0, grace_seconds=LIMIT) as address:
            channel = await clients.enter_async_context(connect(address))
            await hold(channel, "app-1")
            await clients.enter_async_context(dialled(address))
            reader, writer = await clients.enter_async_context(dialled(address))
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(b"ok")
            began = loop.time()

        assert loop.time() - began < LIMIT / 2


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, with a name that is short enough for a socket in it."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


async def test_nothing_is_left_after_the_end(
    endpoints: Endpoints, pages: Starlette, temporary: Path
) -> None:
    before = asyncio.all_tasks()

    async with asyncio.timeout(LIMIT):
        async with serve_public(pages, endpoints, "127.0.0.1", 0) as address:
            assert names_in(temporary) != []
            await come_and_go(address)

        with pytest.raises(ConnectionRefusedError):
            await exchange(address, GET)
    assert asyncio.all_tasks() == before
    assert names_in(temporary) == []


async def test_a_folder_of_its_own_is_used_however_long_its_name_is(
    endpoints: Endpoints, pages: Starlette, temporary: Path, tmp_path: Path
) -> None:
    """A killed server leaves nothing outside the folder, and the next one clears what is in it."""
    own = tmp_path / ("long" * 30) / "run"
    own.mkdir(parents=True)
    (own / "grpc.sock").write_text("left by a server that was killed")
    before = descriptors()

    async with asyncio.timeout(LIMIT):
        async with serve_public(pages, endpoints, "127.0.0.1", 0, own_folder=own) as address:
            assert names_in(temporary) == []
            assert names_in(own) == ["grpc.sock"]
            await come_and_go(address)

    assert not own.exists()
    assert [each for each in descriptors() - before if "long" in each] == []


def descriptors() -> set[str]:
    """What this process has open."""
    links = Path("/proc/self/fd").iterdir()
    return {str(link.readlink()) for link in links if link.is_symlink()}


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_an_error_of_the_block_comes_out_as_it_is(
    endpoints: Endpoints, pages: Starlette
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with serve_public(pages, endpoints, "127.0.0.1", 0):
            _ = 1 / 0


async def test_a_cancelled_block_is_stopped(endpoints: Endpoints, pages: Starlette) -> None:
    addresses: asyncio.Queue[str] = asyncio.Queue()

    async def serve() -> None:
        async with serve_public(pages, endpoints, "127.0.0.1", 0) as address:
            await addresses.put(address)
            await asyncio.Event().wait()

    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(serve())
        address = await addresses.get()
        serving.cancel()
        await asyncio.wait([serving])

        with pytest.raises(ConnectionRefusedError):
            await exchange(address, GET)


async def test_a_taken_port_is_refused(endpoints: Endpoints, pages: Starlette) -> None:
    async with serve_public(pages, endpoints, "127.0.0.1", 0) as address:
        port = int(address.rsplit(":", 1)[1])
        with pytest.raises(AddressError, match="the port is taken"):
            async with serve_public(pages, endpoints, "127.0.0.1", port):
                raise AssertionError("two servers on one port")


async def test_signals_are_left_to_whoever_runs_the_front(
    endpoints: Endpoints, pages: Starlette
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    async with serve_public(pages, endpoints, "127.0.0.1", 0):
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


async def test_a_long_name_of_the_folder_for_temporary_files_does_no_harm(
    endpoints: Endpoints, pages: Starlette, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a unix socket may have 107 bytes."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))

    async with (
        asyncio.timeout(LIMIT),
        serve_public(pages, endpoints, "127.0.0.1", 0) as address,
        connect(address) as channel,
    ):
        await wait_until_ready(channel, limit=LIMIT)


async def test_a_certificate_that_cannot_be_used_is_a_sentence(
    endpoints: Endpoints, pages: Starlette, tls: CertificateFiles
) -> None:
    for wrong in (
        CertificateFiles(cert_file=Path("/nowhere/server.crt"), key_file=tls.key_file),
        CertificateFiles(cert_file=tls.key_file, key_file=tls.key_file),
    ):
        with pytest.raises(ConfigError, match="cannot use certificate"):
            async with serve_public(pages, endpoints, "127.0.0.1", 0, tls=wrong):
                raise AssertionError("served without a certificate")
