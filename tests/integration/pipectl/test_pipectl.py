# SPDX-License-Identifier: Apache-2.0
"""pipectl as people use it: the program, against a real control plane."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipecd_test_support.chosen_store import add_store_flags
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.pipedservice import service_pb2_grpc as pipedservice_grpc
from pipecd_wire.rpc import call, connect

BIN = Path(sys.executable).parent
LIMIT = 60
LISTENING = "pipecd server listening on "

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that points pipectl at a running control plane."""
    folder = tmp_path_factory.mktemp("server")
    log = folder / "log"
    data = folder / "data"
    serve = [str(BIN / "pipecd"), "server", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*serve, *add_store_flags(data)],
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        limit = time.monotonic() + LIMIT
        while LISTENING not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.02)  # between looks at another process's output
        address = log.read_text().partition(LISTENING)[2].splitlines()[0]
        yield {
            "PIPECTL_ADDRESS": address,
            "PIPECTL_API_KEY_FILE": str(folder / "data" / "admin.key"),
            "PIPECTL_INSECURE": "1",
        }
    finally:
        process.terminate()
        process.wait(timeout=LIMIT)


@pytest.fixture
def pipectl(server: dict[str, str]) -> Run:
    def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [BIN / "pipectl", *arguments],
            env={**os.environ, **server, **environment},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    return run


def test_a_registered_piped_is_listed_without_its_key(pipectl: Run) -> None:
    made = json.loads(pipectl("piped", "register", "--name", "listed").stdout)

    listed = pipectl("piped", "list")

    assert made["id"] in listed.stdout
    assert made["key"] not in listed.stdout


def test_the_plugins_of_an_agent_of_another_make_are_listed(
    pipectl: Run, server: dict[str, str]
) -> None:
    """It tells which it has when it starts, and never how they are."""
    for name, meta in {
        "of v1": pipedservice.ReportPipedMetaRequest(plugins=[Piped.Plugin(name="kubernetes")]),
        "of v0": pipedservice.ReportPipedMetaRequest(
            platform_providers=[Piped.PlatformProvider(name="cluster", type="KUBERNETES")]
        ),
    }.items():
        made = json.loads(pipectl("piped", "register", "--name", name, "-o", "json").stdout)
        asyncio.run(report_meta(server["PIPECTL_ADDRESS"], made["id"], made["key"], meta))

    lines = pipectl("piped", "list", "-o", "table").stdout.splitlines()

    (new,) = [line for line in lines if "of v1" in line]
    (old,) = [line for line in lines if "of v0" in line]
    assert new.endswith("kubernetes")
    assert old.endswith("cluster")


async def report_meta(
    address: str, piped_id: str, key: str, meta: pipedservice.ReportPipedMetaRequest
) -> None:
    token = [("authorization", f"PIPED-TOKEN default,{piped_id},{key}")]
    async with connect(address, metadata=lambda: token) as channel:
        await call(pipedservice_grpc.PipedServiceStub(channel).ReportPipedMeta, meta)


def test_a_person_is_told_where_the_key_goes(pipectl: Run) -> None:
    shown = pipectl("piped", "register", "--name", "shown", "--output", "table")

    assert "pipedKeyData: " in shown.stdout
    assert "not shown again" in shown.stdout


def test_a_missing_deployment_exits_4(pipectl: Run) -> None:
    done = pipectl("deployment", "get", "--deployment-id", "nope")

    assert done.returncode == 4
    assert "NOT_FOUND" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_key_says_what_to_check(pipectl: Run, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("some.thing")

    done = pipectl("application", "list", PIPECTL_API_KEY_FILE=str(tmp_path / "key"))

    assert done.returncode == 4
    assert "--api-key" in done.stderr


def test_an_address_where_nobody_listens_exits_5(pipectl: Run) -> None:
    done = pipectl("application", "list", PIPECTL_ADDRESS="127.0.0.1:1")

    assert done.returncode == 5
    assert "127.0.0.1:1: nothing listens there" in done.stderr


def test_an_application_needs_a_repository_its_piped_has_reported(pipectl: Run) -> None:
    made = json.loads(pipectl("piped", "register", "--name", "empty").stdout)

    done = pipectl(
        *("application", "add", "--app-name", "a", "--piped-id", made["id"]),
        *("--repo-id", "unknown", "--app-dir", "some/folder"),
    )

    assert done.returncode == 4
    assert "unknown" in done.stderr


def test_an_invalid_request_names_field_and_rule(pipectl: Run) -> None:
    made = json.loads(pipectl("piped", "register", "--name", "strict").stdout)

    done = pipectl(
        *("application", "add", "--app-name", "", "--piped-id", made["id"]),
        *("--repo-id", "r", "--app-dir", "folder"),
    )

    assert done.returncode == 2
    assert "invalid request: name" in done.stderr


def test_every_command_has_help(pipectl: Run) -> None:
    for group in ("application", "deployment", "piped"):
        shown = pipectl(group, "--help")
        commands = shown.stdout.partition("Commands:")[2].split("\n")
        for line in commands:
            if name := line.strip().split(" ")[0]:
                done = pipectl(group, name, "--help")
                assert done.returncode == 0
                assert "--address" in done.stdout
