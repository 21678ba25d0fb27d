# SPDX-License-Identifier: Apache-2.0
"""piped stops, dies and starts again, plugins die: what was begun goes on, nothing runs twice."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pipecd_test_support.piped_site import PipedSite, ServerProcess, SiteClient
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import call

LIMIT = 60

TIMEOUT = 8.0
"""Seconds of a stage; starting piped must take less, also on a busy machine."""


def script(record: Path, name: str, then: str = "true", undo: bool = True) -> dict[str, Any]:
    """A script that writes down that it began and that it ended."""
    options = {"run": f"echo {name} began >> {record}\n{then}\necho {name} ended >> {record}\n"}
    if undo:
        options["onRollback"] = f"echo {name} undone >> {record}\n"
    return {"name": "SCRIPT_RUN", "with": options}


async def until(holds: Callable[[], bool], site: PipedSite) -> None:
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110 - another process makes it true
                await asyncio.sleep(0.02)


def processes(parent: int) -> dict[int, str]:
    """All that a process has started, and what those have: pids with their command lines."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                about = (entry / "stat").read_text().rpartition(")")[2].split()
                if about[0] != "Z":
                    parents[int(entry.name)] = int(about[1])
    found: dict[int, str] = {}
    new = {parent}
    while new:
        new = {pid for pid, above in parents.items() if above in new}
        for pid in new:
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return found


def alive(pids: dict[int, str]) -> set[int]:
    """Those that live still; a zombie does not."""
    living = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                living.add(pid)
    return living


@pytest.fixture
def gate(site: PipedSite) -> Path:
    """A script waits for this file."""
    return site.folder / "gate"


def open_gate(gate: Path) -> None:
    gate.touch()


def waits_for(gate: Path) -> str:
    return f"while [ ! -e {gate} ]; do sleep 0.05; done"


async def test_a_stopping_piped_waits_for_a_script_and_the_next_one_goes_on(
    site: PipedSite, client: SiteClient, gate: Path
) -> None:
    stages = [script(site.record, "first", waits_for(gate)), script(site.record, "second")]
    commit = site.commit_application("web", stages)
    site.configure("scriptrun")
    site.start("--grace-period", "50s")
    deployment_id = await client.deploy("web", commit)
    await until(lambda: site.records() == ["first began"], site)

    site.signal(signal.SIGTERM)
    await until(lambda: any(event["event"] == "piped.stopping" for event in site.events()), site)
    open_gate(gate)
    assert await site.ended() == 0

    assert site.records() == ["first began", "first ended"]
    left = await client.until(deployment_id, lambda it: bool(it.stages))
    assert left.status == pb.DEPLOYMENT_RUNNING
    assert [stage.status for stage in left.stages[:2]] == [
        pb.STAGE_SUCCESS,
        pb.STAGE_NOT_STARTED_YET,
    ]

    site.start()
    ended = await client.completed(deployment_id)
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert site.records() == ["first began", "first ended", "second began", "second ended"]


async def test_a_second_signal_ends_a_script_and_the_next_piped_calls_it_interrupted(
    site: PipedSite, client: SiteClient
) -> None:
    """Nobody knows how far it came: it never runs again, and is rolled back."""
    commit = site.commit_application("web", [script(site.record, "first", "sleep 600")])
    site.configure("scriptrun")
    site.start("--grace-period", "10m")
    deployment_id = await client.deploy("web", commit)
    await until(lambda: site.records() == ["first began"], site)
    await until(lambda: any("sleep 600" in each for each in processes(site.pid).values()), site)
    below = processes(site.pid)

    site.signal(signal.SIGINT)
    await until(lambda: any(event["event"] == "piped.stopping" for event in site.events()), site)
    site.signal(signal.SIGINT)
    assert await site.ended() == 0
    await until(lambda: not alive(below), site)

    site.start()
    ended = await client.completed(deployment_id)
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "interrupted" in ended.stages[0].status_reason
    assert site.records() == ["first began", "first undone"]


