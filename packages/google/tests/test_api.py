# SPDX-License-Identifier: Apache-2.0
"""Calls of an API: which are made again, how often, and what people read of those that fail."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pipecd_google.api import CallPolicy, GoogleApi, RepeatedCall, make_client
from pipecd_google.errors import (
    ChangedResourceError,
    GoogleError,
    MissingResourceError,
    OverloadedError,
    SignInError,
)
from pipecd_google.sign_in import GoogleSignIn
from pipecd_test_support.google_cloud.fake_cloud_run import make_error
from pipecd_test_support.google_cloud.key_files import write_key_file
from pipecd_test_support.web_server import Answer, Question, WebServer

OK = Answer(200, b'{"ok": true}')
BUSY = make_error(429, "RESOURCE_EXHAUSTED", "too many", **{"Retry-After": "7"})
AWAY = make_error(503, "UNAVAILABLE", "away")


class ScriptedServer(WebServer):
    """Gives tokens, and the next answer of a list to every other question."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[Answer] = []
        self.tokens = 0
        self.calls: list[Question] = []

    def find(self, question: Question) -> Answer:
        if question.path == "/token":
            self.tokens += 1
            token = {"access_token": f"token-{self.tokens}", "expires_in": 3600}
            return Answer(200, json.dumps(token).encode())
        self.calls.append(question)
        return self.script.pop(0)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as made:
        yield made


class Pauses:
    """What a call slept, and told."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.told: list[RepeatedCall] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def api(server: ScriptedServer, pauses: Pauses, tmp_path: Path) -> AsyncIterator[GoogleApi]:
    key = write_key_file(tmp_path / "key.json", f"{server.url}/token")
    async with make_client() as client:
        yield GoogleApi(
            address=server.url,
            sign_in=GoogleSignIn(str(key)),
            client=client,
            policy=CallPolicy(most_attempts=4, sleep=pauses.sleep),
            rights_hint="ask for the role",
            on_repeat=pauses.told.append,
        )


async def test_a_throttled_call_waits_as_long_as_it_is_asked_to(
    api: GoogleApi, server: ScriptedServer, pauses: Pauses
) -> None:
    server.script = [BUSY, AWAY, OK]

    assert await api.get("/x", "read x") == {"ok": True}

    assert pauses.seconds[0] == 7
    assert [each.reason for each in pauses.told] == ["too many", "away"]


async def test_a_write_that_may_have_been_done_is_not_repeated_unless_it_may_be(
    api: GoogleApi, server: ScriptedServer
) -> None:
    server.script = [BUSY, AWAY]

    with pytest.raises(OverloadedError, match="away"):
        await api.call("POST", "/x", "make x", body={}, is_repeatable=False)

    assert len(server.calls) == 2, "the 429 was repeated: nothing had been done"


async def test_there_is_an_end_to_retries(api: GoogleApi, server: ScriptedServer) -> None:
    server.script = [AWAY] * 10

    with pytest.raises(OverloadedError):
        await api.get("/x", "read x")

    assert len(server.calls) == 4


async def test_a_pause_that_would_take_too_long_is_not_begun(
    api: GoogleApi, server: ScriptedServer, pauses: Pauses
) -> None:
    server.script = [make_error(429, "RESOURCE_EXHAUSTED", "later", **{"Retry-After": "600"})]

    with pytest.raises(OverloadedError):
        await api.get("/x", "read x")

    assert pauses.seconds == []


async def test_a_token_that_ran_out_is_renewed_once(api: GoogleApi, server: ScriptedServer) -> None:
    expired = make_error(401, "UNAUTHENTICATED", "expired")
    server.script = [expired, OK, expired, expired]

    assert await api.get("/x", "read x") == {"ok": True}
    used = [each.headers["Authorization"] for each in server.calls]
    with pytest.raises(SignInError):
        await api.get("/x", "read x")

    assert used == ["Bearer token-1", "Bearer token-2"]


async def test_something_new_is_waited_for_and_something_missing_is_not(
    api: GoogleApi, server: ScriptedServer
) -> None:
    missing = make_error(404, "NOT_FOUND", "none")
    server.script = [missing, missing, OK, missing]

    assert await api.get("/x", "read x", awaited=True) == {"ok": True}
    with pytest.raises(MissingResourceError):
        await api.get("/x", "read x")


async def test_refusals_are_sentences_that_say_what_to_do(
    api: GoogleApi, server: ScriptedServer
) -> None:
    server.script = [
        make_error(403, "PERMISSION_DENIED", "no\x1b[2Jright"),
        make_error(409, "ABORTED", "changed"),
        Answer(400, b"<html>"),
    ]

    with pytest.raises(GoogleError) as denied:
        await api.get("/x", "read x")
    with pytest.raises(ChangedResourceError):
        await api.get("/x", "read x")
    with pytest.raises(GoogleError, match="<html>"):
        await api.get("/x", "read x")

    assert denied.value.reason() == (
        r"cannot read x: no\x1b[2Jright (403 PERMISSION_DENIED) (ask for the role)"
    )


@pytest.mark.parametrize("body", [b"[]", b"{", b"\xff", b"nothing"])
async def test_an_answer_that_is_no_object_is_refused(
    api: GoogleApi, server: ScriptedServer, body: bytes
) -> None:
    server.script = [Answer(200, body)]

    with pytest.raises(GoogleError, match="the answer is no JSON object"):
        await api.get("/x", "read x")


async def test_no_connection_is_told_with_the_address(
    api: GoogleApi, server: ScriptedServer, pauses: Pauses
) -> None:
    await api.sign_in.get_token()
    server.stop()

    with pytest.raises(OverloadedError, match=r"cannot read x: http://127.0.0.1:\d+: "):
        await api.get("/x", "read x")

    assert len(pauses.seconds) == 3


async def test_a_redirect_is_not_followed_with_the_token(
    api: GoogleApi, server: ScriptedServer
) -> None:
    server.script = [Answer(302, b"", {"Location": "http://127.0.0.1:1/"})]

    with pytest.raises(GoogleError, match="302"):
        await api.get("/x", "read x")
