# SPDX-License-Identifier: Apache-2.0
"""What another user of the machine gets from piped and its plugins: refusals."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypedDict

import pytest

from pipecd_model.config import PluginConfig
from pipecd_piped.plugins import Phase, Plugin, PluginLimits, PluginLostError
from pipecd_piped.plugins.management import (
    ManagementApi,
    PluginSession,
    authenticator_of,
    endpoints_of,
)
from pipecd_piped.plugins.running import RunningStages
from pipecd_piped.programs.port import private_port
from pipecd_runtime.peer import has_ipv6
from pipecd_runtime.ports import pick_port
from pipecd_test_support.plugin_world import PluginWorld, wait_for
from pipecd_test_support.stranger import (
    ME,
    NEEDS_ROOT,
    NOBODY,
    UNKNOWN_METHODS,
    Attempt,
    attempts,
    call_as,
    methods_of,
)
from pipecd_wire.model.deployment_pb2 import STAGE_SUCCESS
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2
from pipecd_wire.plugin.deploymentapi.api_pb2 import PlanPluginInput
from pipecd_wire.plugin.livestateapi import api_pb2 as livestate_pb2
from pipecd_wire.plugin.planpreviewapi import api_pb2 as preview_pb2
from pipecd_wire.pluginservice import service_pb2
from pipecd_wire.pluginservice.service_pb2_grpc import PluginServiceStub
from pipecd_wire.rpc import call, connect

AS_ROOT = pytest.mark.skipif(ME != 0, reason=NEEDS_ROOT)
KEY = "pipecd-plugin-token"
OURS = methods_of(*service_pb2.DESCRIPTOR.services_by_name.values())
MANAGEMENT = methods_of(plugin_pb2.DESCRIPTOR.services_by_name["PluginManagementService"])
OF_PIPED = [*OURS, *MANAGEMENT]
OF_PLUGINS = methods_of(
    *api_pb2.DESCRIPTOR.services_by_name.values(),
    *livestate_pb2.DESCRIPTOR.services_by_name.values(),
    *preview_pb2.DESCRIPTOR.services_by_name.values(),
    *plugin_pb2.DESCRIPTOR.services_by_name.values(),
)
EVERYTHING = [*OF_PIPED, *OF_PLUGINS, *UNKNOWN_METHODS]
HOSTS = ["127.0.0.1", *(["[::1]"] if has_ipv6() else [])]


def names_of(statuses: list[str]) -> set[str]:
    return {each.partition(":")[0] for each in statuses}


# piped's private port


@asynccontextmanager
async def private(
    world: PluginWorld, *, port: int = 7001, ready: bool = False
) -> AsyncIterator[int]:
    """The private port of a plugin file, or with port 0 of a package."""
    session = PluginSession(token="right", port=port)  # noqa: S106 - a fake one
    management = ManagementApi(
        session, ping_interval_seconds=5, running=RunningStages(), backend=world.backend
    )
    if ready:
        session.ready.set_result(plugin_pb2.ReadyRequest())
    endpoints = endpoints_of("odd", session, management, world.backend)
    async with private_port(endpoints, authenticator_of("odd", session)) as served:
        yield served


class State(TypedDict, total=False):
    """What `private` is asked for."""

    ready: bool
    port: int


STATES: dict[str, State] = {
    "a file that has not said Ready": {},
    "a file that has": {"ready": True},
    "a package": {"port": 0},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("token", ["", "wrong", "right ", "Right"])
async def test_a_wrong_token_gets_nothing_from_the_private_port(
    world: PluginWorld, state: str, token: str
) -> None:
    """Whoever sends one has no other way in, not even as piped's own user."""
    async with private(world, **STATES[state]) as port:
        statuses = await call_as(ME, f"127.0.0.1:{port}", attempts(EVERYTHING, (KEY, token)))

    assert names_of(statuses) == {"UNAUTHENTICATED"}


@pytest.mark.parametrize("state", ["a file that has", "a package"])
async def test_a_process_that_has_its_token_needs_it_for_every_call(
    world: PluginWorld, state: str
) -> None:
    async with private(world, **STATES[state]) as port:
        without = await call_as(ME, f"127.0.0.1:{port}", attempts(EVERYTHING))
        with_it = await call_as(ME, f"127.0.0.1:{port}", attempts(OF_PIPED, (KEY, "right")))

    assert names_of(without) == {"UNAUTHENTICATED"}
    assert not names_of(with_it) & {"UNAUTHENTICATED", "UNIMPLEMENTED"}