async def test_a_killed_piped_takes_its_plugins_along_and_the_next_one_goes_on(
    site: PipedSite, client: SiteClient
) -> None:
    stages = [
        {"name": "WAIT", "with": {"duration": "3s"}},
        script(site.record, "second"),
    ]
    commit = site.commit_application("web", stages)
    site.configure("wait", "scriptrun")
    site.start()
    deployment_id = await client.deploy("web", commit)
    await client.until(deployment_id, lambda it: "startTime" in _metadata(it))
    below = processes(site.pid)
    assert len(below) >= 2

    os.kill(site.pid, signal.SIGKILL)
    await site.ended()
    await until(lambda: not alive(below), site)
    before = _metadata(await client.until(deployment_id, lambda it: True))

    site.start()
    ended = await client.completed(deployment_id)
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert _metadata(ended)["startTime"] == before["startTime"], "the same wait, not a new one"
    assert site.records() == ["second began", "second ended"]


def _metadata(deployment: pb.Deployment) -> dict[str, str]:
    return dict(deployment.stages[0].metadata) if deployment.stages else {}


async def test_a_killed_piped_does_not_hurt_a_script_and_the_next_one_follows_it(
    site: PipedSite, client: SiteClient, gate: Path
) -> None:
    """It goes on without piped, and never runs twice."""
    stages = [script(site.record, "first", waits_for(gate)), script(site.record, "second")]
    commit = site.commit_application("web", stages)
    site.configure("scriptrun")
    site.start()
    deployment_id = await client.deploy("web", commit)
    await until(lambda: site.records() == ["first began"], site)

    os.kill(site.pid, signal.SIGKILL)
    await site.ended()
    site.start()
    await client.plugins_are(scriptrun="READY")
    open_gate(gate)
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert site.records() == ["first began", "first ended", "second began", "second ended"]


async def test_a_plugin_that_dies_in_a_stage_is_restarted_and_continues_it(
    site: PipedSite, client: SiteClient
) -> None:
    commit = site.commit_application("web", [{"name": "WAIT", "with": {"duration": "3s"}}])
    site.configure("wait")
    site.start()
    deployment_id = await client.deploy("web", commit)
    await client.until(deployment_id, lambda it: "startTime" in _metadata(it))

    [plugin] = [pid for pid, command in processes(site.pid).items() if "pipecd-plugin" in command]
    os.kill(plugin, signal.SIGKILL)
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert any(event["event"] == "stage.plugin_lost" for event in site.events())


async def test_a_script_whose_plugin_dies_goes_on_and_is_followed_by_the_next(
    site: PipedSite, client: SiteClient, gate: Path
) -> None:
    commit = site.commit_application("web", [script(site.record, "first", waits_for(gate))])
    site.configure("scriptrun")
    site.start()
    deployment_id = await client.deploy("web", commit)
    await until(lambda: site.records() == ["first began"], site)
    below = processes(site.pid)
    [plugin] = [pid for pid, command in below.items() if "pipecd-plugin-scriptrun" in command]

    os.kill(plugin, signal.SIGKILL)
    await until(lambda: any(event["event"] == "stage.plugin_lost" for event in site.events()), site)
    open_gate(gate)
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert site.records() == ["first began", "first ended"]


async def test_an_approval_reaches_a_stage_that_was_left_and_continued(
    site: PipedSite, client: SiteClient
) -> None:
    commit = site.commit_application("web", [{"name": "WAIT_APPROVAL", "with": {}}])
    site.configure("waitapproval")
    site.start()
    deployment_id = await client.deploy("web", commit)
    await client.stage_running(deployment_id, 0)
    assert await site.stop() == 0
    left = await client.stage_running(deployment_id, 0)
    assert left.status == pb.STAGE_RUNNING

    site.start()
    request = own.ApproveStageRequest(deployment_id=deployment_id)
    await call(client.deployments.ApproveStage, request)
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason


async def test_a_graceful_stop_changes_no_status(site: PipedSite, client: SiteClient) -> None:
    """Neither of a wait, nor of an approval, nor of their deployments; and it takes no 30 seconds.

    Upstream cancels and rolls back (W7).
    """
    stages = [script(site.record, "first"), {"name": "WAIT", "with": {"duration": "10m"}}]
    waits = site.commit_application("waits", stages)
    asks = site.commit_application("asks", [{"name": "WAIT_APPROVAL", "with": {}}])
    site.configure("wait", "waitapproval", "scriptrun")
    site.start()
    ids = [await client.deploy("waits", waits), await client.deploy("asks", asks)]
    await client.stage_running(ids[0], 1)
    await client.stage_running(ids[1], 0)

    assert await site.stop() == 0

    for deployment_id, stages_then in zip(
        ids, ([pb.STAGE_SUCCESS, pb.STAGE_RUNNING], [pb.STAGE_RUNNING]), strict=True
    ):
        left = await client.until(deployment_id, lambda _: True)
        assert left.status == pb.DEPLOYMENT_RUNNING
        assert [each.status for each in left.stages if not each.rollback] == stages_then
        assert all(each.status == pb.STAGE_NOT_STARTED_YET for each in left.stages if each.rollback)
    events = [event["event"] for event in site.events()]
    assert events.count("deployment.left") == 2
    assert "plugin.killed" not in events
    assert site.records() == ["first began", "first ended"]


