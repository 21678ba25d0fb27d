# SPDX-License-Identifier: Apache-2.0
"""A cancelled script: the whole tree is ended, before the handler is. Real processes."""

import asyncio
import time
from pathlib import Path

import pytest
from pipecd_plugin_scriptrun.plugin import ScriptRun

from pipecd_sdk import Clock
from pipecd_sdk.testing import StageHarness
from pipecd_sdk.testing.pids import is_alive, wait_for_pid


def script_harness(folder: Path, *, kill_grace: str = "10s") -> StageHarness[ScriptRun]:
    return StageHarness(
        ScriptRun(), clock=Clock(), config={"killGrace": kill_grace}, directory=folder
    )


async def cancel(running: "asyncio.Task[object]", *, limit: float) -> float:
    """Cancel and wait for the handler's end; the value is the seconds that took."""
    started = time.monotonic()
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=limit)
    assert done, "the handler did not end"
    assert running.cancelled()
    return time.monotonic() - started


async def test_cancel_ends_the_script_with_all_its_children(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)
    script = "sleep 300 & echo $! > child; sh -c 'echo $$ > grandchild; sleep 300; :'; true"
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}))
        child = await wait_for_pid(tmp_path / "child")
        grandchild = await wait_for_pid(tmp_path / "grandchild")

        await cancel(running, limit=30)

    assert not is_alive(child)
    assert not is_alive(grandchild)


async def test_cancel_lets_a_script_clean_up_and_shows_what_it_says(tmp_path: Path) -> None:
    harness = script_harness(tmp_path, kill_grace="30s")
    script = "trap 'echo cleaning; touch cleaned; exit 1' TERM; echo ready; sleep 300 & wait"
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}))
        await harness.wait_logged("ready", exact=True)

        await cancel(running, limit=30)

    assert (tmp_path / "cleaned").exists()
    assert harness.log[-1].text == "cleaning"


async def test_cancel_leaves_the_commands_of_the_cleaning_up_alone(tmp_path: Path) -> None:
    harness = script_harness(tmp_path, kill_grace="30s")
    script = (
        "clean() { sleep 1; touch cleaned; exit 1; }\ntrap clean TERM; echo ready; sleep 300 & wait"
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}))
        await harness.wait_logged("ready", exact=True)

        await cancel(running, limit=30)

    assert (tmp_path / "cleaned").exists()
    assert "did not end in time" not in harness.text


@pytest.mark.parametrize("kill_grace", ["10s", "1ns"], ids=["asked", "killed"])
@pytest.mark.parametrize("shell", ["", "setsid "], ids=["same group", "own session"])
async def test_cancel_ends_a_shell_before_its_next_command(
    tmp_path: Path, shell: str, kill_grace: str
) -> None:
    """Its command ends too: a shell that outlives it for a moment would go on."""
    trap = "trap '' TERM;" if kill_grace == "1ns" else ""
    (tmp_path / "inner.sh").write_text(
        f"{trap} for i in 1 2 3 4 5 6 7 8; do (echo $i; sleep 300; touch went-on) & done\n"
        "echo ready; sleep 300; touch went-on"
    )
    harness = script_harness(tmp_path, kill_grace=kill_grace)
    async with asyncio.TaskGroup() as tasks:
        script = f"{shell}sh inner.sh; touch went-on"
        running = tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}))
        await harness.wait_logged("ready", exact=True)
        await harness.wait_logged("8", exact=True)

        await cancel(running, limit=30)

    assert not (tmp_path / "went-on").exists()


async def test_cancel_finds_a_daemon_in_a_session_of_its_own(tmp_path: Path) -> None:
    """Double-forked and with a new session: neither the group nor the parents lead to it."""
    harness = script_harness(tmp_path)
    script = (
        "(setsid sh -c 'echo $$ > daemon; exec sleep 300' >/dev/null 2>&1 &) \n"
        "while ! [ -s daemon ]; do sleep 0.02; done; echo ready; sleep 300"
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}))
        await harness.wait_logged("ready", exact=True)
        daemon = await wait_for_pid(tmp_path / "daemon")
        assert is_alive(daemon)

        await cancel(running, limit=30)

    assert not is_alive(daemon)


async def test_cancel_kills_what_ignores_the_request(tmp_path: Path) -> None:
    harness = script_harness(tmp_path, kill_grace="300ms")
    script = (
        "trap '' TERM\n"
        "setsid sh -c 'trap \"\" TERM; echo $$ > daemon; while :; do sleep 1; done' &\n"
        "while ! [ -s daemon ]; do sleep 0.02; done; echo ready\n"
        "while :; do sleep 1; done"
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}))
        await harness.wait_logged("ready", exact=True)

        seconds = await cancel(running, limit=30)

    assert seconds >= 0.3
    assert not is_alive(await wait_for_pid(tmp_path / "daemon"))
    assert "that did not end in time" in harness.text


async def test_cancel_finds_a_child_without_our_token_when_its_parents_are_there(
    tmp_path: Path,
) -> None:
    harness = script_harness(tmp_path, kill_grace="300ms")
    script = (
        "env -i setsid sh -c 'trap \"\" TERM; echo $$ > hidden; while :; do sleep 1; done' &\n"
        "while ! [ -s hidden ]; do sleep 0.02; done; echo ready; wait"
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}))
        await harness.wait_logged("ready", exact=True)

        await cancel(running, limit=30)

    assert not is_alive(await wait_for_pid(tmp_path / "hidden"))


async def test_cancel_finds_an_orphan_without_our_token_in_the_scripts_session(
    tmp_path: Path,
) -> None:
    harness = script_harness(tmp_path)
    script = (
        "(env -i sh -c 'echo $$ > orphan; exec sleep 300' &)\n"
        "while ! [ -s orphan ]; do sleep 0.02; done; echo ready; sleep 300"
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}))
        await harness.wait_logged("ready", exact=True)
        orphan = await wait_for_pid(tmp_path / "orphan")
        assert is_alive(orphan)

        await cancel(running, limit=30)

    assert not is_alive(orphan)


async def test_a_stopped_process_is_ended_too(tmp_path: Path) -> None:
    harness = script_harness(tmp_path, kill_grace="30s")
    script = "sh -c 'echo $$ > stopped; kill -STOP $$' & echo ready; wait"
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}))
        await harness.wait_logged("ready", exact=True)
        stopped = await wait_for_pid(tmp_path / "stopped")

        seconds = await cancel(running, limit=20)

    assert not is_alive(stopped)
    assert seconds < 20, "it was asked to end, not killed after the grace period"


async def test_the_grace_period_is_cut_short_when_the_plugin_itself_must_end(
    tmp_path: Path,
) -> None:
    harness = script_harness(tmp_path, kill_grace="1h")
    async with asyncio.TaskGroup() as tasks:
        script = "trap '' TERM; echo ready; while :; do sleep 1; done"
        running = tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}))
        await harness.wait_logged("ready", exact=True)

        harness.is_ending = True
        await cancel(running, limit=30)
