# SPDX-License-Identifier: Apache-2.0
"""piped ends scripts by what is on record, without a plugin. The plugin and its shims are real."""

import asyncio
import fcntl
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipecd_piped.scripts.ending import RunningScripts
from pipecd_piped.scripts.records import forget
from pipecd_sdk.testing.pids import is_alive, wait_for_pid
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, executable, start_plugin
from pipecd_test_support.contracts import ScriptsCase, ScriptsContract
from pipecd_test_support.piped_parts import FakeScripts
from pipecd_wire.rpc import CallError

LIMIT = 60
DEPLOYMENT = "deployment-1"
LIVES = """
echo $PPID > shim
echo $$ > shell
trap 'sleep 0.3; echo cleaned >> events; exit 9' TERM
setsid sh -c 'echo $$ > daemon; exec sleep 600' >/dev/null 2>&1 &
while ! [ -s daemon ]; do sleep 0.02; done
echo began >> events; echo running
while :; do sleep 0.05; done
"""


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the plugin keeps the records of scripts."""
    folder = tmp_path / "scripts"
    monkeypatch.setenv("PIPECD_SCRIPTS_DIR", str(folder))
    return folder


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not holds():  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)


async def ended(executing: Awaitable[object]) -> None:
    """Wait for a call that its plugin does not survive."""
    with pytest.raises(CallError):
        await executing


@asynccontextmanager
async def left_by_a_dead_plugin(
    folder: Path, run: str = LIVES, *, shim_held_in: Path | None = None
) -> AsyncIterator[None]:
    """A script whose plugin is killed: when it runs, or while its shim waits before its record."""
    variables = {"PIPECD_CHAOS_ARMED": str(shim_held_in)} if shim_held_in else None
    async with FakePiped() as piped:
        async with (
            start_plugin(
                piped,
                [executable("pipecd-plugin-scriptrun")],
                name="scriptrun",
                mode=LaunchMode.DESCRIPTOR,
                entry={"config": {"killGrace": "20s"}},
                environment=variables,
            ) as plugin,
            asyncio.TaskGroup() as tasks,
        ):
            executing = plugin.execute("SCRIPT_RUN", {"run": run}, stage_id="s1", directory=folder)
            tasks.create_task(ended(executing))
            if shim_held_in is None:
                await piped.wait_until(lambda: "running" in piped.log("s1").lines)
            else:
                await until(lambda: bool(held_pid(shim_held_in)))
            plugin.process.kill()
        yield


def hold_shim(folder: Path) -> Path:
    """Let the next shim wait right before it makes its start record."""
    armed = folder / "armed"
    armed.mkdir()
    (armed / "shim.before-record").write_text("hold 600")
    return armed


def held_pid(armed: Path) -> int:
    held = armed / "shim.before-record.reached"
    text = held.read_text().strip() if held.exists() else ""
    return int(text) if text.isdigit() else 0


async def let_shim_go(armed: Path) -> None:
    """And wait for its end."""
    pid = held_pid(armed)
    (armed / "shim.before-record.reached").unlink()
    await until(lambda: not is_alive(pid))


def events(folder: Path) -> list[str]:
    file = folder / "events"
    return file.read_text().splitlines() if file.exists() else []


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


async def test_a_script_that_lives_has_ended_with_all_it_started(
    tmp_path: Path, scripts: Path
) -> None:
    async with left_by_a_dead_plugin(tmp_path):
        pids = [await wait_for_pid(tmp_path / name) for name in ("shim", "shell", "daemon")]
        assert all(is_alive(pid) for pid in pids)

        assert await RunningScripts(scripts).end(DEPLOYMENT) == 1

        assert not any(is_alive(pid) for pid in pids[1:])
        assert events(tmp_path) == ["began", "cleaned"], "it could clean up"
        assert await RunningScripts(scripts).end(DEPLOYMENT) == 0


async def test_a_shim_that_comes_late_does_not_start_its_script(
    tmp_path: Path, scripts: Path
) -> None:
    armed = hold_shim(tmp_path)
    async with left_by_a_dead_plugin(tmp_path, shim_held_in=armed):
        await RunningScripts(scripts).end(DEPLOYMENT)
        await let_shim_go(armed)

    assert events(tmp_path) == []


async def test_a_shim_that_comes_after_its_record_was_removed_does_not_start_its_script(
    tmp_path: Path, scripts: Path
) -> None:
    armed = hold_shim(tmp_path)
    async with left_by_a_dead_plugin(tmp_path, shim_held_in=armed):
        assert forget(scripts, DEPLOYMENT)
        await let_shim_go(armed)

    assert events(tmp_path) == []
    assert names_in(scripts) == []


async def test_what_a_dead_shim_has_left_is_ended(tmp_path: Path, scripts: Path) -> None:
    async with left_by_a_dead_plugin(tmp_path):
        shim, shell, daemon = [
            await wait_for_pid(tmp_path / name) for name in ("shim", "shell", "daemon")
        ]
        os.kill(shim, signal.SIGKILL)
        await until(lambda: not is_alive(shim))

        await RunningScripts(scripts).end(DEPLOYMENT)

        assert not is_alive(shell)
        assert not is_alive(daemon)


async def test_a_shim_that_was_stopped_ends_its_script(tmp_path: Path, scripts: Path) -> None:
    async with left_by_a_dead_plugin(tmp_path):
        os.kill(await wait_for_pid(tmp_path / "shim"), signal.SIGSTOP)

        await RunningScripts(scripts).end(DEPLOYMENT)

        assert not is_alive(await wait_for_pid(tmp_path / "shell"))


async def test_only_the_scripts_of_one_stage_or_all_but_those_are_ended(
    tmp_path: Path, scripts: Path
) -> None:
    async with left_by_a_dead_plugin(tmp_path):
        shell = await wait_for_pid(tmp_path / "shell")
        assert await RunningScripts(scripts).end("deployment-2") == 0
        assert await RunningScripts(scripts).end(DEPLOYMENT, only="s2") == 0
        assert await RunningScripts(scripts).end(DEPLOYMENT, only="s1-0.0") == 0
        assert await RunningScripts(scripts).end(DEPLOYMENT, but="s1") == 0
        assert is_alive(shell)

        assert await RunningScripts(scripts).end(DEPLOYMENT, only="s1") == 1

        assert not is_alive(shell)


async def test_all_scripts_of_the_folder_can_be_ended(tmp_path: Path, scripts: Path) -> None:
    async with left_by_a_dead_plugin(tmp_path):
        assert await RunningScripts(scripts).end_all() == 1
        assert not is_alive(await wait_for_pid(tmp_path / "shell"))


async def test_a_daemon_that_a_script_has_left_on_purpose_is_none_of_it(
    tmp_path: Path, scripts: Path
) -> None:
    """A script that has ended is over, whatever it has put to work."""
    run = "setsid sh -c 'echo $$ > daemon; exec sleep 600' >/dev/null 2>&1 & echo running"
    record = scripts / DEPLOYMENT / "s1-0.0"
    async with FakePiped() as piped:
        async with start_plugin(
            piped,
            [executable("pipecd-plugin-scriptrun")],
            name="scriptrun",
            mode=LaunchMode.DESCRIPTOR,
        ) as plugin:
            await plugin.execute("SCRIPT_RUN", {"run": run}, stage_id="s1", directory=tmp_path)
        daemon = await wait_for_pid(tmp_path / "daemon")
        assert (record / "exit").exists()

        assert await RunningScripts(scripts).end(DEPLOYMENT) == 0

        assert is_alive(daemon)
        os.kill(daemon, signal.SIGKILL)


async def test_nobody_else_is_signalled_whatever_is_on_record(scripts: Path) -> None:
    """Its number may belong to another process by now, or have been written by somebody."""
    record = scripts / DEPLOYMENT / "s1-0.0"
    record.mkdir(parents=True)
    (record / "grace").write_text("0\n")
    bystander = await asyncio.create_subprocess_exec("sleep", "600", start_new_session=True)
    try:
        (record / "started").write_text(f"{bystander.pid} 1\n")
        with (record / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            ending = asyncio.ensure_future(RunningScripts(scripts).end(DEPLOYMENT))
            await asyncio.wait([ending], timeout=1)
            assert not ending.done(), "the lock says that it lives"
        await ending
        assert bystander.returncode is None
        assert is_alive(bystander.pid)
    finally:
        bystander.kill()
        await bystander.wait()


class TestScriptsOnRecord(ScriptsContract):
    @pytest.fixture
    async def case(self, tmp_path: Path, scripts: Path) -> AsyncIterator[ScriptsCase]:
        async with left_by_a_dead_plugin(tmp_path):
            yield ScriptsCase(
                scripts=RunningScripts(scripts), deployment_id=DEPLOYMENT, stage_id="s1"
            )
            await RunningScripts(scripts).end(DEPLOYMENT)


class TestFakeScripts(ScriptsContract):
    @pytest.fixture
    def case(self) -> ScriptsCase:
        scripts = FakeScripts([])
        scripts.alive.add("s1")
        return ScriptsCase(scripts=scripts, deployment_id=DEPLOYMENT, stage_id="s1")