async def test_the_time_of_a_stage_goes_on_while_piped_is_dead(
    site: PipedSite, client: SiteClient
) -> None:
    stages = [{"name": "WAIT_APPROVAL", "timeout": f"{TIMEOUT:g}s", "with": {}}]
    commit = site.commit_application("web", stages)
    site.configure("waitapproval")
    site.start()
    deployment_id = await client.deploy("web", commit)
    await client.stage_running(deployment_id, 0)
    began = time.monotonic()
    os.kill(site.pid, signal.SIGKILL)
    await site.ended()
    while time.monotonic() < began + TIMEOUT + 1:  # noqa: ASYNC110 - real time is what counts
        await asyncio.sleep(0.05)

    site.start()
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "WAIT_APPROVAL took longer than" in ended.stages[0].status_reason
    times = {each["event"]: datetime.fromisoformat(each["time"]) for each in site.events()}
    assert (times["stage.finished"] - times["lease.held"]).total_seconds() < TIMEOUT, (
        "a clock that begins anew would need the whole time again"
    )


async def test_a_rollback_goes_on_where_a_killed_piped_has_left_it(
    site: PipedSite, client: SiteClient, gate: Path
) -> None:
    """What is undone is not undone twice, and the script that undoes goes on meanwhile."""
    slow = script(site.record, "second")
    slow["with"]["onRollback"] = (
        f"echo second undoing >> {site.record}\n{waits_for(gate)}\n"
        f"echo second undone >> {site.record}\n"
    )
    stages = [script(site.record, "first"), slow, script(site.record, "third", "exit 3")]
    commit = site.commit_application("web", stages)
    site.configure("scriptrun")
    site.start()
    deployment_id = await client.deploy("web", commit)
    await until(lambda: "second undoing" in site.records(), site)

    os.kill(site.pid, signal.SIGKILL)
    await site.ended()
    left = await client.until(deployment_id, lambda _: True)
    assert left.status == pb.DEPLOYMENT_ROLLING_BACK
    site.start()
    await client.plugins_are(scriptrun="READY")
    open_gate(gate)
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.status_reason.endswith("; rolled back")
    undone = ["first undone", "second undoing", "second undone", "third undone"]
    assert site.records()[-4:] == undone
    assert len(site.records()) == 9


async def test_a_cancel_that_was_asked_for_while_piped_was_away_is_carried_out(
    site: PipedSite, client: SiteClient
) -> None:
    stages = [
        script(site.record, "first"),
        {"name": "WAIT_APPROVAL", "with": {}},
    ]
    commit = site.commit_application("web", stages)
    site.configure("waitapproval", "scriptrun")
    site.start()
    deployment_id = await client.deploy("web", commit)
    await client.stage_running(deployment_id, 1)
    assert await site.stop() == 0

    await client.cancel(deployment_id)
    site.start()
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert site.records() == ["first began", "first ended", "first undone"]


async def test_a_deployment_goes_on_while_the_control_plane_is_away(
    own_server: ServerProcess, site_of: Callable[[ServerProcess], PipedSite]
) -> None:
    """Its reports are kept, and arrive in order when it is back."""
    site = site_of(own_server)
    gate = site.folder / "gate"
    stages = [
        script(site.record, "first", waits_for(gate)),
        {"name": "DUMMY_PRIMARY_ROLLOUT", "with": {"record": str(site.record)}},
    ]
    commit = site.commit_application("web", stages)
    site.configure("scriptrun", "dummy")
    site.start()
    async with site.client() as client:
        deployment_id = await client.deploy("web", commit)
        await until(lambda: site.records() == ["first began"], site)

    own_server.stop()
    open_gate(gate)
    await until(lambda: f"DUMMY_PRIMARY_ROLLOUT {commit}" in site.records(), site)
    own_server.start()

    async with site.client() as client:
        ended = await client.completed(deployment_id)
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert [stage.status for stage in ended.stages[:2]] == [pb.STAGE_SUCCESS] * 2
