# SPDX-License-Identifier: Apache-2.0
"""A rollback begins when nothing of what it undoes lives, whoever has died. Real programs.

The script takes a while to clean up after it was asked to end: whoever does not wait for that is
seen in the order of what both have written.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_test_support.piped_site import PipedSite, ServerProcess, SiteClient
from pipecd_wire.model import deployment_pb2 as pb

LIMIT = 60
TIMEOUT_SECONDS = 8.0
"""Of a stage; starting piped must take less, also on a busy machine."""
LEASE, TAKE_OVER = 4.0, 9.0
PLUGIN = Path(sys.executable).parent / "pipecd-plugin-scriptrun"


def script(record: Path, **options: str) -> dict[str, Any]:
    """One that does not end by itself."""
    run = (
        f"trap 'echo cleaning; sleep 0.5; echo cleaned >> {record}; exit 9' TERM\n"
        f"echo began >> {record}; echo running\nwhile :; do sleep 0.05; done\n"
    )
    return {
        "name": "SCRIPT_RUN",
        **options,
        "with": {"run": run, "onRollback": f"echo undone >> {record}"},
    }


async def until(holds: Callable[[], bool], site: PipedSite) -> None:
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110 - another process makes it true
                await asyncio.sleep(0.02)


async def killed(site: PipedSite) -> None:
    os.kill(site.pid, signal.SIGKILL)
    await site.ended()


async def begun(site: PipedSite, client: SiteClient, **options: str) -> str:
    """Deploy, and wait until the script runs; the deployment's id."""
    commit = site.commit_application("web", [script(site.record, **options)])
    deployment_id: str = await client.deploy("web", commit)
    await until(lambda: site.records() == ["began"], site)
    return deployment_id


async def test_a_cancel_that_piped_finds_at_its_start_waits_for_the_script(
    site: PipedSite, client: SiteClient
) -> None:
    site.configure("scriptrun")
    site.start()
    deployment_id = await begun(site, client)
    await killed(site)
    await client.cancel(deployment_id)

    site.start()
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert ended.stages[0].status == pb.STAGE_CANCELLED
    assert site.records() == ["began", "cleaned", "undone"]
    lines = await client.log(ended, ended.stages[0])
    assert [line for line in lines if line in {"running", "cleaning"}] == ["running", "cleaning"]


async def test_time_that_is_over_when_piped_starts_waits_for_the_script(
    site: PipedSite, client: SiteClient
) -> None:
    site.configure("scriptrun")
    site.start()
    deployment_id = await begun(site, client, timeout=f"{TIMEOUT_SECONDS:g}s")
    began = time.monotonic()
    await killed(site)
    while time.monotonic() < began + TIMEOUT_SECONDS + 1:  # noqa: ASYNC110 - real time counts
        await asyncio.sleep(0.05)

    site.start()
    ended = await client.completed(deployment_id)

    assert "SCRIPT_RUN took longer than" in ended.stages[0].status_reason
    assert site.records() == ["began", "cleaned", "undone"]


async def test_a_plugin_that_cannot_start_again_leaves_no_script(
    site: PipedSite, client: SiteClient
) -> None:
    """Its stage fails, and with it the deployment; nobody but piped is left to end the script."""
    broken = site.folder / "broken"
    plugin = site.folder / "plugin"
    plugin.write_text(f'#!/bin/sh\n[ -e {broken} ] && exit 1\nexec {PLUGIN} "$@"\n')
    plugin.chmod(0o755)
    site.configure({"name": "scriptrun", "url": f"file://{plugin}", "port": pick_port()})
    site.start()
    deployment_id = await begun(site, client)
    await killed(site)
    broken.touch()

    site.start()
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert site.records() == ["began", "cleaned"]


async def test_a_plugin_that_is_not_configured_any_more_leaves_no_script(
    site: PipedSite, client: SiteClient
) -> None:
    site.configure("scriptrun")
    site.start()
    deployment_id = await begun(site, client)
    await killed(site)

    site.configure("wait")
    site.start()
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert site.records() == ["began", "cleaned"]


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


async def test_an_instance_that_comes_back_ends_what_another_has_gone_on_with(
    server_with: Callable[..., ServerProcess],
    site_of: Callable[[ServerProcess], PipedSite],
    twin_of: Callable[[PipedSite], PipedSite],
) -> None:
    """The other one could not know of the script: it lives on this machine alone."""
    server = server_with("--lease-time", str(LEASE), "--take-over-after", str(TAKE_OVER))
    site = site_of(server)
    site.configure("scriptrun")
    site.start()
    async with site.client() as client:
        deployment_id = await begun(site, client)
        await killed(site)
        twin = twin_of(site)
        twin.start()
        ended = await client.completed(deployment_id)
        assert ended.status == pb.DEPLOYMENT_FAILURE
        # Both instances are on one machine here, so that the twin finds the script by its token.
        await until(lambda: "cleaned" in site.records(), site)

        # One that was begun meanwhile on a folder that nobody works on is ended as well.
        record = site.data / "scripts" / "of-an-earlier-piped" / "s1-0.0"
        record.mkdir(parents=True)
        (record / "intent").write_text("a-token-of-nobody")
        site.start()
        await until((record / "stopped").exists, site)
