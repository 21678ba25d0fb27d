# SPDX-License-Identifier: Apache-2.0
"""The executable `pipecd-plugin-analysis` as piped starts it."""

import asyncio
import json
import subprocess
import sys

import pytest

from pipecd_sdk import CommandKind
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, executable, start_plugin
from pipecd_test_support.web_server import Answer, WebServer
from pipecd_wire.model import deployment_pb2

COMMAND = [executable("pipecd-plugin-analysis")]
ENTRY = {"config": {"allowedHosts": ["127.0.0.1"]}}


@pytest.mark.parametrize(
    ("mode", "managed"),
    [(LaunchMode.DESCRIPTOR, True), (LaunchMode.COMMAND_LINE, False)],
    ids=["ours", "go"],
)
async def test_a_command_skips_the_stage(mode: LaunchMode, managed: bool, web: WebServer) -> None:
    url = web.give("/up", Answer())
    options = {"duration": "1h", "https": [{"url": url, "interval": "100ms"}]}
    async with (
        FakePiped(managed=managed) as piped,
        start_plugin(piped, COMMAND, name="analysis", mode=mode, entry=ENTRY) as plugin,
        asyncio.TaskGroup() as tasks,
    ):
        running = tasks.create_task(plugin.execute("ANALYSIS", options, stage_id="s1"))
        await piped.wait_until(lambda: "it answers 200" in piped.log("s1").text)

        await piped.send(CommandKind.SKIP, "s1", by="alice")
        async with asyncio.timeout(30):
            answer = await running

    assert answer.status == deployment_pb2.STAGE_SKIPPED
    kept = piped.stage_metadata["s1"]
    assert kept["pipecd/stage-display-metadata"] == "Skipped by alice"
    assert json.loads(kept["analysis/http-0"])["evaluations"][0]["verdict"] == "EXPECTED"


@pytest.mark.parametrize("lost", ["GetApplicationSharedObject", "PutApplicationSharedObject"])
async def test_a_good_analysis_succeeds_although_its_result_cannot_be_kept(
    lost: str, web: WebServer
) -> None:
    """As when the control plane is away: what is good must not be rolled back for it."""
    url = web.give("/up", Answer())
    options = {"duration": "200ms", "https": [{"url": url, "interval": "100ms"}]}
    async with (
        FakePiped() as piped,
        start_plugin(piped, COMMAND, name="analysis", entry=ENTRY) as plugin,
    ):
        piped.refuse(lost, *["INTERNAL"] * 20)
        answer = await plugin.execute("ANALYSIS", options, stage_id="s1")

    assert answer.status == deployment_pb2.STAGE_SUCCESS
    assert "WARNING: the result could not be kept" in piped.log("s1").text


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    program = (
        "import sys, pipecd_plugin_analysis.plugin\n"
        "print(sorted({'httpx2', 'boto3', 'botocore', 'google.auth', 'scipy', 'numpy'}"
        " & sys.modules.keys()))"
    )

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert found.stdout == "[]\n"
