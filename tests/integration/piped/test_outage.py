# SPDX-License-Identifier: Apache-2.0
"""The control plane is away: what was begun goes on, and is told once it is back."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from pipecd_runtime.ports import pick_port
from pipecd_test_support.piped_site import PipedSite, ServerProcess
from pipecd_wire.model import deployment_pb2 as pb

LIMIT = 60


def script(name: str, end: str = "true", **more: str) -> dict[str, Any]:
    return {
        "name": "SCRIPT_RUN",
        "with": {"env": {"RECORD": more["record"]}, "run": f'echo {name} >> "$RECORD"\n{end}\n'}
        | {"onRollback": f'echo undo-{name} >> "$RECORD"'},
    }


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not holds():  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.02)


def readiness(port: int) -> dict[str, Any]:
    """What a probe is told, whether piped is ready or not."""
    page = f"http://127.0.0.1:{port}/readyz"
    try:
        with urllib.request.urlopen(page, timeout=LIMIT) as response:
            answer: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as refused:
        with refused:
            answer = json.load(refused)
    return answer


async def test_what_stops_piped_from_connecting_is_said_at_once_and_when_it_is_over(
    site_of: Callable[[ServerProcess], PipedSite], own_server: ServerProcess
) -> None:
    site, port = site_of(own_server), pick_port()
    site.configure("wait")
    own_server.stop()

    def said(event: str) -> list[dict[str, Any]]:
        return [line for line in site.events() if line["event"] == event]

    site.start("--admin-port", str(port))
    with site.explained():
        await until(lambda: bool(said("controlplane.unreachable")))
        [line] = said("controlplane.unreachable")
        assert line["address"] == own_server.address
        assert "connection refused" in line["reason"]
        [sentence] = [each for each in readiness(port)["notReady"] if "control plane" in each]
        assert f"{own_server.address} cannot be reached: nothing listens there" in sentence

        own_server.start()
        await until(lambda: bool(said("controlplane.back")))
        assert len(said("controlplane.unreachable")) == 1
        await until(lambda: bool(said("lease.held")))
        assert not [each for each in readiness(port)["notReady"] if "control plane" in each]


async def test_scripts_and_their_rollback_go_on_without_the_control_plane(
    site_of: Callable[[ServerProcess], PipedSite], own_server: ServerProcess
) -> None:
    site = site_of(own_server)
    site.configure("scriptrun")
    record, gate = str(site.record), site.folder / "gate"
    waits = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    commit = site.commit_application(
        "app",
        [
            script("one", waits, record=record),
            script("two", record=record),
            script("three", "exit 3", record=record),
        ],
    )
    site.start()
    async with site.client() as client:
        deployment_id = await client.deploy("app", commit)
        with site.explained():
            await until(lambda: site.records() == ["one"])
    own_server.stop()
    gate.touch()

    with site.explained():
        await until(lambda: "undo-three" in site.records())
    assert site.records() == ["one", "two", "three", "undo-one", "undo-two", "undo-three"]

    own_server.start()
    async with site.client() as client:
        ended = await client.completed(deployment_id)
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert [stage.status for stage in ended.stages if stage.rollback] == [pb.STAGE_SUCCESS] * 3
    assert site.records() == ["one", "two", "three", "undo-one", "undo-two", "undo-three"]


async def test_a_piped_that_dies_meanwhile_knows_what_was_begun(
    site_of: Callable[[ServerProcess], PipedSite], own_server: ServerProcess
) -> None:
    site = site_of(own_server)
    site.configure("scriptrun")
    record, gate, end = str(site.record), site.folder / "gate", site.folder / "end"
    commit = site.commit_application(
        "app",
        [
            script("one", f"while [ ! -e {gate} ]; do sleep 0.05; done", record=record),
            script("two", f"while [ ! -e {end} ]; do sleep 0.05; done", record=record),
            script("three", record=record),
        ],
    )
    site.start()
    async with site.client() as client:
        deployment_id = await client.deploy("app", commit)
        with site.explained():
            await until(lambda: site.records() == ["one"])
    own_server.stop()
    gate.touch()
    with site.explained():
        await until(lambda: site.records() == ["one", "two"])

    site.require_process().kill()
    site.require_process().wait(LIMIT)
    end.touch()
    own_server.start()
    site.start()

    async with site.client() as client:
        ended = await client.completed(deployment_id)
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert site.records() == ["one", "two", "three"]
