# SPDX-License-Identifier: Apache-2.0
"""A plugin from a web server."""

import base64
import hashlib
import os
import ssl
import threading
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import trustme

from pipecd_piped.programs.errors import ProgramError, ProgramSourceError, SourceAwayError
from pipecd_piped.programs.fetch import FetchedProgram
from pipecd_test_support.web_server import Answer, Question, WebServer

Get = Callable[..., Awaitable[FetchedProgram]]

PLUGIN = b"#!/bin/sh\nexit 0\n"
SUM = hashlib.sha256(PLUGIN).hexdigest()
OTHER = b"#!/bin/sh\nexit 1\n"


async def test_a_file_with_its_checksum_becomes_a_program(
    server: WebServer, get: Get, folder: Path
) -> None:
    url = server.give("/files-1.0", Answer(body=PLUGIN))

    got = await get(url, sha256=SUM.upper())

    assert got.path == folder / "p" / SUM / "p"
    assert got.path.read_bytes() == PLUGIN
    assert os.access(got.path, os.X_OK)
    assert got.url == got.path.as_uri()  # upstream's plugins refuse http in their configuration
    assert not got.is_package


async def test_a_second_start_needs_no_server(server: WebServer, get: Get) -> None:
    url = server.give("/files", Answer(body=PLUGIN))
    first = await get(url, sha256=SUM)
    server.stop()

    assert await get(url, sha256=SUM) == first
    assert server.asked == ["GET /files"]


async def test_another_checksum_or_address_is_another_version(server: WebServer, get: Get) -> None:
    first = await get(server.give("/files-1", Answer(body=PLUGIN)), sha256=SUM)
    url = server.give("/files-2", Answer(body=OTHER))
    second = await get(url, sha256=hashlib.sha256(OTHER).hexdigest())
    server.give("/files-2", Answer(body=PLUGIN))
    third = await get(url, sha256=SUM)

    assert [first.path.read_bytes(), second.path.read_bytes()] == [PLUGIN, OTHER]
    assert third.path == first.path
    assert server.asked == ["GET /files-1", "GET /files-2", "GET /files-2"]


async def test_the_way_back_needs_no_server(server: WebServer, get: Get) -> None:
    old = server.give("/1", Answer(body=PLUGIN))
    first = await get(old, sha256=SUM)
    await get(server.give("/2", Answer(body=OTHER)), sha256=hashlib.sha256(OTHER).hexdigest())
    server.stop()

    assert await get(old, sha256=SUM) == first


async def test_versions_that_nobody_uses_go(server: WebServer, get: Get, folder: Path) -> None:
    for number in range(6):
        body = b"#!/bin/sh\nexit %d\n" % number
        url = server.give(f"/{number}", Answer(body=body))
        await get(url, sha256=hashlib.sha256(body).hexdigest())

    assert len([path for path in (folder / "p").iterdir() if path.is_dir()]) == 3
    assert len(list((folder / "p").glob("source-*.json"))) == 3


async def test_what_does_not_match_is_never_a_program(
    server: WebServer, get: Get, folder: Path, executables: Callable[[], list[str]]
) -> None:
    url = server.give("/files", Answer(body=OTHER))

    with pytest.raises(ProgramError, match=f"has the sha256 {hashlib.sha256(OTHER).hexdigest()}"):
        await get(url, sha256=SUM)

    assert executables() == []
    assert os.listdir(folder / "p") == []  # noqa: PTH208


async def test_a_page_of_an_intermediary_is_never_a_program(
    server: WebServer, get: Get, executables: Callable[[], list[str]]
) -> None:
    page = b"<html>Please sign in</html>"
    url = server.give("/files", Answer(body=page))

    with pytest.raises(ProgramError, match="is not a program"):
        await get(url, sha256=hashlib.sha256(page).hexdigest())

    assert executables() == []


