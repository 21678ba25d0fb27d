# SPDX-License-Identifier: Apache-2.0
"""Plugins and the control plane come and go while a deployment is planned: it waits for them."""

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from pipecd_runtime.ports import pick_port
from pipecd_test_support.piped_site import PipedSite, ServerProcess, SiteClient
from pipecd_wire.model import deployment_pb2 as pb

LIMIT = 60

PLUGIN = """\
#!{python}
import asyncio
import os
from pathlib import Path

from pipecd_sdk import DeploymentPlugin, StageConfig, StageContext, Version, serve, stage


class Slow(DeploymentPlugin):
    needs_targets = False

    async def versions(self, ctx):
        with open({record!r}, "a") as record:
            record.write(f"{{os.getpid()}}\\n")
        while not Path({gate!r}).exists():
            await asyncio.sleep(0.02)
        return [Version(name="slow", version="1")]

    @stage("SLOW_SYNC", quick_sync=True, needs_files=False)
    async def sync(self, ctx: StageContext, config: StageConfig) -> None:
        ctx.log.info("done")


serve(Slow(), version="1.0.0")
"""


def executable(site: PipedSite, text: str) -> Path:
    file: Path = site.folder / "plugin"
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


async def until(holds: Callable[[], bool], site: PipedSite) -> None:
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110 - another process makes it true
                await asyncio.sleep(0.02)


async def test_a_plugin_that_dies_while_a_deployment_is_planned_is_waited_for(
    site: PipedSite, client: SiteClient
) -> None:
    gate = site.folder / "gate"
    plugin = executable(
        site, PLUGIN.format(python=sys.executable, record=str(site.record), gate=str(gate))
    )
    commit = site.commit_application("web", [{"name": "SLOW_SYNC"}])
    site.configure({"name": "slow", "url": f"file://{plugin}", "port": pick_port()})
    site.start()
    deployment_id = await client.deploy("web", commit)
    await until(lambda: len(site.records()) == 1, site)

    os.kill(int(site.records()[0]), signal.SIGKILL)
    await until(lambda: len(site.records()) == 2, site)
    gate.touch()
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert [version.version for version in ended.versions] == ["1"]
    assert any(event["event"] == "plan.plugin_lost" for event in site.events())


async def test_a_control_plane_that_goes_away_while_a_deployment_is_planned_is_waited_for(
    own_server: ServerProcess, site_of: Callable[[ServerProcess], PipedSite]
) -> None:
    site = site_of(own_server)
    gate = site.folder / "gate"
    plugin = executable(
        site, PLUGIN.format(python=sys.executable, record=str(site.record), gate=str(gate))
    )
    commit = site.commit_application("web", [{"name": "SLOW_SYNC"}])
    site.configure({"name": "slow", "url": f"file://{plugin}", "port": pick_port()})
    site.start()
    async with site.client() as client:
        deployment_id = await client.deploy("web", commit)
        await until(lambda: len(site.records()) == 1, site)

    own_server.stop()
    gate.touch()
    own_server.start()
    async with site.client() as client:
        ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason


async def test_a_plugin_in_a_crash_loop_fails_the_deployment_and_is_named(
    site: PipedSite, client: SiteClient
) -> None:
    plugin = executable(site, "#!/bin/sh\necho 'cannot find my licence' >&2\nexit 7\n")
    commit = site.commit_application("web", [{"name": "BROKEN", "plugin": "broken"}])
    site.configure({"name": "broken", "url": f"file://{plugin}", "port": pick_port()})
    site.start()

    ended = await client.completed(await client.deploy("web", commit))

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "the plugin 'broken' is not ready: crash loop" in ended.status_reason
    assert "cannot find my licence" in ended.status_reason
