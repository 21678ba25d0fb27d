# SPDX-License-Identifier: Apache-2.0
"""What happens when a plugin is lost, and that callers hear of it at once."""

import asyncio
import contextlib
import logging
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipecd_piped.plugins import Phase, PluginLimits, PluginLostError, PluginStoppingError
from pipecd_test_support.plugin_world import PluginWorld, wait_for
from pipecd_wire.model.deployment_pb2 import STAGE_SUCCESS


async def test_a_plugin_that_dies_in_a_stage_is_told_at_once_and_restarted(
    world: PluginWorld, quick: PluginLimits
) -> None:
    """W1: the stage is continued by the next process, through a second ExecuteStage."""
    async with world.host(world.odd(), limits=quick) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)
        began = time.monotonic()

        with pytest.raises(PluginLostError, match="'odd' was lost: exited with code 9"):
            await plugin.execute_stage(world.run_input("DIE"))

        assert time.monotonic() - began < 5
        assert plugin.state.last_output[-1] == "cannot go on"
        await plugin.wait_ready(20)
        response = await plugin.execute_stage(world.run_input("SUCCEED"))
    assert response.status == STAGE_SUCCESS
    first, second = (fact[2] for fact in world.facts(about="stage"))
    assert first != second


async def test_a_call_to_a_plugin_that_is_away_fails_with_its_state(world: PluginWorld) -> None:
    async with world.host(world.odd(manners="exit")) as host:
        plugin = host.plugins["odd"]
        await wait_for(lambda: plugin.state.phase is Phase.FAILED)

        with pytest.raises(PluginLostError, match="is not ready: exited with code 3"):
            await plugin.execute_stage(world.run_input("SUCCEED"))


async def test_a_plugin_that_misses_its_pings_is_restarted(
    world: PluginWorld, quick: PluginLimits
) -> None:
    seen: list[str] = []
    async with world.host(world.odd(manners="no pings"), limits=quick) as host:
        host.on_change = lambda plugin: seen.append(plugin.state.sentence)
        await host.plugins["odd"].wait_ready(20)

        await wait_for(lambda: any("missed 3 pings in a row" in sentence for sentence in seen))
        await wait_for(lambda: len(world.facts(about="started")) == 2)


async def test_a_frozen_plugin_does_not_hold_its_callers(
    world: PluginWorld, quick: PluginLimits
) -> None:
    """A process that lives but does nothing is as lost as a dead one."""
    async with world.host(world.odd(), limits=quick) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)

        with pytest.raises(PluginLostError, match="missed 3 pings in a row"):
            async with asyncio.timeout(20):
                await plugin.execute_stage(world.run_input("FREEZE"))


async def test_a_frozen_plugin_that_sends_no_pings_is_noticed_by_its_silence(
    world: PluginWorld, quick: PluginLimits
) -> None:
    """One of upstream's: its process lives, its channel is up, and no call ever returns."""
    limits = replace(quick, probe_interval_seconds=0.5)
    async with world.host(world.odd(manners="go"), limits=limits) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)

        with pytest.raises(PluginLostError, match="did not answer 3 questions in a row"):
            async with asyncio.timeout(20):
                await plugin.execute_stage(world.run_input("FREEZE"))

        await plugin.wait_ready(20)
        await plugin.execute_stage(world.run_input("SUCCEED"))


async def test_a_plugin_that_answers_stays(world: PluginWorld, quick: PluginLimits) -> None:
    limits = replace(quick, probe_interval_seconds=0.2)
    async with world.host(
        world.odd(manners="go"), world.odd("narrow", manners="livestate only"), limits=limits
    ) as host:
        for plugin in host.plugins.values():
            await plugin.wait_ready(20)
        await wait_for(lambda: len(world.facts(about="asked for stages")) > 6)

        assert {plugin.state.phase for plugin in host.plugins.values()} == {Phase.READY}
    assert len(world.facts(about="started")) == 1
    assert len(world.facts("narrow", about="started")) == 1