async def test_a_plugin_that_knows_no_token_is_served_as_the_user_it_is(world: PluginWorld) -> None:
    """Upstream's plugins are. What is new with us still needs the token."""
    async with private(world) as port:
        for host in HOSTS:
            served = await call_as(ME, f"{host}:{port}", attempts(OURS))
            management = await call_as(ME, f"{host}:{port}", attempts(MANAGEMENT, bodies=[b""]))

            assert not names_of(served) & {"UNAUTHENTICATED", "UNIMPLEMENTED"}
            assert names_of(management) == {"UNAUTHENTICATED"}


@AS_ROOT
@pytest.mark.parametrize("state", STATES)
async def test_another_user_gets_nothing_from_the_private_port(
    world: PluginWorld, state: str, tmp_path: Path
) -> None:
    """InstallTool runs a script: for whoever may call it, that is a shell."""
    bait = tmp_path / "bait"
    tool = service_pb2.InstallToolRequest(
        name="kubectl", version="1", install_script=f"touch {bait}; touch {{{{ .OutPath }}}}"
    )
    path = "/grpc.piped.service.PluginService/InstallTool"
    assert path in OURS
    install = Attempt(path=path, body=tool.SerializeToString().hex())
    async with private(world, **STATES[state]) as port:
        for host in HOSTS:
            statuses = await call_as(
                NOBODY, f"{host}:{port}", [install, *attempts(EVERYTHING), install]
            )

            assert names_of(statuses) == {"UNAUTHENTICATED"}
    assert not bait.exists()
    assert not (world.folder / "tools").exists()


async def test_a_plugin_that_knows_no_token_may_lose_its_connection(world: PluginWorld) -> None:
    async with private(world) as port:
        for _ in range(3):
            async with connect(f"localhost:{port}") as channel:
                request = service_pb2.ListStageCommandsRequest(deployment_id="d", stage_id="s")
                await call(PluginServiceStub(channel).ListStageCommands, request)


# A whole host


def processes_of(world: PluginWorld) -> list[int]:
    """The plugins that run."""
    return [int(each.name) for each in (world.folder / "data" / "processes").glob("[0-9]*")]


def ports_of(pid: int) -> list[int]:
    """Where a process listens."""
    inodes = {
        str(each.readlink()).removeprefix("socket:[").removesuffix("]")
        for each in Path(f"/proc/{pid}/fd").iterdir()
    }
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if Path(table).exists():
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    found.add(int(fields[1].partition(":")[2], 16))
    return sorted(found)


def private_port_of(pid: int) -> int:
    """Where a plugin was told to call piped."""
    arguments = arguments_of(pid)
    address = arguments[arguments.index("--piped-plugin-service") + 1]
    return int(address.rpartition(":")[2])


def arguments_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


def environment_of(pid: int) -> dict[str, str]:
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(each.split("=", 1) for each in variables if "=" in each)


def scripted(world: PluginWorld, *, as_file: bool) -> PluginConfig:
    if not as_file:
        return PluginConfig(name="scriptrun")
    program = Path(sys.executable).parent / "pipecd-plugin-scriptrun"
    assert program.exists()
    return PluginConfig(name="scriptrun", url=str(program))


@AS_ROOT
@pytest.mark.parametrize("as_file", [True, False])
async def test_another_user_gets_nothing_from_any_port_of_a_host(
    world: PluginWorld, tmp_path: Path, as_file: bool
) -> None:
    bait = tmp_path / "bait"
    run = world.run_input("SCRIPT_RUN")
    run.stage_config = f'{{"run": "touch {bait}"}}'.encode()
    execute = Attempt(
        path="/grpc.plugin.deploymentapi.v1alpha1.DeploymentService/ExecuteStage",
        body=api_pb2.ExecuteStageRequest(input=run).SerializeToString().hex(),
    )
    assert execute.path in OF_PLUGINS
    async with world.host(scripted(world, as_file=as_file)) as host:
        await host.plugins["scriptrun"].wait_ready(30)
        [pid] = processes_of(world)
        ports = [*ports_of(pid), private_port_of(pid)]
        assert len(ports) == 2

        for port in ports:
            for address in HOSTS:
                if address == "[::1]" and not as_file and port == ports[0]:
                    continue  # a package serves where piped calls it, and nowhere else
                calls = [execute, *attempts(EVERYTHING), execute]
                statuses = await call_as(NOBODY, f"{address}:{port}", calls)

                assert names_of(statuses) == {"UNAUTHENTICATED"}
        assert host.plugins["scriptrun"].state.phase is Phase.READY
    assert not bait.exists()


