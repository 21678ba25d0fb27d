# SPDX-License-Identifier: Apache-2.0
"""Signing in at a server that answers whatever it likes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from pipecd_model.errors import (
    DeniedError,
    PipecdError,
    StateError,
    UnauthenticatedError,
    UnavailableError,
)
from pipecd_pipectl.addresses import parse_address
from pipecd_pipectl.signing_in import ShownCode, SignedIn, open_sign_in

BEGUN = {"device_code": "d", "user_code": "WDJB-MJHT", "expires_in": 600, "interval": 0}
DROP = (0, b"")
DONE = {"status": "done", "token": "s.x", "project": "p", "subject": "ada", "expires_at": 9}


@contextmanager
def answering(*answers: tuple[int, Any]) -> Iterator[tuple[str, list[str]]]:
    """A server that gives one answer after the other; yields its URL and the paths it was asked."""
    left = list(answers)
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked.append(self.path)
            status, answer = left.pop(0)
            if status == 0:
                self.close_connection = True
                return
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def sign_in(url: str, **options: str) -> tuple[SignedIn, ShownCode]:
    shown: list[ShownCode] = []
    with open_sign_in(parse_address(url), None) as client:
        done = client.sign_in_with_browser(shown.append, options.get("project", ""))
    return done, shown[0]


def use_password(url: str) -> SignedIn:
    with open_sign_in(parse_address(url), None) as client:
        return client.sign_in_with_password("p", "ada", "secret")


def test_it_asks_until_the_code_is_answered() -> None:
    with answering((200, BEGUN), (200, {"status": "pending"}), (200, DONE)) as (url, asked):
        done, shown = sign_in(url, project="shop")

    assert done == SignedIn(session="s.x", project="p", subject="ada", expires_at=9)
    assert shown == ShownCode(url=f"{url}/auth/terminal?project=shop", code="WDJB-MJHT", minutes=10)
    assert [path.rpartition("/")[2] for path in asked] == ["start", "poll", "poll"]


def test_a_control_plane_that_goes_away_for_a_moment_is_waited_for() -> None:
    """`drop` is a connection that ends without an answer, as that of a server that stops."""
    told: list[str] = []
    answers = [(200, BEGUN), DROP, DROP, (200, {"status": "pending"}), DROP, (200, DONE)]
    with answering(*answers) as (url, asked), open_sign_in(parse_address(url), None) as client:
        done = client.sign_in_with_browser(lambda _: None, "", warn=told.append)

    assert done.session == "s.x"
    assert len(asked) == len(answers)
    assert len(told) == 2, "once for each time that it was away"
    assert told[0].startswith(f"no connection to {url}: ")
    assert told[0].endswith("; waiting for it")


def test_a_control_plane_that_stays_away_is_the_reason_in_the_end() -> None:
    begun = {**BEGUN, "expires_in": 2}
    with (
        answering((200, begun), DROP, DROP, DROP) as (url, _asked),
        pytest.raises(UnavailableError, match="no connection to"),
    ):
        sign_in(url)


def test_a_refusal_ends_it() -> None:
    with (
        answering((200, BEGUN), (403, {"error": "refused", "hint": ""})) as (url, _asked),
        pytest.raises(DeniedError, match="refused"),
    ):
        sign_in(url)


def test_a_wrong_password_is_told_as_the_server_says() -> None:
    with (
        answering((401, {"error": "wrong password", "hint": "x"})) as (url, _asked),
        pytest.raises(UnauthenticatedError, match="wrong password"),
    ):
        use_password(url)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (404, b"Not Found"),
        (405, b"Method Not Allowed"),
        (200, b"<html>a console</html>"),
        (200, []),
        (500, {"oops": 1}),
        (302, b""),
    ],
)
def test_a_control_plane_that_cannot_do_it_says_so(status: int, answer: Any) -> None:
    with (
        answering((status, answer)) as (url, _asked),
        pytest.raises(StateError) as refused,
    ):
        use_password(url)

    assert "--api-key-file" in refused.value.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"token": "a b"},
        {"token": "x\r\ncookie: y"},
        {"token": ""},
        {"token": 7},
        {"token": "x" * 1000},
        {"expires_at": "soon"},
        {"expires_at": 2**70},
        {"subject": None},
    ],
)
def test_an_answer_that_is_none_is_not_kept(changes: dict[str, Any]) -> None:
    with (
        answering((200, {**DONE, **changes})) as (url, _asked),
        pytest.raises(PipecdError, match="cannot be read"),
    ):
        use_password(url)


def test_a_server_that_is_away_is_a_sentence() -> None:
    with answering() as (url, _asked):
        pass

    with pytest.raises(UnavailableError):
        use_password(url)
