# SPDX-License-Identifier: Apache-2.0
"""Shims that are forked before a script needs them: separate from all others, and never left."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pipecd_plugin_scriptrun.plugin import ScriptRun

from pipecd_sdk import Clock, StageStatus
from pipecd_sdk.scripts.prefork import SHIMS
from pipecd_sdk.testing import StageHarness
from pipecd_sdk.testing.pids import is_alive, wait_for_pid
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import executable, start_plugin
from pipecd_wire.model import deployment_pb2

LOOK = """
cat /proc/$PPID/stat > stat
readlink /proc/$PPID/fd/* > descriptors
tr '\\0' '\\n' < /proc/$PPID/environ > environment
"""


@pytest.fixture(autouse=True)
async def pool() -> AsyncIterator[None]:
    """Every test begins without a ready shim, and leaves none."""
    SHIMS.drop()
    yield
    SHIMS.drop()


def shims_below(parent: int) -> dict[int, int]:
    """The living shims and templates below a process, with the parent of each."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if b"/shim/start.py" in command and fields[0] != "Z":
            parents[int(entry.name)] = int(fields[1])
    templates = {pid for pid, above in parents.items() if above == parent}
    return {pid: above for pid, above in parents.items() if above in {parent, *templates}}


async def wait_for_shims(parent: int) -> dict[int, int]:
    """Returns the template and the ready shim below a process, as soon as both are there."""
    async with asyncio.timeout(60):
        while len(found := shims_below(parent)) < 2:  # noqa: ASYNC110 - other processes do it
            await asyncio.sleep(0.01)
    return found


async def wait_gone(pids: dict[int, int]) -> None:
    async with asyncio.timeout(60):
        while any(is_alive(pid) for pid in pids):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)


def harness(folder: Path) -> StageHarness[ScriptRun]:
    return StageHarness(ScriptRun(), clock=Clock(), directory=folder)


async def test_a_ready_shim_and_its_template_end_with_a_plugin_that_is_killed(
    tmp_path: Path,
) -> None:
    async with (
        FakePiped() as piped,
        start_plugin(
            piped, [executable("pipecd-plugin-scriptrun")], name="scriptrun", entry={}
        ) as plugin,
    ):
        answer = await plugin.execute(
            "SCRIPT_RUN", {"run": "true"}, stage_id="s1", directory=tmp_path
        )
        assert answer.status == deployment_pb2.STAGE_SUCCESS
        ready = await wait_for_shims(plugin.process.pid)
        plugin.process.kill()

        await wait_gone(ready)


async def test_a_script_goes_on_when_the_template_of_its_shim_is_killed(tmp_path: Path) -> None:
    script = "echo $PPID > shim; while ! [ -e go ]; do sleep 0.01; done; echo done"
    stage = harness(tmp_path)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(stage.run("SCRIPT_RUN", {"run": script}))
        shim = await wait_for_pid(tmp_path / "shim")
        template = shims_below(os.getpid())[shim]
        os.kill(template, signal.SIGKILL)
        (tmp_path / "go").touch()

    assert running.result().status is StageStatus.SUCCESS
    again = await harness(tmp_path).run("SCRIPT_RUN", {"run": "true"})
    assert again.status is StageStatus.SUCCESS


async def test_a_closed_pool_leaves_no_process(tmp_path: Path) -> None:
    SHIMS.prepare()
    ready = await wait_for_shims(os.getpid())
    SHIMS.drop()

    await wait_gone(ready)


async def test_a_shim_has_a_session_and_nothing_of_plugin_and_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_PLUGIN", "hidden")
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        SHIMS.prepare()
        result = await harness(tmp_path).run("SCRIPT_RUN", {"run": LOOK})

    assert result.status is StageStatus.SUCCESS
    begin, _, rest = (tmp_path / "stat").read_text().rpartition(")")
    session = int(rest.split()[3])
    assert session == int(begin.split()[0])
    descriptors = (tmp_path / "descriptors").read_text().split("\n")
    assert not any("socket:" in each for each in descriptors), descriptors
    assert str(tmp_path / "open") not in descriptors
    environment = (tmp_path / "environment").read_text().split("\n")
    assert not any("hidden" in each for each in environment)
