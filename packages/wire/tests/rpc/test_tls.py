# SPDX-License-Identifier: Apache-2.0
"""TLS of clients: the system's roots count, and a failure is named for what it is."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2_grpc import ApplicationServiceStub
from pipecd_wire.rpc import (
    CallError,
    ClientTls,
    Endpoints,
    ServerTls,
    call,
    connect,
    explain_unreachable,
    serving,
)
from pipecd_wire.rpc.tls import find_roots, make_ssl_context

NOW = datetime.now(UTC)
HOLD = pb.ReleaseHoldRequest(application_id="app-1")
VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, *PROXIES, *map(str.upper, PROXIES)):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def root_file(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "roots.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@asynccontextmanager
async def listening(context: ssl.SSLContext | None, greeting: bytes = b"") -> AsyncIterator[str]:
    """A server that greets; yields its address."""

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(greeting)
            await writer.drain()
            writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def serve_with(authority: trustme.CA, *names: str, **options: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, **options).configure_cert(context)
    context.set_alpn_protocols(["h2"])
    return context


async def trouble_at(address: str, tls: ClientTls | None) -> tuple[str, str]:
    """Returns what is said of a call there: the cause, and the hint."""
    with pytest.raises(CallError) as failed:
        async with connect(address, tls=tls) as channel:
            await call(ApplicationServiceStub(channel).ReleaseHold, HOLD)
    trouble = explain_unreachable(failed.value, tls=tls is not None)
    assert trouble is not None
    return trouble.cause, trouble.hint


async def trouble_with(
    server: ssl.SSLContext | None, tls: ClientTls | None, greeting: bytes = b""
) -> tuple[str, str]:
    async with listening(server, greeting) as address:
        return await trouble_at(address, tls)


def trusting(authority: trustme.CA) -> ClientTls:
    return ClientTls(roots=authority.cert_pem.bytes())


async def test_an_unknown_authority_is_named_and_nobody_is_told_to_leave_tls(
    authority: trustme.CA,
) -> None:
    server = serve_with(authority, "127.0.0.1")

    cause, hint = await trouble_with(server, ClientTls(roots=trustme.CA().cert_pem.bytes()))

    assert cause.startswith("its certificate is not trusted")
    assert hint == "give the certificate of its CA with --cert-file or SSL_CERT_FILE"


async def test_another_name_is_named(authority: trustme.CA) -> None:
    server = serve_with(authority, "pipecd.example.com")

    cause, _hint = await trouble_with(server, trusting(authority))

    assert cause == "its certificate is for another name"


async def test_an_expired_certificate_is_named(authority: trustme.CA) -> None:
    server = serve_with(
        authority,
        "127.0.0.1",
        not_before=NOW - timedelta(days=9),
        not_after=NOW - timedelta(days=1),
    )

    assert (await trouble_with(server, trusting(authority)))[0] == "its certificate has expired"


async def test_a_certificate_of_tomorrow_is_named(authority: trustme.CA) -> None:
    server = serve_with(
        authority,
        "127.0.0.1",
        not_before=NOW + timedelta(days=1),
        not_after=NOW + timedelta(days=9),
    )

    cause, hint = await trouble_with(server, trusting(authority))

    assert cause == "its certificate is not valid yet"
    assert "clock" in hint


async def test_a_web_server_is_named(authority: trustme.CA) -> None:
    server = serve_with(authority, "127.0.0.1")
    server.set_alpn_protocols(["http/1.1"])

    cause, _hint = await trouble_with(server, trusting(authority))

    assert cause == "it speaks TLS there, but not gRPC"


async def test_a_server_without_tls_is_named(authority: trustme.CA) -> None:
    greeting = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"

    cause, hint = await trouble_with(None, trusting(authority), greeting)

    assert cause == "it does not speak TLS there"
    assert "--insecure" in hint


async def test_a_server_with_tls_is_named_to_who_left_it_out(authority: trustme.CA) -> None:
    _cause, hint = await trouble_with(serve_with(authority, "127.0.0.1"), None)

    assert "leave out --insecure" in hint


@pytest.mark.parametrize("tls", [None, ClientTls()])
async def test_an_address_where_nothing_listens_is_named(tls: ClientTls | None) -> None:
    async with listening(None) as address:
        pass

    assert (await trouble_at(address, tls))[0].startswith("nothing listens there")


def name_file(root_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(root_file))


def name_grpcs_file(root_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(root_file))


def name_folder(root_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root_file.parent / "certificates"
    folder.mkdir()
    (folder / "README").write_text("no certificate")
    (folder / "own.pem").write_bytes(root_file.read_bytes())
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))


@pytest.mark.parametrize("name", [name_file, name_grpcs_file, name_folder])
async def test_certificates_that_the_environment_names_count_for_grpc(
    served: Callable[..., Endpoints],
    authority: trustme.CA,
    root_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    certificate = authority.issue_cert("127.0.0.1")
    tls = ServerTls(
        certificate=b"".join(blob.bytes() for blob in certificate.cert_chain_pems),
        key=certificate.private_key_pem.bytes(),
    )

    async with serving(served(), "127.0.0.1:0", tls=tls) as port:
        async with connect(f"127.0.0.1:{port}", tls=ClientTls()) as channel:
            with pytest.raises(CallError) as refused:
                await call(ApplicationServiceStub(channel).ReleaseHold, HOLD)
        name(root_file, monkeypatch)
        async with connect(f"127.0.0.1:{port}", tls=ClientTls()) as channel:
            done = await call(ApplicationServiceStub(channel).ReleaseHold, HOLD)

    assert refused.value.status == "UNAVAILABLE"
    assert done.command_id == "app-1"


def test_roots_that_were_given_count_alone(
    authority: trustme.CA, root_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_file(root_file, monkeypatch)
    other = trustme.CA().cert_pem.bytes()

    assert find_roots(ClientTls(roots=other)) == other
    assert find_roots(ClientTls()) == authority.cert_pem.bytes()


def test_programs_of_python_trust_the_same(
    root_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_file(root_file, monkeypatch)

    assert len(make_ssl_context(ClientTls()).get_ca_certs()) == 1
