# SPDX-License-Identifier: Apache-2.0
"""How plugins are started and found ready, with real processes."""

import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pipecd_model.config import PluginConfig
from pipecd_model.config.piped import DeployTargetConfig
from pipecd_piped.plugins import Phase, PluginError, PluginLimits
from pipecd_test_support.plugin_world import PluginWorld, wait_for
from pipecd_wire.model.deployment_pb2 import STAGE_SUCCESS


async def test_a_file_is_started_with_upstreams_command_line(world: PluginWorld) -> None:
    config = PluginConfig(
        name="odd",
        url=str(world.executable("odd")),
        config={"record": str(world.record("odd")), "manners": "go"},
        deploy_targets=(
            DeployTargetConfig(name="one", labels={"env": "dev"}, config={"a": 1}),
            DeployTargetConfig(name="two"),
        ),
    )

    async with world.host(config) as host:
        await host.plugins["odd"].wait_ready(20)

    [[_, arguments, was_invited, _, executable]] = world.facts(about="started")
    start, service_flag, service, config_flag, given = arguments
    assert (start, service_flag, config_flag) == ("start", "--piped-plugin-service", "--config")
    assert service.startswith("localhost:")
    assert was_invited
    assert Path(executable).name == "odd"
    entry = json.loads(given)
    assert entry.pop("port") > 0
    assert entry == {
        "name": "odd",
        "url": world.executable("odd").as_uri(),
        "config": config.config,
        "deployTargets": [
            {"name": "one", "labels": {"env": "dev"}, "config": {"a": 1}},
            {"name": "two", "config": None},
        ],
    }


async def test_a_plugin_serves_on_the_port_of_its_entry(world: PluginWorld, free_port: int) -> None:
    async with world.host(world.odd(port=free_port, manners="go")) as host:
        await host.plugins["odd"].wait_ready(20)

        _, writer = await asyncio.open_connection("127.0.0.1", free_port)

    writer.close()


async def test_a_plugin_that_ignores_the_invitation_is_ready_when_it_answers(
    world: PluginWorld,
) -> None:
    async with world.host(world.odd(manners="go", stages=["A", "B"])) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)

        assert plugin.state.phase is Phase.READY
        assert plugin.stages == {"A", "B"}
        assert not plugin.is_managed
    assert world.facts(about="reached piped")


async def test_a_plugin_that_accepts_the_invitation_presents_itself(world: PluginWorld) -> None:
    async with world.host(world.odd()) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)
        await wait_for(lambda: plugin.is_managed)

        assert plugin.version == "1.2.3"
        assert plugin.stages_without_files == {"SUCCEED"}
    assert world.facts(about="ping interval") == [["ping interval", 5.0]]


async def test_an_installed_package_gets_its_configuration_where_nobody_sees_it(
    world: PluginWorld, on_path: Callable[[Path, str], None]
) -> None:
    """The command line is readable by every user of the machine; plugin configs hold secrets."""
    on_path(world.executable("odd"), "pipecd-plugin-odd")
    record = str(world.record("odd"))
    config = PluginConfig(name="odd", config={"record": record, "password": "hunter2"})

    async with world.host(config, grace_seconds=12) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)
        assert plugin.is_managed

        [[_, arguments, _, pid, _]] = world.facts(about="started")
        assert "hunter2" not in command_line(pid)

    assert arguments[arguments.index("--grace-period") + 1] == "12s"
    assert "--config" not in arguments


async def test_a_package_may_have_another_name_than_the_plugin(
    world: PluginWorld, on_path: Callable[[Path, str], None]
) -> None:
    on_path(world.executable("odd"), "pipecd-plugin-strange")
    config = PluginConfig(
        name="odd", url="package://strange", config={"record": str(world.record("odd"))}
    )

    async with world.host(config) as host:
        await host.plugins["odd"].wait_ready(20)


async def test_a_plugin_that_exits_at_start_is_failed_with_its_last_output(
    world: PluginWorld, quick: PluginLimits
) -> None:
    """W2: upstream's agent hangs for ever on it."""
    bad, good = world.odd("bad", manners="exit"), world.odd("good")

    async with world.host(bad, good, limits=quick) as host:
        await host.wait_settled(20)
        await host.plugins["good"].wait_ready(20)
        response = await host.plugins["good"].execute_stage(world.run_input("SUCCEED"))

        await wait_for(lambda: host.plugins["bad"].state.phase is Phase.FAILED)
        state = host.plugins["bad"].state
        assert "exited with code 3 before it was ready; next try in" in state.sentence
        assert state.last_output[-2:] == ("no such", "bucket")
        with pytest.raises(PluginError, match="'bad' is not ready: ") as raised:
            await host.plugins["bad"].wait_ready(0)
        assert raised.value.hint == "bucket"
        await wait_for(lambda: len(world.facts("bad", about="started")) > 2)
    assert response.status == STAGE_SUCCESS


