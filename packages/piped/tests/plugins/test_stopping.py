# SPDX-License-Identifier: Apache-2.0
"""How plugins are stopped, and that nothing is left of them."""

import asyncio
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from pipecd_piped.plugins import Phase, PluginLimits, PluginStoppingError
from pipecd_test_support.plugin_world import PluginWorld, outcome_of, wait_for

HOSTING = Path(__file__).parent / "programs" / "hosting.py"


async def test_all_plugins_are_told_at_once_and_waited_for(world: PluginWorld) -> None:
    plugins = [world.odd(name, dawdle=0.5) for name in ("one", "two")]
    async with world.host(*plugins) as host:
        for plugin in host.plugins.values():
            await plugin.wait_ready(20)
        pids = [world.facts(name, about="started")[0][3] for name in ("one", "two")]

        await host.stop(20)

        assert [is_alive(pid) for pid in pids] == [False, False]
        assert {plugin.state.phase for plugin in host.plugins.values()} == {Phase.STOPPING}
    assert world.facts("one", about="SIGTERM") == [["SIGTERM"]]


async def test_a_plugin_that_does_not_stop_is_killed_with_its_group(world: PluginWorld) -> None:
    async with world.host(world.odd(dawdle=3600)) as host:
        await host.plugins["odd"].wait_ready(20)
        [[_, _, _, pid, _]] = world.facts(about="started")

        await host.stop(0.5)

        assert not is_alive(pid)


async def test_a_second_signal_leaves_little_time(world: PluginWorld) -> None:
    async with world.host(world.odd(dawdle=3600), limits=PluginLimits(hurry_seconds=3)) as host:
        await host.plugins["odd"].wait_ready(20)
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(host.stop(600))
            await wait_for(lambda: world.facts(about="SIGTERM"))

            host.kill()

        assert time.monotonic() - began < 60
    # At least: two signals that come together are one, so it is reminded until it has ended.
    assert len(world.facts(about="SIGTERM")) >= 2


async def test_an_error_in_piped_leaves_no_plugin_behind(world: PluginWorld) -> None:
    """W3: and it is the error that its reader sees, not a group around it."""

    async def fail() -> None:
        async with world.host(world.odd()) as host:
            await host.plugins["odd"].wait_ready(20)
            raise LookupError

    with pytest.raises(LookupError):
        await fail()

    [[_, _, _, pid, _]] = world.facts(about="started")
    assert not is_alive(pid)


async def test_a_host_can_be_left_while_plugins_start(world: PluginWorld) -> None:
    async with world.host(world.odd(), world.odd("bad", manners="exit")):
        pass

    assert not any(is_alive(fact[3]) for fact in world.facts(about="started"))


async def test_whoever_waits_for_a_plugin_hears_of_the_stop(world: PluginWorld) -> None:
    async with world.host(world.odd(manners="exit")) as host:
        plugin = host.plugins["odd"]
        await wait_for(lambda: plugin.state.phase is Phase.FAILED)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(outcome_of(plugin.wait_ready(600)))
            await asyncio.sleep(0)

            await host.stop(20)

        assert isinstance(waiting.result(), PluginStoppingError)


async def test_a_stage_of_upstreams_that_ends_badly_at_the_stop_is_left(world: PluginWorld) -> None:
    """W7: upstream rolls a deployment back because piped was restarted."""
    async with world.host(world.odd(manners="go", dawdle=1)) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)
        async with asyncio.TaskGroup() as tasks:
            stage = tasks.create_task(
                outcome_of(plugin.execute_stage(world.run_input("UNTIL_TOLD")))
            )
            await wait_for(lambda: world.facts(about="stage"))

            await host.stop(20)

        assert isinstance(stage.result(), PluginStoppingError)


async def test_a_stopping_plugin_keeps_its_channel_until_it_is_done(
    world: PluginWorld, quick: PluginLimits
) -> None:
    """It may finish a script for the whole grace period, long after it stopped listening."""
    async with world.host(world.odd(manners="go", dawdle=1.5), limits=quick) as host:
        await host.plugins["odd"].wait_ready(20)
        began = time.monotonic()

        await host.stop(20)

        assert time.monotonic() - began > 1.4


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
async def test_a_plugin_dies_with_its_piped(world: PluginWorld) -> None:
    """W3: the next piped must not meet the plugins of the last one."""
    config = world.odd(manners="go")
    piped = await asyncio.create_subprocess_exec(
        sys.executable, str(HOSTING), config.url, str(world.record("odd")), str(world.folder)
    )
    try:
        await wait_for(lambda: world.facts(about="reached piped"))
        [[_, _, _, pid, _]] = world.facts(about="started")

        piped.send_signal(signal.SIGKILL)

        await wait_for(lambda: not is_alive(pid))
    finally:
        if piped.returncode is None:
            piped.kill()
        await piped.wait()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
