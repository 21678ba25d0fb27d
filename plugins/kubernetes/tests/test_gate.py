# SPDX-License-Identifier: Apache-2.0
"""The way to the network of programs that render, and value files that we fetch ourselves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from pipecd_plugin_kubernetes.rendering import value_files
from pipecd_plugin_kubernetes.rendering.gate import Gate, run_gated
from pipecd_plugin_kubernetes.rendering.value_files import fetch_values

from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.hosts import Hosts
from pipecd_sdk.kit.process import own

LOOPBACK = Hosts(["127.0.0.1"])
Answer = Callable[[str], Awaitable[bytes]]


class Server:
    """An HTTP server that says what it is told to say, by path; and what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head)
        path = head.split(" ")[1]
        writer.write(self.answers.get(path, respond(b"", status="404 Not Found")))
        await writer.drain()
        writer.close()


def respond(body: bytes, *, status: str = "200 OK", **fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield made


async def ask(env: Mapping[str, str], request: str) -> bytes:
    """Returns what the gate answers to a request."""
    host, _, port = env["HTTPS_PROXY"].removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request.encode())
    await writer.drain()
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    return answer


async def test_an_allowed_host_is_reached_by_both_kinds_of_requests(server: Server) -> None:
    server.answers["/a?b=c"] = respond(b"content")
    async with Gate(LOOPBACK) as gate:
        plain = f"GET http://{server.address}/a?b=c HTTP/1.1\r\nHost: x\r\nConnection: a\r\n\r\n"
        assert (await ask(gate.environment, plain)).endswith(b"content")
        tunnel = (
            f"CONNECT {server.address} HTTP/1.1\r\n\r\n"
            f"GET /a?b=c HTTP/1.1\r\nHost: {server.address}\r\n\r\n"
        )
        answer = await ask(gate.environment, tunnel)
        assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\n")
        assert answer.endswith(b"content")
        gate.check()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ("CONNECT ADDRESS HTTP/1.1\r\n\r\n", b"403"),
        ("GET http://ADDRESS/a HTTP/1.1\r\n\r\n", b"403"),
        ("CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n", b"403"),
        ("GET /a HTTP/1.1\r\n\r\n", b"400"),
        ("GET https://ADDRESS/ HTTP/1.1\r\n\r\n", b"400"),
        ("nonsense\r\n\r\n", b"400"),
        (f"GET /{'x' * 100_000} HTTP/1.1\r\n\r\n", b"400"),
    ],
)
async def test_any_other_host_and_any_nonsense_is_refused(
    server: Server, request_: str, status: bytes
) -> None:
    async with Gate(Hosts(["*.example.com"])) as gate:
        answer = await ask(gate.environment, request_.replace("ADDRESS", server.address))
        assert answer.split(b" ")[1] == status
        if status == b"403":
            with pytest.raises(StageFailedError, match="is not an allowed host"):
                gate.check()
    assert server.asked == []


async def test_the_proxy_of_the_operator_is_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:pass@{server.address}")
    server.answers["http://example.com/a"] = respond(b"by proxy")
    async with Gate(Hosts(["example.com"])) as gate:
        plain = "GET http://example.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n"
        assert (await ask(gate.environment, plain)).endswith(b"by proxy")
    assert "Proxy-Authorization: Basic bWU6cGFzcw==" in server.asked[0]


async def test_a_program_that_wants_elsewhere_fails_with_the_host(
    server: Server, tmp_path: Path
) -> None:
    script = f'curl -fsS "http://{server.address}/a" || exit 3'
    with pytest.raises(StageFailedError, match=r"127\.0\.0\.1 is not an allowed host"):
        await run_gated(own("/bin/sh", "-c", script), "it", tmp_path, PATH, Hosts([]))
    assert server.asked == []
    server.answers["/a"] = respond(b"content")
    arguments = own("/bin/sh", "-c", script)
    assert await run_gated(arguments, "it", tmp_path, PATH, LOOPBACK) == "content"


PATH = {"PATH": "/usr/bin:/bin"}


async def test_a_value_file_is_fetched_over_allowed_hosts_only(
    server: Server, tmp_path: Path
) -> None:
    server.answers["/values.yaml"] = respond(b"a: 1\n")
    server.answers["/moved"] = respond(b"", status="302 Found", Location="/values.yaml")
    server.answers["/away"] = respond(b"", status="302 Found", Location="http://localhost/x")
    server.answers["/round"] = respond(b"", status="302 Found", Location="/round")
    made = await fetch_values(f"http://{server.address}/moved", LOOPBACK, into=tmp_path / "a")
    assert made.read_text() == "a: 1\n"
    assert made.stat().st_mode & 0o777 == 0o600
    for path, said in (
        ("away", "'localhost' is not an allowed host"),
        ("round", "redirects"),
        ("gone", "the server says 404"),
    ):
        with pytest.raises(StageFailedError, match=said):
            await fetch_values(f"http://{server.address}/{path}", LOOPBACK, into=tmp_path / path)


async def test_a_value_file_without_end_is_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_files, "LARGEST", 10)
    server.answers["/a"] = respond(b"x" * 11)
    with pytest.raises(StageFailedError, match="more than 10 bytes"):
        await fetch_values(f"http://{server.address}/a", LOOPBACK, into=tmp_path / "a")


async def test_a_server_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="the value file"):
        await fetch_values("http://127.0.0.1:1/a", LOOPBACK, into=tmp_path / "a")
