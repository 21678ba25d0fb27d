# SPDX-License-Identifier: Apache-2.0
"""One instance of a piped is at work at a time, whoever dies, stands still or cannot be reached."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipecd_test_support.piped_site import PipedSite, ServerProcess, SiteClient
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import call

LIMIT = 60

LEASE = 4.0
TAKE_OVER = 9.0
SHORT = ("--lease-time", str(LEASE), "--take-over-after", str(TAKE_OVER))

APPROVAL = {"name": "WAIT_APPROVAL", "with": {}}


def script(record: Path, name: str, then: str = "true") -> dict[str, Any]:
    """A script that writes down that it began, that it ended, and that it was undone."""
    text = f"echo {name} began >> {record}\n{then}\necho {name} ended >> {record}\n"
    undo = f"echo {name} undone >> {record}\n"
    return {"name": "SCRIPT_RUN", "with": {"run": text, "onRollback": undo}}


def waits_for(gate: Path) -> str:
    return f"while [ ! -e {gate} ]; do sleep 0.05; done"


def told(site: PipedSite, event: str, **more: object) -> bool:
    return any({"event": event, **more}.items() <= each.items() for each in site.events())


async def until(holds: Callable[[], bool], site: PipedSite) -> None:
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110 - another process makes it true
                await asyncio.sleep(0.02)


async def passed(moment: float, seconds: float) -> None:
    """Wait until so much real time has passed: the lease's clock is the machine's."""
    while time.monotonic() < moment + seconds:  # noqa: ASYNC110 - nothing else says so
        await asyncio.sleep(0.05)


@pytest.fixture
def twin_of() -> Iterator[Callable[[PipedSite], PipedSite]]:
    """The same piped once more, with another data folder."""
    made: list[PipedSite] = []

    def make(site: PipedSite) -> PipedSite:
        made.append(site.twin())
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            each.close()


async def approve(client: SiteClient, deployment_id: str) -> None:
    await call(
        client.deployments.ApproveStage, own.ApproveStageRequest(deployment_id=deployment_id)
    )


async def test_of_two_instances_one_works_and_the_other_takes_over_from_a_goodbye(
    site: PipedSite, client: SiteClient, twin_of: Callable[[PipedSite], PipedSite]
) -> None:
    """At once, and also what was begun, although the times of the lease are long."""
    twin = twin_of(site)
    first = site.commit_application("first", [script(site.record, "first")])
    waiting = site.commit_application("waiting", [APPROVAL])
    site.configure("scriptrun", "waitapproval")
    site.start()
    await until(lambda: told(site, "lease.held"), site)
    twin.start()
    await until(lambda: told(twin, "lease.elsewhere"), twin)

    ended = await client.completed(await client.deploy("first", first))
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    begun = await client.deploy("waiting", waiting)
    await client.stage_running(begun, 0)
    assert not told(twin, "deployment.planned")

    assert await site.stop() == 0
    assert told(site, "lease.released")
    await until(lambda: told(twin, "lease.held"), twin)
    await approve(client, begun)
    ended = await client.completed(begun)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert site.records() == ["first began", "first ended"]
    assert told(twin, "deployment.finished", deployment=begun)


async def test_an_instance_that_waits_does_not_change_what_is_known_of_the_one_at_work(
    site: PipedSite, client: SiteClient, twin_of: Callable[[PipedSite], PipedSite]
) -> None:
    """Not while it waits; from a goodbye on it is the one at work, and offline after its own."""
    twin = twin_of(site)
    site.configure("wait")
    site.start()
    await until(lambda: told(site, "lease.held"), site)

    async def look() -> tuple[str, list[str]]:
        answer = await call(client.pipeds.ListPipeds, own.ListPipedsRequest())
        [mine] = [each.piped for each in answer.pipeds if each.piped.id == site.piped_id]
        return Piped.ConnectionStatus.Name(mine.status), [each.name for each in mine.plugins]

    async def wait_for(status: str, *plugins: str) -> None:
        with twin.explained():
            async with asyncio.timeout(LIMIT):
                while await look() != (status, list(plugins)):  # noqa: ASYNC110 - other processes
                    await asyncio.sleep(0.05)

    await wait_for("ONLINE", "wait")
    site.configure("waitapproval")  # its twin reads the file now
    twin.start()
    await until(lambda: told(twin, "lease.elsewhere"), twin)
    assert await look() == ("ONLINE", ["wait"])

    assert await site.stop() == 0
    await wait_for("ONLINE", "waitapproval")
    assert await twin.stop() == 0
    assert await look() == ("OFFLINE", ["waitapproval"]), "at once, without a wait"


async def test_an_instance_on_the_same_data_folder_has_the_lease_at_once(
    site: PipedSite, client: SiteClient
) -> None:
    gate = site.folder / "gate"
    commit = site.commit_application("web", [script(site.record, "first", waits_for(gate))])
    site.configure("scriptrun")
    site.start()
    deployment_id = await client.deploy("web", commit)
    await until(lambda: site.records() == ["first began"], site)

    os.kill(site.pid, signal.SIGKILL)
    await site.ended()
    gate.touch()
    site.start()
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    held = [event["epoch"] for event in site.events() if event["event"] == "lease.held"]
    assert held == [1, 2]
    assert not told(site, "lease.elsewhere")


async def test_after_a_death_another_instance_takes_new_deployments_first_and_begun_ones_later(
    server_with: Callable[..., ServerProcess],
    site_of: Callable[[ServerProcess], PipedSite],
    twin_of: Callable[[PipedSite], PipedSite],
) -> None:
    site = site_of(server_with(*SHORT))
    twin = twin_of(site)
    begun_commit = site.commit_application("begun", [APPROVAL])
    new_commit = site.commit_application("new", [script(site.record, "new")])
    site.configure("scriptrun", "waitapproval")
    site.start()
    async with site.client() as client:
        begun = await client.deploy("begun", begun_commit)
        await client.stage_running(begun, 0)
        twin.start()
        await until(lambda: told(twin, "lease.elsewhere"), twin)

        os.kill(site.pid, signal.SIGKILL)
        await site.ended()
        new = await client.deploy("new", new_commit)
        await approve(client, begun)
        with twin.explained():
            first = await client.completed(new)
            second = await client.completed(begun)

    assert first.status == pb.DEPLOYMENT_SUCCESS, first.status_reason
    assert second.status == pb.DEPLOYMENT_SUCCESS, second.status_reason
    ends = [each["deployment"] for each in twin.events() if each["event"] == "deployment.finished"]
    assert ends == [new, begun]
    assert site.records() == ["new began", "new ended"]


async def test_an_instance_that_stood_still_finds_itself_replaced_and_adds_nothing(
    server_with: Callable[..., ServerProcess],
    site_of: Callable[[ServerProcess], PipedSite],
    twin_of: Callable[[PipedSite], PipedSite],
) -> None:
    """Its reports are refused, its script is ended, and nothing of it starts a further stage."""
    site = site_of(server_with(*SHORT))
    twin = twin_of(site)
    gate = site.folder / "gate"
    stages = [script(site.record, "first", waits_for(gate)), script(site.record, "second")]
    commit = site.commit_application("web", stages)
    site.configure("scriptrun")
    site.start()
    async with site.client() as client:
        deployment_id = await client.deploy("web", commit)
        await until(lambda: site.records() == ["first began"], site)
        twin.start()
        await until(lambda: told(twin, "lease.elsewhere"), twin)

        site.signal(signal.SIGSTOP)
        try:
            with twin.explained():
                ended = await client.completed(deployment_id)
        finally:
            site.signal(signal.SIGCONT)
        await until(lambda: told(site, "lease.elsewhere"), site)
        await until(lambda: told(site, "deployment.left"), site)
        gate.touch()
        after = await client.until(deployment_id, lambda _: True)

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "interrupted" in ended.stages[0].status_reason
    assert after == ended
    assert site.records() == ["first began", "first undone"]
    assert not told(site, "deployment.finished")


async def test_past_the_lease_time_the_next_stage_waits_for_the_control_plane(
    server_with: Callable[..., ServerProcess], site_of: Callable[[ServerProcess], PipedSite]
) -> None:
    server = server_with("--lease-time", str(LEASE))
    site = site_of(server)
    gate = site.folder / "gate"
    stages = [script(site.record, "first", waits_for(gate)), script(site.record, "second")]
    commit = site.commit_application("web", stages)
    site.configure("scriptrun")
    site.start()
    async with site.client() as client:
        deployment_id = await client.deploy("web", commit)
        await until(lambda: site.records() == ["first began"], site)

    server.stop()
    await passed(time.monotonic(), LEASE)
    gate.touch()
    await until(lambda: told(site, "lease.stage_waits", rollback=False), site)
    assert site.records() == ["first began", "first ended"]

    server.start()
    async with site.client() as client:
        ended = await client.completed(deployment_id)
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert site.records() == ["first began", "first ended", "second began", "second ended"]


@pytest.mark.parametrize(
    ("away", "undone_meanwhile"),
    [
        pytest.param(LEASE, True, id="past the lease time it goes on"),
        pytest.param(TAKE_OVER, False, id="past the take-over time it waits"),
    ],
)
async def test_a_rollback_while_the_control_plane_is_away(
    server_with: Callable[..., ServerProcess],
    site_of: Callable[[ServerProcess], PipedSite],
    away: float,
    undone_meanwhile: bool,
) -> None:
    # Long after the lease: only the second case shall come near the take-over.
    take_over = TAKE_OVER if not undone_meanwhile else 600.0
    server = server_with("--lease-time", str(LEASE), "--take-over-after", str(take_over))
    site = site_of(server)
    gate = site.folder / "gate"
    began = site.folder / "began"
    text = f"touch {began}\n{waits_for(gate)}\nexit 3"
    failing = {"name": "SCRIPT_RUN", "with": {"run": text}}
    platform = {"name": "DUMMY_PRIMARY_ROLLOUT", "with": {"record": str(site.record)}}
    commit = site.commit_application("web", [platform, failing])
    done, undone = f"DUMMY_PRIMARY_ROLLOUT {commit}", f"DUMMY_ROLLBACK {commit}"
    site.configure("scriptrun", "dummy")
    site.start()
    async with site.client() as client:
        deployment_id = await client.deploy("web", commit)
        await until(began.exists, site)

    server.stop()
    await passed(time.monotonic(), away)
    gate.touch()
    if undone_meanwhile:
        await until(lambda: site.records() == [done, undone], site)
    else:
        await until(lambda: told(site, "lease.stage_waits", rollback=True), site)
        assert site.records() == [done]

    server.start()
    async with site.client() as client:
        ended = await client.completed(deployment_id)
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.status_reason.endswith("rolled back")
    assert site.records() == [done, undone]
