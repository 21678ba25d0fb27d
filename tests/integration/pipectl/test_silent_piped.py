# SPDX-License-Identifier: Apache-2.0
"""A plan preview with pipeds that do not answer: they are named, and the rest is shown."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipecd_test_support.pipectl_site import PipectlSite
from pipecd_test_support.piped_site import ServerProcess
from pipecd_wire.pipedservice import service_pb2 as agent_pb

PREVIEW = (
    *("plan-preview", "--repo-remote-url", "/example", "--base-branch", "main"),
    *("--head-branch", "feature", "--head-commit", "0" * 40, "--timeout", "2s"),
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.stop()


async def test_one_silent_piped_does_not_hide_what_others_say(
    server: ServerProcess, tmp_path: Path
) -> None:
    stopped, silent = PipectlSite(server=server), PipectlSite(server=server)
    await stopped.register_piped("stopped")
    await silent.register_piped("silent")
    # It has just reported, so it counts as online, and never takes the command.
    await silent.report("ReportStat", agent_pb.ReportStatRequest(piped_stats=b"up 1\n"))
    out = tmp_path / "out.json"

    done = silent.run(*PREVIEW, "--out", str(out), code=1)

    document = json.loads(out.read_text())
    reasons = {each["PipedName"]: each["Reason"] for each in document["FailurePipeds"]}
    assert set(reasons) == {"stopped", "silent"}
    assert reasons["silent"] == "no answer within 2s"
    assert "failed: piped stopped" in done.stdout
    assert "failed: piped silent" in done.stdout


async def test_when_nobody_answers_the_wait_times_out(server: ServerProcess) -> None:
    silent = PipectlSite(server=server)
    await silent.register_piped("silent")
    await silent.report("ReportStat", agent_pb.ReportStatRequest(piped_stats=b"up 1\n"))

    done = silent.run(*PREVIEW, code=3)

    assert "no answer within 2s (see `pipectl piped list`)" in done.stderr


async def test_a_stopped_piped_without_applications_can_be_deleted(server: ServerProcess) -> None:
    site = PipectlSite(server=server)
    await site.register_piped("old")

    dry = site.run("piped", "delete", "old", "--dry-run").stdout
    done = site.run("piped", "delete", "old").stdout
    left = json.loads(site.run("piped", "list").stdout)

    assert "would delete the piped old" in dry
    assert done == "deleted piped old\n"
    assert "pipeds" not in left
