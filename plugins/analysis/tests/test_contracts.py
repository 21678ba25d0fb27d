# SPDX-License-Identifier: Apache-2.0
"""What each provider asks its system, and what it makes of the answer: contracts in files."""

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from pipecd_plugin_analysis.evaluation import Window
from pipecd_plugin_analysis.plugin import Analysis
from pipecd_plugin_analysis.provider.base import EvaluationError, NoDataError
from pipecd_plugin_analysis.provider.open import Providers

from pipecd_sdk import StageFailedError
from pipecd_sdk.testing import NOON, StageHarness
from pipecd_test_support.web_server import Answer, Question, WebServer

FOLDER = Path(__file__).with_name("contracts")
CASES = [
    pytest.param(case, id=f"{file.stem}: {case['name']}")
    for file in sorted(FOLDER.glob("*.yaml"))
    for case in yaml.safe_load(file.read_text())
]
WINDOW = Window(start=NOON - timedelta(minutes=5), end=NOON)
KEYS = ("apiKey", "hunter2", "api-key", "app-key", "NRAK-1", "Bearer abc", "a-token")


class ContractServer(WebServer):
    """Gives the answers of one case, whatever the path; tokens of Google beside."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__()
        self.contract = [each for each in (case.get("first_answers"), case["answers"]) if each]
        self.tokens: list[Question] = []
        self.asked_for: list[Question] = []

    def find(self, question: Question) -> Answer:
        if question.path == "/token":
            self.tokens.append(question)
            body = {"access_token": "a-token", "expires_in": 3600, "token_type": "Bearer"}
            return Answer(body=json.dumps(body).encode())
        self.asked_for.append(question)
        given = self.contract.pop(0) if len(self.contract) > 1 else self.contract[0]
        text = given["text"] if "text" in given else json.dumps(given["body"])
        headers = {"Content-Type": "application/json"}
        return Answer(status=given.get("status", 200), body=text.encode(), headers=headers)


@pytest.fixture(scope="module")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def fill(value: Any, url: str, folder: Path) -> Any:
    text = json.dumps(value).replace("$URL", url).replace("$TMP", str(folder))
    return json.loads(text)


def write_files(case: dict[str, Any], server: WebServer, folder: Path, key: str) -> None:
    for name, content in case.get("files", {}).items():
        (folder / name).write_text(content)
    account = {
        "type": "service_account",
        "project_id": "shop-project",
        "private_key_id": "1",
        "private_key": key,
        "client_email": "pipecd@shop-project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"{server.url}/token",
    }
    (folder / "account.json").write_text(json.dumps(account))


async def ask(case: dict[str, Any], providers: Providers) -> None:
    if case.get("logs"):
        logs = await providers.open_logs("it")
        lines = await logs.count_lines(case["query"], WINDOW, most=case.get("most", 0))
        assert lines.count == case["count"]
        assert list(lines.lines) == case.get("lines", [])
    else:
        metrics = await providers.open_metrics("it")
        found = await metrics.query(case["query"], WINDOW)
        assert list(found.values) == case["values"]
        assert list(found.warnings) == case.get("warnings", [])


def check_question(wanted: dict[str, Any], question: Question) -> None:
    if "method" in wanted:
        assert question.method == wanted["method"]
    if "path" in wanted:
        assert question.path == wanted["path"]
    for name, value in wanted.get("query", {}).items():
        assert question.query[name] == [value], name
    for name, value in wanted.get("headers", {}).items():
        assert question.headers[name] == value, name
    if "authorization" in wanted:
        assert question.headers["Authorization"].startswith(wanted["authorization"])
    if "json" in wanted:
        assert json.loads(question.body) == wanted["json"]


@pytest.mark.parametrize("case", CASES)
async def test_a_provider_keeps_its_contract(
    case: dict[str, Any], tmp_path: Path, private_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with ContractServer(case) as server:
        write_files(case, server, tmp_path, private_key)
        entry = {"name": "it", **fill(case["provider"], server.url, tmp_path)}
        harness = StageHarness(Analysis(), config={"analysisProviders": [entry]})
        async with Providers(harness.plugin.config) as providers:
            if expected := case.get("no_data") or case.get("error"):
                with pytest.raises(EvaluationError) as caught:
                    await ask(case, providers)
                assert expected in str(caught.value)
                assert isinstance(caught.value, NoDataError) is ("no_data" in case)
                assert not [key for key in KEYS if key in str(caught.value)]
            else:
                await ask(case, providers)
        if "asks" in case:
            check_question(fill(case["asks"], server.url, tmp_path), server.asked_for[-1])
        if case["provider"]["type"] == "STACKDRIVER":
            assert len(server.tokens) == 1, "a token is used until it ends"


async def test_a_secret_that_cannot_be_read_is_told_by_its_file_and_nothing_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "key").write_text("two\nlines")
    encoded = base64.b64encode(b"\xff\xfe").decode()
    for config, says in (
        ({"apiKeyFile": str(tmp_path / "none")}, "No such file or directory"),
        ({"apiKeyFile": str(tmp_path / "key")}, "more than one line"),
        ({"apiKeyData": encoded}, "is no text"),
    ):
        entry = {"name": "it", "type": "NEW_RELIC", "config": {"accountID": 1, **config}}
        harness = StageHarness(Analysis(), config={"analysisProviders": [entry]})
        async with Providers(harness.plugin.config) as providers:
            with pytest.raises(StageFailedError) as caught:
                await providers.open_metrics("it")
        assert says in caught.value.reason()
        assert "lines" not in caught.value.reason().replace("more than one line", "")
