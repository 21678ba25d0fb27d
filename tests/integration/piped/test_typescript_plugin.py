# SPDX-License-Identifier: Apache-2.0
"""The example plugin in TypeScript: built as its README says, judged by the kit, run by a piped."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, PluginProcess, start_plugin
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.plugin.deploymentapi.api_pb2 import (
    ExecuteStageRequest,
    FetchDefinedStagesRequest,
)
from pipecd_wire.plugin.deploymentapi.api_pb2_grpc import DeploymentServiceStub
from pipecd_wire.rpc import CallError, call, connect, stream

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
EXAMPLE = ROOT / "examples" / "02-plugin-in-typescript"
NODE = 20

# One build for all of it, whichever worker takes it.
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("typescript")]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's one file, built in a copy of the checkout's two folders that it needs."""
    if reason := lacking():
        pytest.skip(reason)
    checkout = tmp_path_factory.mktemp("checkout")
    (checkout / "proto").symlink_to(ROOT / "proto")
    folder = checkout / "examples" / EXAMPLE.name
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    fetched = run(["npm", "ci", "--prefer-offline"], folder)
    if fetched.returncode and "network" in fetched.stderr:
        pytest.skip("the registry of npm cannot be reached")
    assert fetched.returncode == 0, fetched.stderr
    built = run(["npm", "run", "build"], folder)
    assert built.returncode == 0, built.stdout + built.stderr
    # Away from its folder: one file is all that an agent gets.
    alone = tmp_path_factory.mktemp("alone") / "hello-ts"
    shutil.move(folder / "dist" / "hello-ts", alone)
    shutil.rmtree(folder)
    return alone