async def test_a_cached_file_that_was_changed_is_fetched_again(server: WebServer, get: Get) -> None:
    url = server.give("/files", Answer(body=PLUGIN))
    got = await get(url, sha256=SUM)
    got.path.write_bytes(OTHER)

    assert (await get(url, sha256=SUM)).path.read_bytes() == PLUGIN
    assert server.asked == ["GET /files"] * 2


@pytest.mark.parametrize("pinned", [True, False])
async def test_a_body_that_was_cut_off_is_no_plugin(
    server: WebServer, get: Get, executables: Callable[[], list[str]], pinned: bool
) -> None:
    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(PLUGIN[:8])
        handler.close_connection = True

    url = server.give("/files", Answer(headers={"Content-Length": "17"}, write=write))

    with pytest.raises(SourceAwayError, match=r"is away: .*without sending complete message body"):
        await get(url, sha256=SUM if pinned else "")

    assert executables() == []


async def test_a_body_whose_end_nobody_could_know_needs_a_checksum(
    server: WebServer, get: Get
) -> None:
    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(PLUGIN)
        handler.close_connection = True

    url = server.give("/files", Answer(headers={"Connection": "close"}, write=write))

    with pytest.raises(ProgramSourceError, match="does not say how long the file is") as raised:
        await get(url)
    assert raised.value.hint == "give its sha256"
    assert (await get(url, sha256=SUM)).path.read_bytes() == PLUGIN


async def test_a_redirect_is_followed(server: WebServer, get: Get) -> None:
    with WebServer() as elsewhere:
        target = elsewhere.give("/blob", Answer(body=PLUGIN))
        url = server.give("/files", Answer(status=302, headers={"Location": target}))

        got = await get(url, sha256=SUM)

    assert got.path.read_bytes() == PLUGIN


async def test_redirects_have_an_end(server: WebServer, get: Get) -> None:
    url = server.give("/files", Answer(status=302, headers={"Location": "/files"}))

    with pytest.raises(ProgramSourceError, match="to another address more than 5 times"):
        await get(url, sha256=SUM)


async def test_nothing_leads_from_https_to_http(
    server: WebServer, get: Get, secure: ssl.SSLContext
) -> None:
    target = server.give("/files", Answer(body=PLUGIN))
    with WebServer(secure) as trusted:
        url = trusted.give("/files", Answer(status=307, headers={"Location": target}))

        with pytest.raises(ProgramSourceError, match="sends from https to http"):
            await get(url)

    assert server.asked == []


async def test_a_token_in_an_address_is_shown_to_nobody(
    get: Get, secure: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    with WebServer(secure) as server:
        url = server.give("/files", Answer(body=PLUGIN))

        with caplog.at_level("DEBUG"):
            got = await get(f"{url}?token=secret")
        server.give("/files", Answer(status=404))
        with pytest.raises(ProgramSourceError) as raised:
            await get(f"{url}?token=other-secret")

    assert got.path.read_bytes() == PLUGIN
    assert got.url == url  # it goes to the plugin's command line
    assert server.questions[0].query == {"token": ["secret"]}
    assert "secret" not in caplog.text + str(raised.value)


async def test_a_login_in_an_address_is_used_and_goes_nowhere_else(
    get: Get, secure: ssl.SSLContext
) -> None:
    with WebServer(secure) as server, WebServer(secure) as elsewhere:
        target = elsewhere.give("/blob", Answer(body=PLUGIN)).replace("127.0.0.1", "localhost")
        url = server.give("/files", Answer(status=302, headers={"Location": target}))
        got = await get(url.replace("https://", "https://ada:secret@"))

    login = base64.b64encode(b"ada:secret").decode()
    assert server.questions[0].headers["Authorization"] == f"Basic {login}"
    assert "Authorization" not in elsewhere.questions[0].headers
    assert got.url == url


async def test_a_server_that_nobody_vouches_for_is_not_believed(
    get: Get, secure: ssl.SSLContext, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with WebServer(secure) as server:
        url = server.give("/files", Answer(body=PLUGIN))

        with pytest.raises(SourceAwayError, match="CERTIFICATE_VERIFY_FAILED") as raised:
            await get(url)

    assert "SSL_CERT_FILE" in raised.value.hint
    assert server.asked == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, ProgramSourceError),
        (403, ProgramSourceError),
        (429, SourceAwayError),
        (500, SourceAwayError),
        (503, SourceAwayError),
    ],
)
async def test_a_refusal_is_told_apart_from_trouble(
    server: WebServer, get: Get, status: int, kind: type[ProgramError]
) -> None:
    url = server.give("/files", Answer(status=status))

    with pytest.raises(kind, match=f"{url} answered {status} ") as raised:
        await get(url, sha256=SUM)

    assert type(raised.value) is kind


