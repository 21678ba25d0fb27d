# SPDX-License-Identifier: Apache-2.0
"""Credential plugins: real programs, run when needed and not more often."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_kubernetes.client import Connection, CredentialsError, load_connection

from pipecd_sdk.kit import yaml

SECRET = "s3cr3t-value"  # noqa: S105 - of nothing
V1 = "client.authentication.k8s.io/v1"
BETA = "client.authentication.k8s.io/v1beta1"


def write_program(folder: Path, script: str) -> Path:
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\necho run >> '{folder}/runs'\n{script}\n")
    path.chmod(0o755)
    return path


def write_answer(folder: Path, version: str = V1, **status: str) -> None:
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    (folder / "answer").write_text(json.dumps(answer))


def count_runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def format_time(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


async def load(folder: Path, *, cluster: Any = None, **settings: Any) -> Connection:
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://h", **(cluster or {})}}],
        "users": [
            {
                "name": "u",
                "user": {"exec": {"apiVersion": V1, "command": "./plugin", **settings}},
            }
        ],
    }
    (folder / "config").write_text(yaml.dump(config))
    return await load_connection(kubeconfig=str(folder / "config"))


@pytest.mark.parametrize("version", [V1, BETA])
async def test_a_program_gives_a_token(version: str, tmp_path: Path) -> None:
    """Once for all who ask, and kept until it runs out."""
    write_program(tmp_path, f"cat '{tmp_path}/answer'")
    write_answer(tmp_path, version, token=SECRET, expirationTimestamp=format_time(3600))
    connection = await load(tmp_path, apiVersion=version)
    found = await asyncio.gather(*(connection.credentials.fetch() for _ in range(10)))
    assert {each.authorization for each in found} == {f"Bearer {SECRET}"}
    assert count_runs(tmp_path) == 1
    assert SECRET not in repr(connection.credentials) + repr(found[0])


async def test_a_program_is_told_about_the_cluster_and_never_asks(tmp_path: Path) -> None:
    """`env` and `args` reach it; `interactive` is false."""
    write_program(
        tmp_path,
        f'cd \'{tmp_path}\'; echo "$KUBERNETES_EXEC_INFO" > info; echo "$1 $REGION" > args; '
        "cat > stdin; cat answer",
    )
    write_answer(tmp_path, token=SECRET)
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    connection = await load(
        tmp_path,
        cluster={
            "tls-server-name": "kubernetes",
            "certificate-authority-data": "Y2E=",
            "extensions": [extension],
        },
        args=["--token"],
        env=[{"name": "REGION", "value": "eu"}],
        provideClusterInfo=True,
        interactiveMode="IfAvailable",
    )
    await connection.credentials.fetch()
    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://h",
                "tls-server-name": "kubernetes",
                "certificate-authority-data": "Y2E=",
                "config": {"audience": "x"},
            },
        },
    }
    assert (tmp_path / "args").read_text() == "--token eu\n"
    assert (tmp_path / "stdin").read_text() == ""


async def test_what_has_run_out_is_fetched_anew(tmp_path: Path) -> None:
    """Also when the server refuses it before; but not once for each caller."""
    write_program(tmp_path, f"cat '{tmp_path}/answer'")
    write_answer(tmp_path, token=SECRET)
    credentials = (await load(tmp_path)).credentials
    first = await credentials.fetch()
    write_answer(tmp_path, token=f"{SECRET}-2", expirationTimestamp=format_time(3600))
    assert await credentials.fetch() is first, "it has no end: it is kept until it is refused"
    for _ in range(3):
        credentials.forget(first)
    second = await credentials.fetch()
    credentials.forget(first)  # somebody whose request was slow
    assert await credentials.fetch() is second
    assert second.authorization == f"Bearer {SECRET}-2"
    assert count_runs(tmp_path) == 2


async def test_a_failure_shows_what_the_program_said(tmp_path: Path) -> None:
    """Its errors, cleaned; never its output, which may hold the credential."""
    write_program(tmp_path, f"echo {SECRET}; printf 'no \\033[2Jsession\\nlog in' >&2; exit 3")
    credentials = (await load(tmp_path)).credentials
    with pytest.raises(CredentialsError) as caught:
        await credentials.fetch()
    said = caught.value.reason()
    assert r"ended with exit code 3: no \x1b[2Jsession log in" in said
    assert "users[0].user.exec" in said
    assert SECRET not in said


async def test_a_program_that_is_not_there_says_how_to_get_it(tmp_path: Path) -> None:
    credentials = (
        await load(tmp_path, command="no-such-plugin", installHint="brew install it")
    ).credentials
    with pytest.raises(CredentialsError) as caught:
        await credentials.fetch()
    assert "'no-such-plugin' could not be started" in str(caught.value)
    assert caught.value.hint == "brew install it"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (f"{SECRET}", "is no ExecCredential"),
        (json.dumps({"kind": "Other", "apiVersion": V1}), "is a 'Other' of"),
        (json.dumps({"kind": "ExecCredential", "apiVersion": BETA}), "not an ExecCredential of"),
        (json.dumps({"kind": "ExecCredential", "apiVersion": V1}), "neither a token nor"),
        (
            json.dumps(
                {
                    "kind": "ExecCredential",
                    "apiVersion": V1,
                    "status": {"clientCertificateData": SECRET},
                }
            ),
            "a certificate without a key",
        ),
        (
            json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": {"token": [SECRET]}}),
            "is no ExecCredential",
        ),
    ],
)
async def test_an_answer_of_another_shape_is_a_sentence(
    answer: str, said: str, tmp_path: Path
) -> None:
    write_program(tmp_path, f"cat '{tmp_path}/answer'")
    (tmp_path / "answer").write_text(answer)
    credentials = (await load(tmp_path)).credentials
    with pytest.raises(CredentialsError) as caught:
        await credentials.fetch()
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)
