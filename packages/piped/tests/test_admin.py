# SPDX-License-Identifier: Apache-2.0
"""The admin port answers probes, and nothing else."""

import asyncio
import socket

import pytest

from pipecd_model.errors import StateError
from pipecd_piped.admin import AdminPage, serving_admin
from pipecd_piped.run_command import run
from pipecd_runtime.ports import pick_port

LIMIT = 10
HERE = "127.0.0.1"


def broken() -> AdminPage:
    raise LookupError


PAGES = {
    "/healthz": lambda: AdminPage(body="ok"),
    "/away": lambda: AdminPage(body="{}", status="503 Away", content_type="application/json"),
    "/broken": broken,
}


async def ask(port: int, request: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    answer = await asyncio.wait_for(reader.read(), LIMIT)
    writer.close()
    return answer.decode()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /healthz HTTP/1.1", "200 OK"),
        ("GET /healthz?verbose HTTP/1.1", "200 OK"),
        ("HEAD /healthz HTTP/1.1", "200 OK"),
        ("GET / HTTP/1.1", "200 OK"),
        ("GET /away HTTP/1.1", "503 Away"),
        ("GET /broken HTTP/1.1", "500 Internal Server Error"),
        ("GET /other HTTP/1.1", "404 Not Found"),
        ("POST /healthz HTTP/1.1", "405 Method Not Allowed"),
        ("", "405 Method Not Allowed"),
    ],
)
async def test_it_answers_get_of_its_pages(request_line: str, status: str) -> None:
    port = pick_port()
    async with serving_admin(HERE, port, PAGES):
        answer = await ask(port, f"{request_line}\r\nHost: x\r\n\r\n")

    assert answer.startswith(f"HTTP/1.1 {status}\r\n")


async def test_a_page_is_sent_whole() -> None:
    port = pick_port()
    async with serving_admin(HERE, port, PAGES):
        answer = await ask(port, "GET /healthz HTTP/1.1\r\n\r\n")

    assert answer.endswith("Content-Length: 2\r\nConnection: close\r\n\r\nok")


async def test_a_page_has_its_type_and_the_head_has_no_body() -> None:
    port = pick_port()
    async with serving_admin(HERE, port, PAGES):
        whole = await ask(port, "GET /away HTTP/1.1\r\n\r\n")
        head = await ask(port, "HEAD /away HTTP/1.1\r\n\r\n")

    assert "\r\nContent-Type: application/json\r\n" in whole
    assert whole == head + "{}"


async def test_a_taken_port_is_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # noqa: S104 - the port must be taken everywhere
        taken.listen()
        with pytest.raises(StateError, match="cannot serve the admin port"):
            async with serving_admin(HERE, taken.getsockname()[1], PAGES):
                pass


async def test_port_0_serves_nothing() -> None:
    async with serving_admin(HERE, 0, PAGES):
        pass


def test_by_default_only_this_machine_reaches_it() -> None:
    [option] = [each for each in run.params if each.name == "admin_host"]

    assert option.default == "127.0.0.1"


async def test_it_listens_where_it_is_told_and_nowhere_else() -> None:
    port = pick_port()
    async with serving_admin("127.0.0.2", port, PAGES):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        _, writer = await asyncio.open_connection("127.0.0.2", port)
        writer.close()
