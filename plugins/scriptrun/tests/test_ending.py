# SPDX-License-Identifier: Apache-2.0
"""Nothing of a script lives, and nothing can start it, when its stage is over. Real processes."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk.scripts.records import ScriptAttempts
from pipecd_sdk.testing.pids import is_alive, wait_for_pid
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, PluginProcess, executable, start_plugin
from pipecd_wire.model import deployment_pb2
from pipecd_wire.rpc import CallError

LIMIT = 60
METADATA = "GetDeploymentPluginMetadata"
LIVES = """
echo $$ > shell
trap 'echo cleaning; sleep 0.3; echo cleaned >> events; exit 9' TERM
echo began >> events; echo running
while :; do sleep 0.05; done
"""
OPTIONS = {"run": LIVES, "onRollback": "echo undone >> events"}


@asynccontextmanager
async def scriptrun(
    piped: FakePiped, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[PluginProcess]:
    async with start_plugin(
        piped,
        [executable("pipecd-plugin-scriptrun")],
        name="scriptrun",
        mode=LaunchMode.DESCRIPTOR,
        entry={"config": {"killGrace": "20s"}},
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


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT):
        while not holds():  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)


def events(folder: Path) -> list[str]:
    """What the scripts have done, in order."""
    file = folder / "events"
    return file.read_text().splitlines() if file.exists() else []


async def leave_running(
    piped: FakePiped, folder: Path, options: Mapping[str, Any] = OPTIONS, stage: str = "SCRIPT_RUN"
) -> int:
    """Run a script whose plugin dies; the pid of its shell."""
    async with scriptrun(piped) as plugin, asyncio.TaskGroup() as tasks:
        executing = plugin.execute(stage, options, stage_id="s1", directory=folder)
        tasks.create_task(status_of(executing))
        await piped.wait_until(lambda: "running" in piped.log("s1").lines)
        plugin.process.kill()
    shell = await wait_for_pid(folder / "shell")
    assert is_alive(shell)
    return shell


class SlowShim:
    """A shim whose plugin dies, and which waits right before it makes its start record."""

    def __init__(self, folder: Path) -> None:
        self._armed = folder / "armed"
        self._armed.mkdir()
        self._held = self._armed / "shim.before-record.reached"
        self.pid = 0

    async def start(self, piped: FakePiped, folder: Path, stage: str = "SCRIPT_RUN") -> None:
        (self._armed / "shim.before-record").write_text("hold 600")
        variables = {"PIPECD_CHAOS_ARMED": str(self._armed)}
        async with (
            scriptrun(piped, environment=variables) as plugin,
            asyncio.TaskGroup() as tasks,
        ):
            executing = plugin.execute(stage, OPTIONS, stage_id="s1", directory=folder)
            tasks.create_task(status_of(executing))
            await until(lambda: self._held.exists() and self._held.read_text().strip().isdigit())
            plugin.process.kill()
        self.pid = int(self._held.read_text())
        assert is_alive(self.pid)

    async def go_on(self) -> None:
        """Let it go on, and wait for its end."""
        self._held.unlink()
        await until(lambda: not is_alive(self.pid))


async def test_a_cancel_reaches_a_script_before_the_next_plugin_follows_it(tmp_path: Path) -> None:
    async with FakePiped() as piped:
        shell = await leave_running(piped, tmp_path)
        async with scriptrun(piped) as plugin, asyncio.TaskGroup() as tasks:
            piped.refuse(METADATA, *["UNAVAILABLE"] * 1000)
            asked = piped.calls[METADATA]
            running = tasks.create_task(
                plugin.execute("SCRIPT_RUN", OPTIONS, stage_id="s1", directory=tmp_path)
            )
            await piped.wait_until(lambda: piped.calls[METADATA] > asked)
            running.cancel()
            await plugin.wait_stage("s1")

            assert not is_alive(shell)
            assert events(tmp_path) == ["began", "cleaned"]


async def test_a_stage_that_fails_before_its_running_script_is_followed_ends_it(
    tmp_path: Path,
) -> None:
    async with FakePiped() as piped:
        shell = await leave_running(piped, tmp_path)
        async with scriptrun(piped) as plugin:
            piped.refuse(METADATA, "INTERNAL")
            answer = await plugin.execute("SCRIPT_RUN", OPTIONS, stage_id="s1", directory=tmp_path)
            is_over = not is_alive(shell)

    assert answer.status == deployment_pb2.STAGE_FAILURE
    assert is_over
    assert events(tmp_path) == ["began", "cleaned"]


async def test_a_shim_that_comes_late_does_not_start_a_cancelled_script(tmp_path: Path) -> None:
    shim = SlowShim(tmp_path)
    async with FakePiped() as piped:
        await shim.start(piped, tmp_path)
        async with scriptrun(piped) as plugin, asyncio.TaskGroup() as tasks:
            piped.refuse(METADATA, *["UNAVAILABLE"] * 1000)
            asked = piped.calls[METADATA]
            running = tasks.create_task(
                plugin.execute("SCRIPT_RUN", OPTIONS, stage_id="s1", directory=tmp_path)
            )
            await piped.wait_until(lambda: piped.calls[METADATA] > asked)
            running.cancel()
            await plugin.wait_stage("s1")
        await shim.go_on()

    assert events(tmp_path) == []


@pytest.mark.parametrize(
    ("forward", "back"),
    [("SCRIPT_RUN", "SCRIPT_RUN_ROLLBACK"), ("CUSTOM_SYNC", "CUSTOM_SYNC_ROLLBACK")],
)
async def test_a_rollback_ends_first_what_it_undoes(
    forward: str, back: str, tmp_path: Path
) -> None:
    """Whatever the agent has asked for before: another plugin's process may not have been told."""
    options = OPTIONS if forward == "SCRIPT_RUN" else {"run": LIVES}
    async with FakePiped() as piped:
        shell = await leave_running(piped, tmp_path, options, forward)
        async with scriptrun(piped) as plugin:
            answer = await plugin.execute(back, options, stage_id="r1", directory=tmp_path)
            is_over = not is_alive(shell)

    assert is_over
    if forward == "SCRIPT_RUN":
        assert answer.status == deployment_pb2.STAGE_SUCCESS, answer.message
        assert events(tmp_path) == ["began", "cleaned", "undone"]
    else:
        assert "nothing to go back to" in answer.message
    assert "Scripts of other stages that had to be ended first: 1" in piped.log("r1").lines