def lacking() -> str:
    """What is missing on this machine to build it; empty when nothing is."""
    for name in ("node", "npm"):
        if shutil.which(name) is None:
            return f"{name} is not installed"
    version = subprocess.run(
        ["node", "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < NODE:
        return f"node {version} is older than {NODE}"
    return ""


def run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.mark.parametrize("agent", ["ours", "go"])
def test_it_keeps_the_promises_of_a_plugin(program: Path, agent: str) -> None:
    way = ["--as-go-agent"] if agent == "go" else []
    profile = str(EXAMPLE / "conformance.yaml")
    judge = [str(BIN / "pipectl"), "plugin", "test", *way, "--output", "json"]

    done = run([*judge, "--profile", profile, "--", str(program)], program.parent)

    assert done.stderr == ""
    cases = json.loads(done.stdout)["cases"]
    assert [each for each in cases if each["outcome"] == "BROKEN"] == []
    assert sum(each["outcome"] == "HOLDS" for each in cases) >= 20
    assert done.returncode == 0


async def test_asked_to_stop_it_leaves_the_stage_and_its_log_to_the_next_process(
    program: Path,
) -> None:
    async with FakePiped(managed=False) as piped:
        # piped, or what is behind it, may be away when the stage begins.
        piped.refuse("PutStageMetadata", "UNAVAILABLE", "UNAVAILABLE")
        async with (
            start_plugin(piped, [program], name="hello-ts", mode=LaunchMode.COMMAND_LINE) as plugin,
            asyncio.TaskGroup() as tasks,
        ):
            begun = tasks.create_task(status_of(plugin, {"seconds": 600}))
            await piped.wait_until(lambda: piped.log("stage-0").lines)
            plugin.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                code = await plugin.process.wait()
                answer = await begun
            left = piped.log("stage-0")
            kept, sealed = set(left.blocks) == left.durable, left.sealed
        async with start_plugin(
            piped, [program], name="hello-ts", mode=LaunchMode.COMMAND_LINE
        ) as plugin:
            async with asyncio.timeout(30):
                # So little has long passed since the beginning that was kept.
                then = await status_of(plugin, {"seconds": 0.01})

    assert code == 0
    assert answer == "UNAVAILABLE: plugin is stopping"
    assert kept, "a Go control plane keeps what came with a checkpoint"
    assert not sealed
    assert then == "STAGE_SUCCESS"
    assert piped.calls["PutStageMetadata"] == 3, "twice refused, once taken, never again"
    assert piped.log("stage-0").sealed
    assert piped.wrong_calls == []


@pytest.mark.parametrize("proof", [[], [("pipecd-piped-token", "guessed")]])
async def test_it_answers_only_the_piped_that_started_it(
    program: Path, proof: list[tuple[str, str]]
) -> None:
    async with (
        FakePiped() as piped,
        start_plugin(piped, [program], name="hello-ts", mode=LaunchMode.COMMAND_LINE) as plugin,
        connect(f"localhost:{plugin.port}", metadata=lambda: proof) as channel,
    ):
        stranger = DeploymentServiceStub(channel)
        with pytest.raises(CallError, match="UNAUTHENTICATED: only piped may call this plugin"):
            await call(stranger.FetchDefinedStages, FetchDefinedStagesRequest())
        with pytest.raises(CallError, match="UNAUTHENTICATED: only piped may call this plugin"):
            await call(stranger.ExecuteStage, ExecuteStageRequest())
        served = await status_of(plugin, {"seconds": 0.01})

    assert served == "STAGE_SUCCESS"


async def status_of(plugin: PluginProcess, options: dict[str, Any]) -> str:
    """How a stage ended, or how its call did."""
    try:
        return pb.StageStatus.Name((await plugin.execute("HELLO_TS", options)).status)
    except CallError as error:
        return f"{error.status}: {error.message}"


def test_its_lock_file_names_no_registry() -> None:
    packages = json.loads((EXAMPLE / "package-lock.json").read_text())["packages"]

    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert all("integrity" in package for name, package in packages.items() if name)


@pytest.fixture
def port(site: PipedSite, program: Path) -> int:
    """A piped that runs the plugin; where it serves."""
    chosen = pick_port()
    site.commit({"README": "an example"})
    site.configure({"name": "hello-ts", "url": f"file://{program}", "port": chosen})
    site.start()
    return chosen


async def lines_seen(
    client: SiteClient, deployment_id: str, stage: pb.PipelineStage, count: int
) -> None:
    """Follow the log of a stage until so many lines are there."""
    request = own.FollowStageLogRequest(deployment_id=deployment_id, stage_id=stage.id)
    async for part in stream(client.deployments.FollowStageLog, request):
        count -= len(part.blocks)
        if count <= 0:
            return
    raise AssertionError("the log ended without them")


def kill(port: int) -> int:
    """Kill the plugin that serves on a port; answers how many processes that were."""
    killed = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                arguments = (entry / "cmdline").read_text().split("\0")
                if "start" in arguments and any(f'"port":{port}' in each for each in arguments):
                    os.kill(int(entry.name), signal.SIGKILL)
                    killed += 1
    return killed


async def test_a_stage_goes_on_where_it_was_when_its_plugin_is_killed(
    site: PipedSite, client: SiteClient, port: int
) -> None:
    commit = site.commit_application("shop", [{"name": "HELLO_TS", "with": {"seconds": 6}}])
    deployment_id = await client.deploy("shop", commit)
    stage = await client.stage_running(deployment_id, 0)

    with site.explained():
        await lines_seen(client, deployment_id, stage, 2)
        killed = kill(port)
    ended = await client.completed(deployment_id)
    log = await client.log(ended, stage)

    assert killed == 1
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    *waits, last = log
    left = [int(line.removesuffix(" of 6 seconds to go")) for line in waits]
    assert left == sorted(left, reverse=True), "a second beginning would count down once more"
    assert last == "Hello from TypeScript, shop"
    assert ended.stages[0].metadata["startTime"]


async def test_a_cancelled_stage_ends_and_says_so_in_its_log(
    site: PipedSite, client: SiteClient, port: int
) -> None:
    commit = site.commit_application("shop", [{"name": "HELLO_TS", "with": {"seconds": 600}}])
    deployment_id = await client.deploy("shop", commit)
    stage = await client.stage_running(deployment_id, 0)
    with site.explained():
        await lines_seen(client, deployment_id, stage, 1)

    await client.cancel(deployment_id)
    ended = await client.completed(deployment_id)
    log = await client.log(ended, stage)

    assert ended.status == pb.DEPLOYMENT_CANCELLED, ended.status_reason
    assert ended.stages[0].status == pb.STAGE_CANCELLED
    assert log[-1] == "cancelled"


async def test_wrong_options_fail_the_planning_with_the_plugins_sentence(
    site: PipedSite, client: SiteClient, port: int
) -> None:
    commit = site.commit_application("shop", [{"name": "HELLO_TS", "with": {"seconds": "soon"}}])

    ended = await client.completed(await client.deploy("shop", commit))

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "'seconds' must be a number from 0 to 3600" in ended.status_reason
    assert list(ended.stages) == []
