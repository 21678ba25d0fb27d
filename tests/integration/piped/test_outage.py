# SPDX-License-Identifier: Apache-2.0
"""The control plane is away: what was begun goes on, and is told once it is back."""

import asyncio
from collections.abc import Callable
from typing import Any

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
