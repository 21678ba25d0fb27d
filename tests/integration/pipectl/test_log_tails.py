# SPDX-License-Identifier: Apache-2.0
"""`pipectl deployment logs --tail`: the last lines of a log of any length."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.message import Message

from pipecd_test_support.pipectl_site import PipectlSite, make_stage
from pipecd_test_support.piped_site import BIN, ServerProcess
from pipecd_test_support.stub_server import StubServer, serving_stub
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.logblock_pb2 import LogBlock

LONG = "c0220895-d670-424d-8717-45b5782629a5"
FOLLOWED = "c0220895-d670-424d-8717-45b5782629a6"
LINES = 6000
WIDTH = 1600
"""Of a line: all of them are more than is shown at once."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipectlSite]:
    server = ServerProcess(tmp_path_factory.mktemp("server"))
    server.start()
    try:
        yield asyncio.run(build(PipectlSite(server=server)))
    finally:
        server.stop()


async def build(site: PipectlSite) -> PipectlSite:
    await site.register_piped("agent")
    stages = [
        make_stage("SCRIPT_RUN", 0, status="SUCCESS", id="s1"),
        make_stage("WAIT_APPROVAL", 1, status="RUNNING", id="s2"),
        make_stage("ROLLBACK", 2, id="s3"),
    ]
    await site.add_application("long").deploy(id=LONG, age_seconds=90, stages=stages)
    await write_long_log(site, LONG, "s1")
    await site.write_log(LONG, "s2", ["waits"])
    return site


async def write_long_log(site: PipectlSite, deployment_id: str, stage_id: str) -> None:
    for first in range(1, LINES + 1, 500):
        lines = [f"{number} {'x' * WIDTH}" for number in range(first, first + 500)]
        await site.write_log(deployment_id, stage_id, lines, first_index=first)


def read(site: PipectlSite, *flags: str) -> list[str]:
    """Returns the first word of each line."""
    shown = site.run("deployment", "logs", "long", *flags).stdout.splitlines()
    return [line.partition(" | ")[2].partition(" ")[0] for line in shown]


def test_the_last_lines_of_a_long_log_are_those_at_its_end(site: PipectlSite) -> None:
    assert read(site, "--tail", "3") == ["5999", "6000", "waits"]
    assert read(site, "--tail", "1", "--stage", "1") == ["6000"]
    assert read(site, "--tail", "0") == []
    assert read(site, "--tail", "2", "--since", "1h") == ["6000", "waits"]


def test_more_of_them_than_one_answer_holds(site: PipectlSite) -> None:
    wanted = list(map(str, range(1001, LINES + 1)))
    assert read(site, "--tail", "5001", "--stage", "1") == ["1000", *wanted]
    assert len(read(site, "--tail", "100000")) == LINES + 1


def test_as_data_each_stage_has_its_last_lines(site: PipectlSite) -> None:
    shown = site.run("deployment", "logs", "long", "--tail", "2", "-o", "json").stdout

    logs = json.loads(shown)["stage_logs"]
    assert list(logs) == ["s1", "s2"]
    assert [each["log"].partition(" ")[0] for each in logs["s1"]["blocks"]] == ["5999", "6000"]
    assert [each["log"] for each in logs["s2"]["blocks"]] == ["waits"]


def test_a_long_log_is_followed_from_its_end(site: PipectlSite) -> None:
    stage = make_stage("SCRIPT_RUN", 0, status="RUNNING", id="s")
    asyncio.run(
        site.add_application("followed").deploy(id=FOLLOWED, age_seconds=90, stages=[stage])
    )
    asyncio.run(write_long_log(site, FOLLOWED, "s"))

    assert follow(site, "--tail", "2", index=LINES + 1) == ["5999", "6000", "6001"]
    assert follow(site, "--tail", "0", index=LINES + 2) == ["6002"]


def follow(site: PipectlSite, *flags: str, index: int) -> list[str]:
    """Returns the first words of what was printed up to a line that is written meanwhile."""
    process = subprocess.Popen(
        [BIN / "pipectl", "deployment", "logs", "followed", "--follow", *flags],
        env={**os.environ, **site.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    words: list[str] = []
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.readline()  # what it waits for, once the stored lines are printed
        asyncio.run(site.write_log(FOLLOWED, "s", [str(index)], first_index=index))
        for line in process.stdout:
            words.append(line.partition(" | ")[2].split()[0])
            if words[-1] == str(index):
                break
    finally:
        process.kill()
        process.communicate()
    return words


def run_at(server: StubServer, *flags: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [BIN / "pipectl", "deployment", "logs", "--deployment-id", "d", *flags],
        env={
            **os.environ,
            "PIPECTL_API_KEY": "key",
            "PIPECTL_INSECURE": "1",
            "PIPECTL_ADDRESS": server.address,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def make_deployment() -> api.GetDeploymentResponse:
    stage = make_stage("SCRIPT_RUN", 0, status="SUCCESS", id="s")
    return api.GetDeploymentResponse(deployment=pb.Deployment(id="d", stages=[stage]))


def test_a_control_plane_that_cannot_read_from_the_end_gives_the_whole_log() -> None:
    """An older one, or upstream's."""
    blocks = [LogBlock(index=number, log=f"line {number}") for number in (1, 2, 3)]
    answers: dict[str, list[Message]] = {
        "GetDeployment": [make_deployment()],
        "ListStageLogs": [api.ListStageLogsResponse(stage_logs={"s": api.StageLog(blocks=blocks)})],
    }
    with serving_stub(StubServer(answers=answers)) as server:
        done = run_at(server, "--tail", "2")

    shown = [line.partition(" | ")[2] for line in done.stdout.splitlines()]
    assert shown == ["line 2", "line 3"]


def test_a_log_that_is_lost_is_said_in_its_place() -> None:
    server = StubServer(
        answers={"GetDeployment": [make_deployment()]},
        statuses={"ReadStageLog": grpc.StatusCode.DATA_LOSS},
    )
    with serving_stub(server):
        done = run_at(server, "--tail", "2")

    assert done.stdout.endswith(" 1 SCRIPT_RUN | as the test says\n")