async def test_nobody_there_is_told(server: WebServer, get: Get) -> None:
    server.stop()

    with pytest.raises(SourceAwayError, match=r"is away: .*[Cc]onnect"):
        await get(f"{server.url}/files", sha256=SUM)


async def test_too_much_is_refused_before_it_comes(server: WebServer, get: Get) -> None:
    url = server.give("/files", Answer(body=PLUGIN))

    with pytest.raises(ProgramSourceError, match="gives more than"):
        await get(url, sha256=SUM, limits={"size_bytes": 16})


async def test_too_much_is_refused_when_nobody_told_of_it(
    server: WebServer, get: Get, executables: Callable[[], list[str]]
) -> None:
    def write(handler: BaseHTTPRequestHandler) -> None:
        while True:  # until nobody listens any more
            handler.wfile.write(b"10000\r\n" + b"#" * 0x10000 + b"\r\n")

    url = server.give("/files", Answer(headers={"Transfer-Encoding": "chunked"}, write=write))

    with pytest.raises(ProgramSourceError, match="gives more than 3 MiB"):
        await get(url, sha256=SUM, limits={"size_bytes": 3 * 1024 * 1024})

    assert executables() == []


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"silence_seconds": 0.2}, "said nothing for 0.2s"),
        ({"total_seconds": 0.2}, "took longer than 0.2s"),
    ],
)
async def test_a_server_that_is_slow_is_away(
    server: WebServer, get: Get, limits: dict[str, float], told: str
) -> None:
    released = threading.Event()

    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(PLUGIN[:4])
        handler.wfile.flush()
        released.wait(60)

    url = server.give("/files", Answer(headers={"Content-Length": "17"}, write=write))
    try:
        with pytest.raises(SourceAwayError, match=told):
            await get(url, sha256=SUM, limits=limits)
    finally:
        released.set()


async def test_a_compressed_body_is_refused(server: WebServer, get: Get) -> None:
    url = server.give("/files", Answer(body=PLUGIN, headers={"Content-Encoding": "gzip"}))

    with pytest.raises(ProgramSourceError, match="in the encoding 'gzip'"):
        await get(url, sha256=SUM)


class Changing:
    """Gives a file that may change, and says whether it has."""

    def __init__(self) -> None:
        self.body = PLUGIN

    def __call__(self, question: Question) -> Answer:
        etag = f'"{hashlib.sha256(self.body).hexdigest()}"'
        if question.headers.get("If-None-Match") == etag:
            return Answer(status=304)
        return Answer(body=self.body, headers={"ETag": etag})


async def test_a_source_without_a_checksum_is_asked_for_news(server: WebServer, get: Get) -> None:
    changing = Changing()
    url = server.give("/files", changing)
    first = await get(url)
    same = await get(url)
    changing.body = OTHER
    kept = await get(url, ask=False)
    new = await get(url)

    assert first == same == kept
    assert new.path.read_bytes() == OTHER
    assert len(server.asked) == 3
    assert server.questions[1].headers["If-None-Match"] == f'"{SUM}"'


@pytest.mark.parametrize("how", ["away", "gone"])
async def test_a_source_that_gave_it_before_may_be_away(
    server: WebServer, get: Get, how: str
) -> None:
    url = server.give("/files", Answer(body=PLUGIN))
    first = await get(url)
    if how == "away":
        server.stop()
    else:
        server.give("/files", Answer(status=404))

    assert await get(url) == first