async def test_a_shim_that_comes_after_the_rollback_does_not_start_its_script(
    tmp_path: Path,
) -> None:
    shim = SlowShim(tmp_path)
    async with FakePiped() as piped:
        await shim.start(piped, tmp_path)
        async with scriptrun(piped) as plugin:
            answer = await plugin.execute(
                "SCRIPT_RUN_ROLLBACK", OPTIONS, stage_id="r1", directory=tmp_path
            )
        await shim.go_on()

    assert answer.status == deployment_pb2.STAGE_SUCCESS, answer.message
    assert events(tmp_path) == ["undone"]


async def test_the_next_script_ends_first_what_is_left_of_the_one_before(tmp_path: Path) -> None:
    async with FakePiped() as piped:
        shell = await leave_running(piped, tmp_path)
        async with scriptrun(piped) as plugin:
            answer = await plugin.execute(
                "SCRIPT_RUN",
                {"run": "echo next >> events"},
                index=1,
                stage_id="s2",
                directory=tmp_path,
            )

    assert answer.status == deployment_pb2.STAGE_SUCCESS, answer.message
    assert not is_alive(shell)
    assert events(tmp_path) == ["began", "cleaned", "next"]


@pytest.mark.parametrize("is_started", [True, False], ids=["running", "not started"])
async def test_a_script_whose_stage_was_stopped_meanwhile_is_ended_and_its_log_whole(
    is_started: bool, tmp_path: Path, scripts: Path
) -> None:
    """It does not run again either, although its author would allow that after a loss."""
    options = {**OPTIONS, "onInterrupted": "rerun"}
    shim = SlowShim(tmp_path)
    async with FakePiped() as piped:
        if is_started:
            await leave_running(piped, tmp_path, options)
        else:
            await shim.start(piped, tmp_path)
        ScriptAttempts(scripts, deployment="deployment-1", stage="s1", retry=0)[0].forbid()
        async with scriptrun(piped) as plugin:
            answer = await plugin.execute("SCRIPT_RUN", options, stage_id="s1", directory=tmp_path)
        if not is_started:
            await shim.go_on()

    assert answer.status == deployment_pb2.STAGE_FAILURE
    assert answer.message.startswith("the script was ended: its stage had been stopped")
    assert events(tmp_path) == (["began", "cleaned"] if is_started else [])
    log = piped.log("s1")
    assert log.sealed
    assert [line for line in log.lines if line in {"running", "cleaning"}] == (
        ["running", "cleaning"] if is_started else []
    )


async def test_a_stopped_shim_does_not_keep_its_script_alive(tmp_path: Path, scripts: Path) -> None:
    async with FakePiped() as piped:
        shell = await leave_running(piped, tmp_path)
        record = ScriptAttempts(scripts, deployment="deployment-1", stage="s1", retry=0)[0]
        started = record.read_started()
        assert started is not None
        os.kill(started.pid, signal.SIGSTOP)
        async with scriptrun(piped) as plugin:
            answer = await plugin.execute(
                "SCRIPT_RUN_ROLLBACK", OPTIONS, stage_id="r1", directory=tmp_path
            )

    assert answer.status == deployment_pb2.STAGE_SUCCESS, answer.message
    assert not is_alive(shell)
    assert events(tmp_path) == ["began", "cleaned", "undone"]
