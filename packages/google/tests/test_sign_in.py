# SPDX-License-Identifier: Apache-2.0
"""Sign-in: key files, workload identity federation, default credentials, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipecd_google.errors import SignInError
from pipecd_google.sign_in import SCOPE, GoogleSignIn
from pipecd_test_support.google_cloud.key_files import (
    write_federation_file,
    write_json,
    write_key_file,
)
from pipecd_test_support.web_server import Answer, Question, WebServer


class TokenServer(WebServer):
    """Gives numbered tokens, and remembers what for."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[str] = []
        self.answer: Answer | None = None

    def find(self, question: Question) -> Answer:
        self.forms.append(question.body.decode())
        if self.answer is not None:
            return self.answer
        token = {
            "access_token": f"token-{len(self.forms)}",
            "expires_in": 3600,
            "token_type": "Bearer",
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        }
        return Answer(200, json.dumps(token).encode())


@pytest.fixture
def server() -> Any:
    with TokenServer() as made:
        yield made


async def test_a_key_file_gives_a_token_that_is_kept(server: TokenServer, tmp_path: Path) -> None:
    file = write_key_file(tmp_path / "key.json", f"{server.url}/token")
    sign_in = GoogleSignIn(str(file))

    tokens = [await sign_in.get_token(), await sign_in.get_token()]

    assert tokens == ["token-1", "token-1"]
    assert "assertion=" in server.forms[0]


async def test_a_refused_token_is_fetched_anew(server: TokenServer, tmp_path: Path) -> None:
    sign_in = GoogleSignIn(str(write_key_file(tmp_path / "key.json", f"{server.url}/token")))
    first = await sign_in.get_token()

    assert await sign_in.get_token(refused=first) == "token-2"


async def test_workload_identity_federation_exchanges_its_token(
    server: TokenServer, tmp_path: Path
) -> None:
    file = write_federation_file(tmp_path / "fed.json", f"{server.url}/sts", "their-token")

    assert await GoogleSignIn(str(file)).get_token() == "token-1"

    assert "subject_token=their-token" in server.forms[0]
    assert SCOPE.replace(":", "%3A").replace("/", "%2F") in server.forms[0]


@pytest.mark.parametrize("place", ["variable", "gcloud"])
async def test_default_credentials_are_found_where_googles_tools_look(
    server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    file = tmp_path / "application_default_credentials.json"
    write_key_file(file, f"{server.url}/token")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    if place == "variable":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    else:
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))

    assert await GoogleSignIn().get_token() == "token-1"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("{", "no JSON object"),
        ('{"type": "wizard"}', "of an unknown type: 'wizard'"),
        ('{"type": "service_account", "private_key": "hunter2"}', "cannot be used"),
        (
            '{"type": "external_account", "credential_source": {"executable": {"command": "rm"}}}',
            "name a program to run, which is not supported",
        ),
    ],
)
async def test_what_is_wrong_with_credentials_is_told_without_them(
    tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "key.json"
    if content is not None:
        file.write_text(content)

    with pytest.raises(SignInError) as caught:
        await GoogleSignIn(str(file)).get_token()

    assert said in str(caught.value)
    assert "hunter2" not in caught.value.reason()


async def test_a_refused_key_says_what_the_endpoint_said(
    server: TokenServer, tmp_path: Path
) -> None:
    refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
    server.answer = Answer(400, json.dumps(refusal).encode())
    file = write_key_file(tmp_path / "key.json", f"{server.url}/token")

    with pytest.raises(SignInError, match="invalid_grant: Invalid JWT Signature"):
        await GoogleSignIn(str(file)).get_token()


async def test_a_replaced_file_is_read_again_after_a_refusal(
    server: TokenServer, tmp_path: Path
) -> None:
    file = write_federation_file(tmp_path / "key.json", f"{server.url}/sts", "their-token")
    sign_in = GoogleSignIn(str(file))
    first = await sign_in.get_token()
    write_json(file, {"type": "wizard"})

    with pytest.raises(SignInError, match="unknown type"):
        await sign_in.get_token(refused=first)


def test_the_library_is_loaded_at_the_first_token_only() -> None:
    program = (
        "import sys, pipecd_google.sign_in as s; s.GoogleSignIn('x');"
        "print([m for m in sys.modules if m.startswith('google.auth')])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "[]"