@pytest.mark.parametrize("manners", ["sleep", "mute"])
async def test_a_plugin_that_never_answers_is_given_up(world: PluginWorld, manners: str) -> None:
    async with world.host(world.odd(manners=manners), limits=PluginLimits(ready_seconds=4)) as host:
        plugin = host.plugins["odd"]
        # A process that had no time to say that it is there is followed by another.
        await wait_for(lambda: plugin.state.phase is Phase.FAILED and world.facts(about="started"))

        pid = world.facts(about="started")[0][3]
        assert "did not serve within 4s; next try in" in plugin.state.sentence
        await wait_for(lambda: not is_alive(pid))


async def test_ready_with_a_wrong_token_is_refused(
    world: PluginWorld, on_path: Callable[[Path, str], None], quick: PluginLimits
) -> None:
    on_path(world.executable("odd"), "pipecd-plugin-odd")
    record = str(world.record("odd"))
    config = PluginConfig(name="odd", config={"record": record, "manners": "wrong token"})

    async with world.host(config, limits=quick) as host:
        await wait_for(lambda: host.plugins["odd"].state.phase is Phase.FAILED)

        state = host.plugins["odd"].state
    assert "exited with code 4" in state.sentence
    assert state.last_output[-1].startswith("UNAUTHENTICATED: this is not the token of the plugin")


async def test_a_plugin_that_only_shows_live_state_is_ready_without_stages(
    world: PluginWorld,
) -> None:
    """Upstream's agent stops when a plugin does not serve FetchDefinedStages."""
    async with world.host(world.odd(manners="livestate only")) as host:
        await host.plugins["odd"].wait_ready(20)

        assert host.plugins["odd"].stages == frozenset()


async def test_a_port_that_is_taken_is_said_and_nothing_is_started(world: PluginWorld) -> None:
    """W3: piped must not talk to a process that somebody left behind on the port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with world.host(world.odd(port=port, manners="go")) as host:
            plugin = host.plugins["odd"]
            await wait_for(lambda: plugin.state.phase is Phase.FAILED)

            assert f"the port {port} is taken by another process" in plugin.state.sentence
    assert not world.facts()


async def test_a_file_with_another_checksum_is_never_executed(world: PluginWorld) -> None:
    config = PluginConfig(
        name="odd",
        url=str(world.executable("odd")),
        sha256="0" * 64,
        config={"record": str(world.record("odd"))},
    )

    async with world.host(config) as host:
        await wait_for(lambda: host.plugins["odd"].state.phase is Phase.FAILED)

        assert "has the sha256 " in host.plugins["odd"].state.sentence
    assert not world.facts()


async def test_a_file_that_is_no_program_is_said(world: PluginWorld, tmp_path: Path) -> None:
    """An error page that somebody downloaded must not become a shell script."""
    file = tmp_path / "notes.txt"
    file.write_text("touch was-run\n")

    async with world.host(PluginConfig(name="notes", url=str(file))) as host:
        plugin = host.plugins["notes"]
        await wait_for(lambda: plugin.state.phase is Phase.FAILED)

        assert f"{str(file)!r} is not a program" in plugin.state.sentence


async def test_a_plugin_that_is_not_installed_is_said(world: PluginWorld) -> None:
    async with world.host(PluginConfig(name="absent")) as host:
        await host.wait_settled(20)

        sentence = host.plugins["absent"].state.sentence
    assert "there is no executable 'pipecd-plugin-absent' (install the package" in sentence


async def test_a_changed_file_is_a_new_version(world: PluginWorld, quick: PluginLimits) -> None:
    """W4: upstream starts what is cached under the name, whatever the source is by now."""
    config = world.odd(manners="exit")
    original = world.executable("odd").read_text()
    async with world.host(config, limits=quick) as host:
        await wait_for(lambda: world.facts(about="started"))
        replacement = world.folder / "replacement"
        replacement.write_text(original.replace("no such", "another"))
        replacement.chmod(0o755)
        replacement.replace(config.url)

        await wait_for(lambda: "another" in host.plugins["odd"].output.last())

    folders = {Path(fact[4]).parent.name for fact in world.facts(about="started")}
    kept = {path.name for path in (world.folder / "data" / "plugins" / "odd").iterdir()}
    assert len(folders) == 2
    assert folders <= kept


async def test_all_plugins_start_at_the_same_time(world: PluginWorld) -> None:
    """One that takes its whole time must not keep the others waiting."""
    slow = [world.odd(f"slow{number}", manners="mute") for number in range(3)]

    async with world.host(*slow, world.odd()) as host:
        await host.plugins["odd"].wait_ready(20)
        await wait_for(lambda: all(world.facts(plugin.name) for plugin in slow))

        assert {host.plugins[plugin.name].state.phase for plugin in slow} == {Phase.STARTING}


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