@pytest.mark.parametrize("manners", ["managed", "go"])
async def test_piped_proves_itself_on_every_call(world: PluginWorld, manners: str) -> None:
    limits = PluginLimits(probe_interval_seconds=0.2, missed_pings=1000)
    plan = PlanPluginInput(deployment=world.run_input("SUCCEED").deployment)
    async with world.host(world.odd(manners=manners, stages=["SUCCEED"]), limits=limits) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(20)
        await plugin.determine_versions(plan)
        answer = await plugin.execute_stage(world.run_input("SUCCEED"))
        await wait_for(lambda: len(world.facts(about="asked for stages")) > 2)

    assert answer.status == STAGE_SUCCESS
    assert world.facts(about="unproved call") == []


async def test_each_process_gets_secrets_of_its_own_that_nobody_else_sees(
    world: PluginWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    seen = []
    async with world.host(world.odd(manners="go")) as host:
        plugin = host.plugins["odd"]
        for _ in range(2):
            await plugin.wait_ready(30)
            [pid] = processes_of(world)
            environment = environment_of(pid)
            secrets = [environment["PIPECD_PLUGIN_TOKEN"], environment["PIPECD_PIPED_TOKEN"]]
            seen += secrets
            assert not [each for each in secrets if each in " ".join(arguments_of(pid))]
            os.kill(pid, signal.SIGKILL)
            await wait_for(lambda: pid not in processes_of(world))  # noqa: B023 - asked at once

    assert len(set(seen)) == 4
    assert all(len(each) >= 32 for each in seen)
    assert not [each for each in seen if each in caplog.text]
    assert not [each for each in seen if each in os.environ.values()]
    for file in (world.folder / "data").rglob("*"):
        assert not file.is_file() or not any(each.encode() in file.read_bytes() for each in seen)


IMPOSTOR = f"""#!{sys.executable}
import encodings.idna, json, os, socket, sys, time
entry = json.loads(sys.argv[sys.argv.index("--config") + 1])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
family = socket.AF_INET6 if "HOST".startswith("::") else socket.AF_INET
with socket.create_server(("HOST", entry["port"]), family=family) as server:
    while True:
        caller, _ = server.accept()
        told = caller.recv(65536)
        if told:
            print("was told", told, flush=True)
"""


@AS_ROOT
@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "0.0.0.0", *(["::1", "::"] if has_ipv6() else [])],  # noqa: S104 - an attacker's
)
async def test_piped_says_nothing_to_another_user_who_has_the_plugins_port(
    world: PluginWorld, quick: PluginLimits, address: str
) -> None:
    program = world.folder / "impostor"
    program.write_text(IMPOSTOR.replace("HOST", address))
    program.chmod(0o755)
    config = PluginConfig(name="odd", url=str(program), port=pick_port())
    failures = []

    def note(plugin: Plugin) -> None:
        if plugin.state.phase is Phase.FAILED:
            failures.append(plugin.state)

    async with world.host(config, limits=quick, on_change=note):
        await wait_for(lambda: failures)

    assert f"is served by the user {NOBODY} of this machine, not by 0" in failures[0].sentence
    assert failures[0].last_output == (), "it prints what it is told"


async def test_a_stage_is_continued_by_the_next_process_with_its_own_secrets(
    world: PluginWorld, quick: PluginLimits
) -> None:
    async with world.host(world.odd(manners="go", stages=["DIE", "SUCCEED"]), limits=quick) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(30)
        with pytest.raises(PluginLostError):
            await plugin.execute_stage(world.run_input("DIE"))
        await plugin.wait_ready(30)

        answer = await plugin.execute_stage(world.run_input("SUCCEED"))

    assert answer.status == STAGE_SUCCESS
    assert world.facts(about="unproved call") == []
