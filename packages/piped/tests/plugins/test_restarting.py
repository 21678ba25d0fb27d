# SPDX-License-Identifier: Apache-2.0
"""A person can have a plugin restarted, whatever state it is in."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from pipecd_model.errors import NotFoundError
from pipecd_piped.plugins import Phase, Plugin, PluginLimits, PluginStoppingError
from pipecd_piped.plugins.state import PluginState
from pipecd_runtime.orphans import start_of
from pipecd_test_support.plugin_world import PluginWorld, outcome_of, wait_for
from pipecd_wire.model.deployment_pb2 import STAGE_SUCCESS


async def test_a_plugin_that_works_is_told_to_stop_and_started_again(world: PluginWorld) -> None:
    async with world.host(
        world.odd(), world.odd("other"), limits=PluginLimits(first_pause_seconds=600)
    ) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)
        await host.plugins["other"].wait_ready(20)
        seen: list[tuple[Phase, str]] = []
        host.on_change = lambda it: seen.append((it.state.phase, it.state.sentence))

        host.restart("odd", "Ada")
        await wait_for(lambda: plugin.state.phase is not Phase.READY)
        await plugin.wait_ready(20)

        response = await plugin.execute_stage(world.run_input("SUCCEED"))
        assert response.status == STAGE_SUCCESS
        assert plugin.restarts == 1
        assert not any(phase is Phase.FAILED for phase, _ in seen)
        assert seen[0] == (Phase.FETCHING, "was restarted by Ada")
    assert world.facts(about="SIGTERM")
    assert len(world.facts(about="started")) == 2
    assert len(world.facts("other", about="started")) == 1


async def test_its_stages_are_left_for_the_next_process(world: PluginWorld) -> None:
    """Also those of a plugin of upstream's, which end badly when it is told to stop."""
    async with world.host(world.odd(manners="go", dawdle=0.5)) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)
        async with asyncio.TaskGroup() as tasks:
            stage = tasks.create_task(
                outcome_of(plugin.execute_stage(world.run_input("UNTIL_TOLD")))
            )
            await wait_for(lambda: world.facts(about="stage"))

            host.restart("odd", "Ada")

        assert isinstance(stage.result(), PluginStoppingError)
        await plugin.wait_ready(20)


async def test_one_that_does_not_stop_is_killed(world: PluginWorld, quick: PluginLimits) -> None:
    async with world.host(world.odd(dawdle=3600), limits=replace(quick, hurry_seconds=0.3)) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)
        [[_, _, _, pid, _]] = world.facts(about="started")

        host.restart("odd", "Ada")

        await wait_for(lambda: not start_of(pid))
        await wait_for(lambda: plugin.state.phase is Phase.READY)


async def test_one_that_waits_after_a_failure_is_tried_at_once(world: PluginWorld) -> None:
    limits = PluginLimits(first_pause_seconds=600, longest_pause_seconds=600)
    async with world.host(world.odd(manners="exit"), limits=limits) as host:
        plugin = host.plugins["odd"]
        await wait_for(lambda: plugin.state.phase is Phase.FAILED)

        host.restart("odd", "Ada")

        await wait_for(lambda: len(world.facts(about="started")) == 2)


async def test_one_that_nobody_knows_is_named(world: PluginWorld) -> None:
    async with world.host(world.odd()) as host:
        with pytest.raises(NotFoundError, match="this piped has no plugin 'even'"):
            host.restart("even", "Ada")


async def test_one_in_a_crash_loop_is_shown_with_its_crash_while_it_is_tried_again(
    world: PluginWorld, quick: PluginLimits
) -> None:
    """Whoever looks between two tries wants to know what is wrong, not that it is tried again."""
    seen: list[PluginState] = []
    config = world.odd(manners="exit")
    async with world.host(
        config, limits=quick, on_change=lambda plugin: seen.append(plugin.state)
    ) as host:
        await wait_for(lambda: host.plugins["odd"].failures > quick.crash_loop)

    looping = [state for state in seen if state.crash_loop and state.phase is not Phase.STOPPING]
    assert {state.phase for state in looping} == {Phase.FETCHING, Phase.STARTING, Phase.FAILED}
    for state in looping:
        assert state.sentence.startswith("crash loop, ")
        assert "exited with code 3" in state.sentence
        assert state.last_output[-1] == "bucket"


async def test_the_backoff_between_restarts_grows_and_is_reset_after_a_good_while(
    world: PluginWorld, quick: PluginLimits
) -> None:
    """A plugin that failed yesterday is not waited for as long as one that fails all the time."""
    first = 0.2
    limits = replace(quick, first_pause_seconds=first, longest_pause_seconds=60, steady_seconds=0.1)
    failures: list[str] = []

    def note(plugin: Plugin) -> None:
        if plugin.state.phase is Phase.FAILED:
            failures.append(plugin.state.sentence)

    config = world.odd()
    program = world.executable("odd")
    hidden = program.rename(program.with_suffix(".hidden"))
    async with world.host(config, limits=limits, on_change=note) as host:
        plugin = host.plugins["odd"]
        await wait_for(lambda: len(failures) == 4)
        hidden.rename(program)
        await wait_for(lambda: plugin.state.phase is Phase.READY and not plugin.failures, 60)

        os.kill(world.facts(about="started")[-1][3], signal.SIGKILL)
        await wait_for(lambda: len(failures) == 5)

    *growing, last = (float(each.rpartition("next try in ")[2].rstrip("s")) for each in failures)
    rounding = 0.05
    for index, pause in enumerate(growing):
        longest = first * 2**index
        assert longest / 2 - rounding <= pause <= longest + rounding
    assert last <= first + rounding
