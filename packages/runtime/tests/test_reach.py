# SPDX-License-Identifier: Apache-2.0
"""The way to a server, step by step: what is wrong is named, with what to do about it."""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import formatdate

import pytest
import trustme

from pipecd_runtime.checkup import CheckRow, Verdict
from pipecd_runtime.ports import pick_port
from pipecd_runtime.reach import ServerAddress, check_reach, parse_address

Answer = Callable[[], bytes]
TLS_RECORD = b"\x16"


def answer_with(date: str) -> Answer:
    answer = f"HTTP/1.1 404 Not Found\r\nDate: {date}\r\nX: y\r\n\r\n".encode()
    return lambda: answer


def answer_now() -> bytes:
    return answer_with(formatdate(time.time(), usegmt=True))()


@asynccontextmanager
async def serving(
    answer: Answer = answer_now,
    certificate: trustme.LeafCert | None = None,
    protocols: tuple[str, ...] = ("h2", "http/1.1"),
) -> AsyncIterator[str]:
    """Serves one answer to every request; yields its address."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(list(protocols))
        certificate.configure_cert(context)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.readexactly(1) != TLS_RECORD:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer())
            else:
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"localhost:{server.sockets[0].getsockname()[1]}"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(autouse=True)
def without_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


def find(rows: list[CheckRow], subject: str) -> CheckRow:
    return next(row for row in rows if row.subject == subject)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("localhost:8080", ServerAddress(host="localhost", port=8080)),
        ("[::1]:443", ServerAddress(host="::1", port=443)),
        *(
            (text, None)
            for text in ("localhost", ":80", "http://a:80", "a:0", "a:65536", "a:٣", "")
        ),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, parsed: ServerAddress | None) -> None:
    assert parse_address(text) == parsed


async def test_what_is_no_address_is_not_looked_for() -> None:
    (row,) = await check_reach("http://localhost:8080", tls=False)

    assert (row.verdict, row.subject) == (Verdict.FAIL, "address")
    assert "without a scheme" in row.next_step


async def test_a_name_that_nobody_knows_is_the_last_step() -> None:
    (row,) = await check_reach("nowhere.invalid:443", tls=True)

    assert (row.verdict, row.subject) == (Verdict.FAIL, "name")
    assert "'nowhere.invalid' cannot be resolved" in row.text


async def test_a_port_where_nobody_listens_is_told_with_the_reason() -> None:
    rows = await check_reach(f"127.0.0.1:{pick_port()}", tls=True)

    assert [row.subject for row in rows] == ["name", "port"]
    assert "127.0.0.1: connection refused" in rows[1].text


async def test_a_server_on_this_machine_needs_no_tls() -> None:
    async with serving() as address:
        rows = await check_reach(address, tls=False)

    assert [row.subject for row in rows] == ["name", "port", "tls", "clock"]
    assert {row.verdict for row in rows} == {Verdict.OK}


async def test_a_plain_server_that_is_asked_for_tls_is_told_from_a_broken_one() -> None:
    async with serving() as address:
        row = find(await check_reach(address, tls=True), "tls")

    assert row.verdict is Verdict.FAIL
    assert "does not speak TLS" in row.text
    assert "--insecure" in row.next_step


async def test_a_server_with_tls_that_is_asked_without_is_told(authority: trustme.CA) -> None:
    async with serving(certificate=authority.issue_cert("localhost")) as address:
        row = find(await check_reach(address, tls=False), "tls")

    assert row.verdict is Verdict.FAIL
    assert "leave out --insecure" in row.next_step


async def test_a_good_certificate_is_shown_with_its_names_and_its_end(
    authority: trustme.CA,
) -> None:
    certificate = authority.issue_cert("localhost", "pipecd.example.com")
    async with serving(certificate=certificate) as address:
        rows = await check_reach(address, tls=True, roots=authority.cert_pem.bytes())

    row = find(rows, "certificate")
    assert row.verdict is Verdict.OK
    assert "for localhost, pipecd.example.com" in row.text
    assert row.text.endswith(", until 3000-01-01")
    assert find(rows, "clock").verdict is Verdict.OK


async def test_a_certificate_of_a_private_authority_needs_its_file(authority: trustme.CA) -> None:
    async with serving(certificate=authority.issue_cert("localhost")) as address:
        row = find(await check_reach(address, tls=True), "certificate")

    assert row.verdict is Verdict.FAIL
    assert "is not trusted" in row.text
    assert "--cert-file" in row.next_step


async def test_a_certificate_for_another_name_shows_its_names(authority: trustme.CA) -> None:
    async with serving(certificate=authority.issue_cert("other.example.com")) as address:
        rows = await check_reach(address, tls=True, roots=authority.cert_pem.bytes())

    text = find(rows, "certificate").text
    assert text == "the certificate is not for 'localhost' but for other.example.com"


async def test_an_expired_certificate_is_told(authority: trustme.CA) -> None:
    ended = datetime.now(UTC) - timedelta(days=1)
    certificate = authority.issue_cert("localhost", not_after=ended)
    async with serving(certificate=certificate) as address:
        rows = await check_reach(address, tls=True, roots=authority.cert_pem.bytes())

    assert find(rows, "certificate").text == "the certificate has expired"


async def test_a_certificate_that_ends_soon_is_a_warning(authority: trustme.CA) -> None:
    soon = datetime.now(UTC) + timedelta(days=3, hours=1)
    certificate = authority.issue_cert("localhost", not_after=soon)
    async with serving(certificate=certificate) as address:
        rows = await check_reach(address, tls=True, roots=authority.cert_pem.bytes())

    row = find(rows, "certificate")
    assert row.verdict is Verdict.WARN
    assert "3 days left" in row.text


async def test_certificates_to_trust_that_are_none_are_told(authority: trustme.CA) -> None:
    async with serving(certificate=authority.issue_cert("localhost")) as address:
        rows = await check_reach(address, tls=True, roots=b"nothing of the kind")

    assert "--cert-file must be certificates in PEM" in find(rows, "certificate").next_step


async def test_what_does_not_pass_http2_on_is_told(authority: trustme.CA) -> None:
    certificate = authority.issue_cert("localhost")
    async with serving(certificate=certificate, protocols=("http/1.1",)) as address:
        rows = await check_reach(address, tls=True, roots=authority.cert_pem.bytes())

    assert "does not offer HTTP/2" in find(rows, "tls").text


@pytest.mark.parametrize(
    ("ahead", "verdict"), [(0, Verdict.OK), (90, Verdict.WARN), (-4000, Verdict.FAIL)]
)
async def test_clocks_that_differ_are_told(ahead: int, verdict: Verdict) -> None:
    async with serving() as address:
        rows = await check_reach(address, tls=False, clock=lambda: time.time() + ahead)

    row = find(rows, "clock")
    assert row.verdict is verdict
    assert ("ahead of" in row.text) == (ahead > 0)
    assert ("behind" in row.text) == (ahead < 0)


@pytest.mark.parametrize(
    "answer",
    [
        answer_with("yesterday"),
        answer_with(""),
        lambda: b"HTTP/1.1 200 OK\r\n\r\n",
        lambda: b"\x00\x00\x12\x04",
        lambda: b"x" * 100_000,
    ],
)
async def test_a_server_that_does_not_tell_the_time_gets_no_row(answer: Answer) -> None:
    async with serving(answer) as address:
        rows = await check_reach(address, tls=False)

    assert [row.subject for row in rows] == ["name", "port", "tls"]


@pytest.mark.parametrize(("excepted", "subjects"), [("", ["proxy"]), ("other,.invalid", ["name"])])
async def test_the_way_through_a_proxy_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, excepted: str, subjects: list[str]
) -> None:
    monkeypatch.setenv("https_proxy", "http://ann:secret@proxy.example.com:3128/")
    monkeypatch.setenv("no_proxy", excepted)

    rows = await check_reach("pipecd.invalid:443", tls=True)

    assert [row.subject for row in rows] == subjects
    assert "secret" not in rows[0].text


async def test_keys_in_the_open_are_a_warning_off_this_machine() -> None:
    """The name of the machine itself is not one of the loopback's."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        pytest.skip("the name of this machine cannot be resolved")
    server = await asyncio.start_server(lambda _, writer: writer.close(), "0.0.0.0", 0)  # noqa: S104
    async with server:
        port = server.sockets[0].getsockname()[1]
        row = find(await check_reach(f"{name}:{port}", tls=False), "tls")

    assert row.verdict is Verdict.WARN
    assert "readable on the way" in row.text
