# SPDX-License-Identifier: Apache-2.0
"""What dies while a script runs: at most once, and never silently. Real processes are killed."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipecd_runtime.shim.chaos import BOUNDARIES
from pipecd_sdk.testing.pids import is_alive, wait_for_pid
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, PluginProcess, executable, start_plugin
from pipecd_wire.model import deployment_pb2
from pipecd_wire.rpc import CallError

COMMAND = [executable("pipecd-plugin-scriptrun")]
SCRIPT = "echo x >> ran; echo first; sleep 0.2; echo second; echo; printf third"
OUTPUT = ["first", "second", " ", "third"]
STUBBORN = """
echo $PPID > shim
echo $$ > shell
setsid sh -c 'trap "" TERM; echo $$ > daemon; while :; do sleep 1; done' &
while ! [ -s daemon ]; do sleep 0.02; done
echo running
sleep 300
"""
INTERRUPTED = "the script was interrupted: "


@asynccontextmanager
async def scriptrun(
    piped: FakePiped, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[PluginProcess]:
    """The plugin, started as the given agent does it."""
    async with start_plugin(
        piped,
        COMMAND,
        name="scriptrun",
        mode=LaunchMode.DESCRIPTOR if piped.managed else LaunchMode.COMMAND_LINE,
        entry={"config": {"killGrace": "300ms"}},
        environment=environment,
    ) as plugin:
        yield plugin


async def status_of(executing: Awaitable[object]) -> str:
    """OK, or the status that a call was answered with."""
    try:
        await executing
    except CallError as error:
        return error.status
    return "OK"


def kill_at(boundary: str, folder: Path, **more: str) -> dict[str, str]:
    """Variables that let the first process die there; it leaves the file `died`."""
    return {
        "PIPECD_CHAOS_KILL_AT": boundary,
        "PIPECD_CHAOS_ONCE": str(folder / "died"),
        **{f"PIPECD_CHAOS_{name}": value for name, value in more.items()},
    }


def ran(folder: Path) -> int:
    """How often the script has run."""
    file = folder / "ran"
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.mark.parametrize("managed", [True, False], ids=["ours", "go"])
@pytest.mark.parametrize("boundary", [each for each in BOUNDARIES if each.startswith("plugin.")])
async def test_a_script_does_not_notice_the_death_of_its_plugin(
    boundary: str, managed: bool, tmp_path: Path
) -> None:
    async with FakePiped(managed=managed) as piped:
        async with scriptrun(piped, environment=kill_at(boundary, tmp_path)) as plugin:
            executing = plugin.execute(
                "SCRIPT_RUN", {"run": SCRIPT}, stage_id="s1", directory=tmp_path
            )
            assert await status_of(executing) == "UNAVAILABLE"
            assert await plugin.exit_code() == -signal.SIGKILL

        async with scriptrun(piped) as plugin:
            answer = await plugin.execute(
                "SCRIPT_RUN", {"run": SCRIPT}, stage_id="s1", directory=tmp_path
            )

    assert answer.status == deployment_pb2.STAGE_SUCCESS, answer.message
    assert ran(tmp_path) == 1
    log = piped.log("s1")
    assert log.lines == ["Running:", f"  {SCRIPT}", *OUTPUT, "The script has succeeded"]
    assert log.sealed
    if not managed:
        assert log.durable == log.blocks.keys()


@pytest.mark.parametrize(
    ("boundary", "known"),
    [
        ("shim.before-record", True),
        ("shim.after-record", False),
        ("shim.running", False),
        ("shim.output", False),
        ("shim.script-ended", False),
        ("shim.exit-record", True),
    ],
)
async def test_only_what_is_known_of_a_dead_shim_is_a_success(
    boundary: str, known: bool, tmp_path: Path
) -> None:
    async with (
        FakePiped() as piped,
        scriptrun(piped, environment=kill_at(boundary, tmp_path)) as plugin,
    ):
        answer = await plugin.execute(
            "SCRIPT_RUN", {"run": SCRIPT}, stage_id="s1", directory=tmp_path
        )

    assert (tmp_path / "died").exists()
    assert ran(tmp_path) <= 1
    if known:
        assert answer.status == deployment_pb2.STAGE_SUCCESS
        assert ran(tmp_path) == 1
    else:
        assert answer.status == deployment_pb2.STAGE_FAILURE
        assert answer.message.startswith(INTERRUPTED)


def test_every_boundary_is_tested() -> None:
    assert len(BOUNDARIES) == 12


async def test_what_a_dead_shim_leaves_is_ended_before_its_stage_fails(tmp_path: Path) -> None:
    """The rollback comes next, and must not meet it."""
    async with FakePiped() as piped, scriptrun(piped) as plugin, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(
            plugin.execute("SCRIPT_RUN", {"run": STUBBORN}, stage_id="s1", directory=tmp_path)
        )
        await piped.wait_until(lambda: "running" in piped.log("s1").lines)
        shell, daemon = [await wait_for_pid(tmp_path / name) for name in ("shell", "daemon")]

        os.kill(await wait_for_pid(tmp_path / "shim"), signal.SIGKILL)
        answer = await running

    assert answer.status == deployment_pb2.STAGE_FAILURE
    assert answer.message.startswith(INTERRUPTED)
    assert not is_alive(shell)
    assert not is_alive(daemon)


async def test_an_author_may_allow_a_second_run(tmp_path: Path) -> None:
    options = {"run": "echo x >> ran; echo $(wc -l < ran). run", "onInterrupted": "rerun"}
    async with (
        FakePiped() as piped,
        scriptrun(piped, environment=kill_at("shim.output", tmp_path)) as plugin,
    ):
        answer = await plugin.execute("SCRIPT_RUN", options, stage_id="s1", directory=tmp_path)

    assert answer.status == deployment_pb2.STAGE_SUCCESS
    assert ran(tmp_path) == 2
    heading = ["Running:", f"  {options['run']}"]
    lines = piped.log("s1").lines
    assert lines[:3] == [*heading, "1. run"]
    assert lines[-5:] == [
        "The script was interrupted: it is run again, as its author allows",
        *heading,
        "2. run",
        "The script has succeeded",
    ]


async def test_a_lost_data_folder_is_noticed_and_its_processes_are_ended(
    tmp_path: Path, scripts: Path
) -> None:
    async with FakePiped() as piped:
        async with scriptrun(piped) as plugin, asyncio.TaskGroup() as tasks:
            executing = plugin.execute(
                "SCRIPT_RUN", {"run": STUBBORN}, stage_id="s1", directory=tmp_path
            )
            tasks.create_task(status_of(executing))
            await piped.wait_until(lambda: "running" in piped.log("s1").lines)
            plugin.process.kill()
        pids = [await wait_for_pid(tmp_path / name) for name in ("shim", "shell", "daemon")]
        assert all(is_alive(pid) for pid in pids)
        os.rename(scripts, scripts.with_name("lost"))  # noqa: PTH104 - nothing else runs

        async with scriptrun(piped) as plugin:
            answer = await plugin.execute(
                "SCRIPT_RUN", {"run": STUBBORN}, stage_id="s1", directory=tmp_path
            )

    assert answer.status == deployment_pb2.STAGE_FAILURE
    assert answer.message.startswith(INTERRUPTED)
    shim, *others = pids
    assert not any(is_alive(pid) for pid in others)
    async with asyncio.timeout(30):
        while is_alive(shim):  # noqa: ASYNC110 - it ends by itself, and tells nobody
            await asyncio.sleep(0.01)


async def test_a_cancel_reaches_a_script_that_an_earlier_plugin_started(tmp_path: Path) -> None:
    async with FakePiped() as piped:
        async with scriptrun(piped) as plugin, asyncio.TaskGroup() as tasks:
            executing = plugin.execute(
                "SCRIPT_RUN", {"run": STUBBORN}, stage_id="s1", directory=tmp_path
            )
            tasks.create_task(status_of(executing))
            await piped.wait_until(lambda: "running" in piped.log("s1").lines)
            plugin.process.kill()
        pids = [await wait_for_pid(tmp_path / name) for name in ("shell", "daemon")]

        async with scriptrun(piped) as plugin, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(
                plugin.execute("SCRIPT_RUN", {"run": STUBBORN}, stage_id="s1", directory=tmp_path)
            )
            calls = piped.calls["ReportStageLogs"]
            await piped.wait_until(lambda: piped.calls["ReportStageLogs"] > calls)
            running.cancel()
            await plugin.wait_stage("s1")

            # The shim itself ends a moment later, when its exit record is durable.
            assert not any(is_alive(pid) for pid in pids)
            assert piped.log("s1").sealed


async def test_two_plugins_that_start_a_script_at_once_run_it_once(tmp_path: Path) -> None:
    async with (
        FakePiped() as piped,
        scriptrun(piped) as one,
        scriptrun(piped) as other,
        asyncio.TaskGroup() as tasks,
    ):
        answers = [
            tasks.create_task(
                plugin.execute("SCRIPT_RUN", {"run": SCRIPT}, stage_id="s1", directory=tmp_path)
            )
            for plugin in (one, other)
        ]

    assert [answer.result().status for answer in answers] == [deployment_pb2.STAGE_SUCCESS] * 2
    assert ran(tmp_path) == 1
    assert [line for line in piped.log("s1").lines if line in OUTPUT] == OUTPUT


@pytest.mark.parametrize("without", ["", "sync"], ids=["synced", "not synced"])
async def test_a_start_record_survives_a_loss_of_power(without: str, tmp_path: Path) -> None:
    """And where it is not synced, the script runs twice: the test would notice."""
    variables = kill_at("shim.output", tmp_path, POWER="1", WITHOUT=without)
    async with FakePiped() as piped, scriptrun(piped, environment=variables) as plugin:
        answer = await plugin.execute(
            "SCRIPT_RUN", {"run": SCRIPT}, stage_id="s1", directory=tmp_path
        )

    if without:
        assert ran(tmp_path) == 2
    else:
        assert ran(tmp_path) == 1
        assert answer.message.startswith(INTERRUPTED)


async def test_a_flood_is_bounded_in_memory(tmp_path: Path) -> None:
    """One line of 24 MB, garbage, and many short lines; told by the shim's and plugin's peaks."""
    # The same in every run, and no line of it looks like the long one.
    garbage = random.Random(7).randbytes(2_000_000).replace(b"x", b"y")  # noqa: S311
    (tmp_path / "garbage").write_bytes(garbage)
    script = (
        "head -c 24000000 /dev/zero | tr '\\0' x; echo; cat garbage; echo\n"
        "seq 1 200000; grep VmHWM /proc/$PPID/status > shim-peak"
    )
    async with FakePiped() as piped, scriptrun(piped) as plugin:
        idle = peak_of(Path(f"/proc/{plugin.process.pid}/status"))
        answer = await plugin.execute(
            "SCRIPT_RUN", {"run": script}, stage_id="s1", directory=tmp_path
        )
        busy = peak_of(Path(f"/proc/{plugin.process.pid}/status"))

    assert answer.status == deployment_pb2.STAGE_SUCCESS
    lines = piped.log("s1").lines
    assert sum(len(line) for line in lines if line.startswith("xx")) == 24_000_000
    assert lines[-200_001:-1] == [str(number) for number in range(1, 200_001)]
    assert peak_of(tmp_path / "shim-peak") < 20_000
    assert busy - idle < 80_000


def peak_of(status: Path) -> int:
    """Peak memory in kB."""
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])
