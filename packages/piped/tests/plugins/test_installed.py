# SPDX-License-Identifier: Apache-2.0
"""Our own plugins, installed as packages, under a real host."""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.config import PluginConfig
from pipecd_piped.plugins import PluginHost, PluginLostError, PluginStoppingError
from pipecd_test_support.plugin_world import PluginWorld, outcome_of, wait_for
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import STAGE_FAILURE, STAGE_SUCCESS
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from pipecd_wire.plugin.deploymentapi.api_pb2 import ExecutePluginInput

APPLICATION = b"apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec: {}\n"


class Installed:
    """Runs stages of installed plugins."""

    def __init__(self, world: PluginWorld) -> None:
        self.world = world

    def host(self, *names: str) -> PluginHost:
        host: PluginHost = self.world.host(*(PluginConfig(name=name) for name in names))
        return host

    def run(self, stage: str, **options: Any) -> ExecutePluginInput:
        request: ExecutePluginInput = self.world.run_input(stage)
        request.stage_config = json.dumps(options).encode()
        request.target_deployment_source.CopyFrom(
            DeploymentSource(
                application_directory=str(self.world.folder),
                commit_hash="abc",
                application_config=APPLICATION,
                application_config_filename="app.pipecd.yaml",
                shared_config_directory=str(self.world.folder / ".pipe"),
            )
        )
        return request


@pytest.fixture
def installed(world: PluginWorld) -> Installed:
    return Installed(world)


async def test_a_wait_ends_after_its_time_and_its_log_is_there(
    installed: Installed, world: PluginWorld
) -> None:
    request = installed.run("WAIT", duration="1s")
    async with installed.host("wait") as host:
        plugin = host.plugins["wait"]
        await plugin.wait_ready(20)
        with world.backend.metadata.opened(request.deployment) as store:
            began = time.monotonic()
            response = await plugin.execute_stage(request)

            assert store.get_stage("s-WAIT", "startTime")
    assert response.status == STAGE_SUCCESS
    assert time.monotonic() - began > 0.5
    assert world.control_plane.lines