async def test_an_error_is_an_answer_and_ends_the_row_of_those_that_were_missed(
    world: PluginWorld, quick: PluginLimits
) -> None:
    limits = replace(quick, probe_interval_seconds=0.5, missed_pings=4)
    async with world.host(world.odd(manners="every other answer"), limits=limits) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)
        await wait_for(lambda: len(world.facts(about="asked for stages")) > 9, 60)

        assert plugin.state.phase is Phase.READY
    assert len(world.facts(about="started")) == 1


async def test_a_plugin_that_fails_again_and_again_is_said_to_be_in_a_crash_loop(
    world: PluginWorld, quick: PluginLimits
) -> None:
    async with world.host(world.odd(manners="exit"), world.odd("good"), limits=quick) as host:
        plugin = host.plugins["odd"]
        await host.plugins["good"].wait_ready(20)
        await wait_for(lambda: plugin.state.phase is Phase.FAILED)
        assert not plugin.state.crash_loop

        await wait_for(lambda: plugin.state.crash_loop and plugin.state.phase is Phase.FAILED)

        said = r"crash loop, \d+ times in a row: exited with code 3 before it was ready; next try"
        assert re.match(said, plugin.state.sentence)
        assert plugin.state.last_output[-2:] == ("no such", "bucket")
        assert plugin.restarts >= 4
        assert host.plugins["good"].state.phase is Phase.READY


async def test_a_plugin_whose_channel_breaks_is_restarted(
    world: PluginWorld, quick: PluginLimits
) -> None:
    seen: list[str] = []
    async with world.host(world.odd(manners="deaf"), limits=quick) as host:
        host.on_change = lambda plugin: seen.append(plugin.state.sentence)

        await wait_for(lambda: any("cannot be reached any more" in sentence for sentence in seen))
        await wait_for(lambda: len(world.facts(about="started")) == 2)


async def test_a_plugin_that_pings_stays(world: PluginWorld, quick: PluginLimits) -> None:
    async with world.host(world.odd(), limits=quick) as host:
        await host.plugins["odd"].wait_ready(20)
        await asyncio.sleep(quick.ping_interval_seconds * (quick.missed_pings + 2))

        assert host.plugins["odd"].state.phase is Phase.READY
    assert len(world.facts(about="started")) == 1


async def test_a_flood_of_output_neither_stops_piped_nor_fills_its_log(
    world: PluginWorld, quick: PluginLimits, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with world.host(world.odd(manners="flood"), limits=quick) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)
        for _ in range(20):
            await plugin.execute_stage(world.run_input("SUCCEED"))

        assert len(plugin.output.last()) == 50
        assert plugin.state.phase is Phase.READY
    lines = [record for record in caplog.records if record.message == "plugin.output"]
    elapsed = lines[-1].created - lines[0].created
    assert len(lines) <= 100 * (elapsed + 2)
    assert any(record.message == "plugin.output_dropped" for record in caplog.records)


async def test_a_stage_that_the_plugin_leaves_is_not_failed(world: PluginWorld) -> None:
    async with world.host(world.odd()) as host:
        await host.plugins["odd"].wait_ready(20)

        with pytest.raises(PluginStoppingError):
            await host.plugins["odd"].execute_stage(world.run_input("LEAVE"))


async def test_the_private_port_closes_with_the_process(
    world: PluginWorld, quick: PluginLimits
) -> None:
    async with world.host(world.odd(), limits=quick) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)
        with pytest.raises(PluginLostError):
            await plugin.execute_stage(world.run_input("DIE"))
        await plugin.wait_ready(20)

        first, second = (
            int(fact[1][2].removeprefix("localhost:")) for fact in world.facts(about="started")
        )
        # Not by connecting: another process of the machine may have the first one by now.
        assert first not in listening_ports()
        assert second in listening_ports()


def listening_ports() -> set[int]:
    """Returns the TCP ports that this process listens on."""
    sockets = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    ports = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and fields[9] in sockets:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports
