# SPDX-License-Identifier: Apache-2.0
"""Released versions: plain ones only, newest first, and asked for rarely."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pipecd_controlplane.usecases.releases import (
    FRESH_SECONDS,
    PipedRelease,
    Releases,
    breaking_notes,
    parse_releases,
)
from pipecd_model.errors import UnavailableError

LISTED = [
    {"tag_name": "v0.9.0", "body": "older"},
    {"tag_name": "v0.10.0", "body": "# Notes\n## Breaking Changes\n* gone\n## Others\n* x"},
    {"tag_name": "v0.11.0-rc1", "body": ""},
    {"tag_name": "v0.11.0", "body": None, "prerelease": True},
    {"tag_name": "v0.12.0", "draft": True},
    {"tag_name": "pipedv1/v1.0.0"},
    "nonsense",
]


class Host:
    """A server that lists releases, or does not."""

    def __init__(self) -> None:
        self.asked = 0
        self.body: Any = LISTED
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        body = json.dumps(self.body).encode()
        status = "200 OK" if self.body is not None else "403 Forbidden"
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        writer.close()


@pytest.fixture
async def host(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = Host()
    async with await asyncio.start_server(made.answer, "127.0.0.1", 0) as server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        yield made


def test_drafts_previews_and_other_names_are_left_out() -> None:
    assert [each.version for each in parse_releases(LISTED)] == ["v0.10.0", "v0.9.0"]
    assert parse_releases({"message": "rate limit"}) == []


async def test_the_list_is_asked_for_once_an_hour_at_most(host: Host) -> None:
    now = 0.0
    releases = Releases(host.url, clock=lambda: now)
    for _ in range(3):
        assert len(await releases.list_all()) == 2
    assert host.asked == 1

    now = FRESH_SECONDS
    host.body = None
    assert len(await releases.list_all()) == 2
    assert host.asked == 2


async def test_a_list_that_was_never_had_is_an_error_worth_a_retry(host: Host) -> None:
    host.body = None
    with pytest.raises(UnavailableError):
        await Releases(host.url).list_all()


def test_notes_are_of_what_breaks_after_the_oldest_version() -> None:
    releases = parse_releases(LISTED)

    assert breaking_notes(releases, ["v0.9.5", "v0.10.0"]) == "## v0.10.0\n\n* gone"
    assert breaking_notes(releases, ["v0.10.0"]) == ""
    assert breaking_notes(releases, ["unknown"]) == ""
    assert breaking_notes([PipedRelease(version="v1.0.0", notes="")], ["v0.1.0"]) == ""