async def test_a_plugin_gets_what_it_has_stored_with_the_call_of_its_stage(
    installed: Installed, world: PluginWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is now, not as it was when the deployment began; and it need not ask for it."""
    ran = world.folder / "ran"
    request = installed.run("SCRIPT_RUN_ROLLBACK", run="true", onRollback=f"echo back > {ran}")
    request.deployment.metadata_v2.plugins["scriptrun"].keyValues["started-7"] = "before"
    async with installed.host("scriptrun") as host:
        plugin = host.plugins["scriptrun"]
        await plugin.wait_ready(20)
        with world.backend.metadata.opened(request.deployment) as store:
            await store.put_plugin("scriptrun", {f"started-{request.stage.index}": "_"})
            monkeypatch.setattr(store, "get_plugin", None)  # who asks is not answered

            response = await plugin.execute_stage(request)

    assert response.status == STAGE_SUCCESS
    assert ran.read_text() == "back\n"


async def test_an_approval_reaches_its_stage(installed: Installed, world: PluginWorld) -> None:
    request = installed.run("WAIT_APPROVAL", approvers=["ada"])
    approve = Command(
        id="c1",
        type=Command.APPROVE_STAGE,
        deployment_id="d1",
        stage_id="s-WAIT_APPROVAL",
        commander="ada",
        approve_stage=Command.ApproveStage(deployment_id="d1", stage_id="s-WAIT_APPROVAL"),
    )
    async with installed.host("waitapproval") as host:
        plugin = host.plugins["waitapproval"]
        await plugin.wait_ready(20)
        with world.backend.metadata.opened(request.deployment):
            async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
                stage = tasks.create_task(plugin.execute_stage(request))
                await wait_for(lambda: world.control_plane.lines)
                world.commands.give(approve)

    assert stage.result().status == STAGE_SUCCESS


async def test_a_cancelled_script_is_gone_when_the_call_returns(
    installed: Installed, world: PluginWorld
) -> None:
    marks = world.folder / "marks"
    script = f"""
        trap 'sleep 0.3; echo ended >> {marks}; exit 0' TERM
        echo began >> {marks}
        while true; do sleep 0.05; done
    """
    request = installed.run("SCRIPT_RUN", run=script)
    async with installed.host("scriptrun") as host:
        plugin = host.plugins["scriptrun"]
        await plugin.wait_ready(20)
        with world.backend.metadata.opened(request.deployment):
            async with asyncio.TaskGroup() as tasks:
                stage = tasks.create_task(plugin.execute_stage(request))
                await wait_for(marks.exists)

                stage.cancel()
                await asyncio.wait({stage}, timeout=20)

                assert marks.read_text() == "began\nended\n"


async def test_a_script_is_waited_for_when_piped_stops(
    installed: Installed, world: PluginWorld
) -> None:
    marks = world.folder / "marks"
    script = f"echo began >> {marks}; sleep 1; echo done >> {marks}"
    request = installed.run("SCRIPT_RUN", run=script)
    async with installed.host("scriptrun") as host:
        plugin = host.plugins["scriptrun"]
        await plugin.wait_ready(20)
        with world.backend.metadata.opened(request.deployment):
            async with asyncio.TaskGroup() as tasks:
                stage = tasks.create_task(plugin.execute_stage(request))
                await wait_for(marks.exists)

                await host.stop(20)

    assert stage.result().status == STAGE_SUCCESS
    assert marks.read_text() == "began\ndone\n"


async def test_a_script_does_not_outlive_a_host_that_is_left(
    installed: Installed, world: PluginWorld
) -> None:
    """Its plugin would wait for it; there is no time for that, and nobody would end it later."""
    marks = world.folder / "marks"
    request = installed.run("SCRIPT_RUN", run=f"sleep 3600 & echo $! >> {marks}; wait")
    async with asyncio.TaskGroup() as tasks:
        with world.backend.metadata.opened(request.deployment):
            async with installed.host("scriptrun") as host:
                plugin = host.plugins["scriptrun"]
                await plugin.wait_ready(20)
                stage = tasks.create_task(outcome_of(plugin.execute_stage(request)))
                await wait_for(lambda: marks.exists() and marks.read_text().endswith("\n"))

            pid = int(marks.read_text())
            await wait_for(lambda: not Path(f"/proc/{pid}").exists(), 5)
    assert isinstance(stage.result(), PluginStoppingError)


async def test_a_wait_is_left_as_it_is_when_piped_stops(
    installed: Installed, world: PluginWorld
) -> None:
    request = installed.run("WAIT", duration="1h")
    async with installed.host("wait") as host:
        plugin = host.plugins["wait"]
        await plugin.wait_ready(20)
        with world.backend.metadata.opened(request.deployment) as store:
            async with asyncio.TaskGroup() as tasks:
                stage = tasks.create_task(outcome_of(plugin.execute_stage(request)))
                await wait_for(lambda: store.get_stage("s-WAIT", "startTime"))

                await host.stop(20)

    assert isinstance(stage.result(), PluginStoppingError)


async def test_a_stage_is_continued_by_a_restarted_plugin(
    installed: Installed, world: PluginWorld
) -> None:
    request = installed.run("DUMMY_SYNC", exit=5)
    async with installed.host("dummy") as host:
        plugin = host.plugins["dummy"]
        await plugin.wait_ready(20)
        with world.backend.metadata.opened(request.deployment):
            with pytest.raises(PluginLostError, match="exited with code 5"):
                await plugin.execute_stage(request)
            await plugin.wait_ready(20)

            response = await plugin.execute_stage(request)
    assert response.status == STAGE_SUCCESS


async def test_the_reason_of_a_failure_comes_with_the_answer(
    installed: Installed, world: PluginWorld
) -> None:
    """W11: upstream's agent leaves it in the plugin."""
    request = installed.run("DUMMY_SYNC", fail="the cluster is on fire")
    async with installed.host("dummy") as host:
        await host.plugins["dummy"].wait_ready(20)
        with world.backend.metadata.opened(request.deployment):
            response = await host.plugins["dummy"].execute_stage(request)

    assert response.status == STAGE_FAILURE
    assert "the cluster is on fire" in response.message


async def test_a_package_may_also_be_started_as_a_file(world: PluginWorld) -> None:
    """Whatever way it is started, our plugins accept plugin management."""
    shim = world.folder / "wait"
    installed_beside = Path(sys.executable).parent / "pipecd-plugin-wait"
    shim.write_text(f'#!/bin/sh\nexec {installed_beside} "$@"\n')
    async with world.host(PluginConfig(name="wait", url=str(shim))) as host:
        plugin = host.plugins["wait"]
        await plugin.wait_ready(20)

        await wait_for(lambda: plugin.is_managed)
