# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the executable in the middle of a stage: the next one carries on, nothing twice."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import (
    PluginProcess,
    example_deployment,
    executable,
    start_plugin,
)
from pipecd_test_support.google_cloud.cloud_run_lab import CloudRunLab, make_service
from pipecd_test_support.google_cloud.fake_cloud_run import FakeCloudRun
from pipecd_test_support.web_server import Question
from pipecd_wire.model import deployment_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2
from pipecd_wire.rpc import CallError

V1 = make_service("gcr.io/shop/web:v1")
V2 = make_service("gcr.io/shop/web:v2")
FIRST = "web-v1-0000001"
PROMOTE = ("CLOUDRUN_PROMOTE", {"percent": 10})
ROLLBACK: tuple[str, dict[str, int]] = ("CLOUDRUN_ROLLBACK", {})


class Trap:
    """Stops a write of the fake, before or after it is done, until the test lets it go."""

    def __init__(self, number: int = 1) -> None:
        self.reached = threading.Event()
        self.gone = threading.Event()
        self._left = number

    def __call__(self, _: Question) -> None:
        self._left -= 1
        if self._left == 0:
            self.reached.set()
            self.gone.wait(60)


class Killing:
    """The executable under a piped, which can be killed and started again."""

    def __init__(self, lab: CloudRunLab, piped: FakePiped, folder: Path) -> None:
        self.lab = lab
        self.piped = piped
        self.folder = folder

    @asynccontextmanager
    async def start(self) -> AsyncIterator[PluginProcess]:
        entry = {"deployTargets": [{"name": "tokyo", "config": self.lab.target()}]}
        command = [executable("pipecd-plugin-cloudrun")]
        async with start_plugin(self.piped, command, name="cloudrun", entry=entry) as plugin:
            yield plugin

    async def execute(
        self, plugin: PluginProcess, stage: tuple[str, dict[str, int]], index: int
    ) -> api_pb2.ExecuteStageResponse:
        deployment = example_deployment()
        deployment.deploy_targets_by_plugin["cloudrun"].deploy_targets.append("tokyo")
        name, options = stage
        return await plugin.execute(
            name, options, index=index, directory=self.folder, deployment=deployment
        )

    async def run(self, stage: tuple[str, dict[str, int]], index: int = 0) -> None:
        """Runs a stage to its end, which must be good."""
        async with self.start() as plugin:
            answer = await self.execute(plugin, stage, index)
        assert answer.status == deployment_pb2.STAGE_SUCCESS, answer.message

    async def kill_when(
        self, reached: threading.Event, stage: tuple[str, dict[str, int]], index: int = 0
    ) -> None:
        """Runs a stage and kills the process as soon as something has happened."""
        async with self.start() as plugin, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(lose(self.execute(plugin, stage, index)))
            assert await asyncio.to_thread(reached.wait, 60)
            assert not running.done()
            plugin.process.kill()


async def lose(call: Awaitable[object]) -> None:
    try:
        await call
    except CallError:
        return


@pytest.fixture
async def killing(lab: CloudRunLab) -> AsyncIterator[Killing]:
    lab.cloud.polls_until_ready = 1
    await lab(V1, number=1).run("CLOUDRUN_SYNC")
    async with FakePiped() as piped:
        yield Killing(lab, piped, lab.write(2, V2))


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_kill_around_the_write_makes_one_revision(
    killing: Killing, cloud: FakeCloudRun, moment: str
) -> None:
    trap = Trap()
    if moment == "before":
        cloud.before_change = trap
    else:
        cloud.on_change = trap
    await killing.kill_when(trap.reached, PROMOTE)
    cloud.before_change = cloud.on_change = None
    trap.gone.set()

    await killing.run(PROMOTE)

    assert len(cloud.list_revisions("web")) == 2
    assert sorted(killing.lab.traffic().values()) == [10, 90]


async def test_a_kill_while_it_waits_is_carried_on(killing: Killing, cloud: FakeCloudRun) -> None:
    cloud.hanging.add("web:v2")
    seen = threading.Event()

    def notice(question: Question) -> None:
        if "/revisions/web-v2" in question.path and cloud.count_writes("PATCH", "/web"):
            seen.set()

    cloud.on_read = notice
    await killing.kill_when(seen, PROMOTE)
    cloud.on_read = None
    writes = cloud.count_writes("PATCH", "/web")
    cloud.release("web")

    await killing.run(PROMOTE)

    assert cloud.count_writes("PATCH", "/web") == writes, "it only waits on"
    assert len(cloud.list_revisions("web")) == 2


@pytest.mark.parametrize("write", [1, 2], ids=["traffic", "template"])
async def test_a_killed_rollback_is_carried_on(
    killing: Killing, cloud: FakeCloudRun, write: int
) -> None:
    before = killing.lab.what_people_decide()
    await killing.run(PROMOTE)
    trap = Trap(write)
    cloud.on_change = trap
    await killing.kill_when(trap.reached, ROLLBACK, index=1)
    cloud.on_change = None
    trap.gone.set()

    await killing.run(ROLLBACK, index=1)

    assert killing.lab.what_people_decide() == before
    assert len(cloud.list_revisions("web")) == 2
