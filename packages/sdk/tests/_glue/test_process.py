# SPDX-License-Identifier: Apache-2.0
"""A whole plugin process: results, cancel, stop, plugin management."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk import StageStatus
from pipecd_sdk.testing.pids import is_alive, wait_for_pid
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, PluginProcess, StartError, start_plugin
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.plugin.plugin_pb2 import Refusal
from pipecd_wire.refusals import find_reason
from pipecd_wire.rpc import CallError

BUG = "in the plugin; piped's log has the details"
LAB = [sys.executable, str(Path(__file__).parent.parent / "lab_plugin.py")]


@asynccontextmanager
async def lab(
    piped: FakePiped,
    *,
    mode: LaunchMode = LaunchMode.DESCRIPTOR,
    entry: Mapping[str, Any] | None = None,
    grace: str = "30s",
) -> AsyncIterator[PluginProcess]:
    async with start_plugin(
        piped, LAB, name="lab", mode=mode, entry=entry, flags=["--grace-period", grace]
    ) as plugin:
        yield plugin


# Results


@pytest.mark.parametrize(
    ("outcome", "status", "message"),
    [
        ("", StageStatus.SUCCESS, ""),
        ("exit", StageStatus.EXITED, ""),
        ("skip", StageStatus.SKIPPED, ""),
        ("fail", StageStatus.FAILURE, "it went wrong (try harder)"),
        (
            "bug",
            StageStatus.FAILURE,
            "ZeroDivisionError in the plugin; piped's log has the details",
        ),
    ],
)
async def test_the_end_of_a_handler_is_the_answer(
    outcome: str, status: StageStatus, message: str
) -> None:
    async with FakePiped() as piped, lab(piped) as plugin:
        answer = await plugin.execute("LAB_TELL", {"outcome": outcome}, stage_id="s1")

    assert (StageStatus(answer.status), answer.message) == (status, message)
    assert piped.log("s1").sealed, "the log is complete when the answer is there"
    if message:
        assert piped.log("s1").lines[-1] == message


async def test_a_handler_sees_what_it_was_configured_with() -> None:
    entry = {"config": {"greeting": "moin", "limit": 7}}
    async with FakePiped() as piped, lab(piped, entry=entry) as plugin:
        await plugin.execute("LAB_TELL", {}, stage_id="s1")

    assert piped.log("s1").lines == [
        "moin 7",
        "token: None",
        "targets: []",
        "running: None",
        "quick sync: False",
    ]


async def test_no_options_at_all_are_a_quick_sync() -> None:
    async with FakePiped() as piped, lab(piped) as plugin:
        await plugin.execute("LAB_TELL", None, stage_id="s1")

    assert piped.log("s1").lines[-1] == "quick sync: True"


async def test_ten_thousand_lines_arrive_whole() -> None:
    async with FakePiped() as piped, lab(piped) as plugin:
        await plugin.execute("LAB_FLOOD", {"lines": 10_000}, stage_id="s1")

    assert piped.log("s1").lines == [f"line {number}" for number in range(10_000)]


async def test_a_stage_that_the_plugin_does_not_have_is_refused() -> None:
    async with FakePiped() as piped, lab(piped) as plugin:
        with pytest.raises(CallError) as refused:
            await plugin.execute("OTHER", {})

    assert refused.value.status == "INVALID_ARGUMENT"
    assert refused.value.message == "this plugin has no stage 'OTHER'"


# Cancel


async def test_a_cancelled_call_cancels_the_handler_and_its_end_can_be_waited_for() -> None:
    async with FakePiped() as piped, lab(piped) as plugin, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(plugin.execute("LAB_WAIT", {"linger": "500ms"}, stage_id="s1"))
        await piped.wait_until(lambda: piped.log("s1").lines == ["waiting"])

        running.cancel()
        await plugin.wait_stage("s1")

        assert piped.log("s1").lines == ["waiting", "leaving", "left"]
        assert piped.log("s1").sealed, "a cancelled stage has nothing more to say"


async def test_waiting_for_a_stage_that_does_not_run_ends_at_once() -> None:
    async with FakePiped() as piped, lab(piped) as plugin:
        await plugin.wait_stage("nobody")


async def test_a_stage_that_is_called_again_after_a_lost_call_runs_after_the_first() -> None:
    async with FakePiped() as piped, lab(piped) as plugin, asyncio.TaskGroup() as tasks:
        lost = tasks.create_task(plugin.execute("LAB_WAIT", {"linger": "300ms"}, stage_id="s1"))
        await piped.wait_until(lambda: "waiting" in piped.log("s1").text)
        lost.cancel()

        answer = await plugin.execute("LAB_TELL", {"outcome": "skip"}, stage_id="s1")

        assert answer.status == deployment_pb2.STAGE_SKIPPED
        assert piped.log("s1").lines == ["waiting", "leaving", "left"], "sealed by the cancel"


# Stop


async def test_sigterm_cancels_a_stage_and_leaves_it_to_the_next_process() -> None:
    async with FakePiped() as piped:
        async with lab(piped) as plugin, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(_refused(plugin.execute("LAB_WAIT", {}, stage_id="s1")))
            await piped.wait_until(lambda: piped.log("s1").lines == ["waiting"])

            plugin.process.send_signal(signal.SIGTERM)

            refused = await running
            assert (refused.status, refused.message) == ("UNAVAILABLE", "plugin is stopping")
            assert find_reason(refused) == Refusal.STOPPING
            assert await plugin.exit_code() == 0
        assert piped.log("s1").lines == ["waiting", "leaving", "left"]
        assert not piped.log("s1").sealed

        async with lab(piped) as plugin:
            answer = await plugin.execute("LAB_TELL", {}, stage_id="s1")

        assert answer.status == deployment_pb2.STAGE_SUCCESS
        assert "hello 3" in piped.log("s1").lines


async def test_sigterm_waits_for_a_stage_that_finishes() -> None:
    async with FakePiped() as piped, lab(piped) as plugin, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(plugin.execute("LAB_FINISH", {"linger": "1s"}, stage_id="s1"))
        await piped.wait_until(lambda: piped.log("s1").lines == ["working"])

        plugin.process.send_signal(signal.SIGTERM)

        answer = await running
        assert answer.status == deployment_pb2.STAGE_SUCCESS
        assert piped.log("s1").lines == ["working", "finished"]
        assert piped.log("s1").sealed
        assert await plugin.exit_code() == 0


async def test_no_stage_is_started_after_sigterm() -> None:
    async with FakePiped() as piped, lab(piped) as plugin, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(
            _refused(plugin.execute("LAB_FINISH", {"linger": "1h"}, stage_id="s1"))
        )
        await piped.wait_until(lambda: piped.log("s1").lines == ["working"])

        plugin.process.send_signal(signal.SIGTERM)
        await _stopping(plugin)

        assert not running.done(), "it is still waited for"
        plugin.process.send_signal(signal.SIGTERM)


async def test_a_second_signal_ends_what_was_waited_for() -> None:
    async with FakePiped() as piped, lab(piped) as plugin, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(
            _refused(plugin.execute("LAB_FINISH", {"linger": "1h"}, stage_id="s1"))
        )
        await piped.wait_until(lambda: piped.log("s1").lines == ["working"])

        plugin.process.send_signal(signal.SIGTERM)
        await _stopping(plugin)
        plugin.process.send_signal(signal.SIGTERM)

        assert (await running).message == "plugin is stopping"
        assert await plugin.exit_code() == 0
        assert piped.log("s1").lines == ["working", "interrupted, ending: True"]
        assert not piped.log("s1").sealed


async def test_the_process_ends_within_its_grace_period_whatever_a_handler_does() -> None:
    async with FakePiped() as piped, lab(piped, grace="1s") as plugin, asyncio.TaskGroup() as tasks:
        tasks.create_task(_refused(plugin.execute("LAB_WAIT", {"linger": "1h"}, stage_id="s1")))
        await piped.wait_until(lambda: piped.log("s1").lines == ["waiting"])
        started = time.monotonic()

        plugin.process.send_signal(signal.SIGTERM)

        assert await plugin.exit_code() == 1
        assert time.monotonic() - started < 10


async def test_an_idle_plugin_stops_at_once() -> None:
    async with FakePiped() as piped, lab(piped) as plugin:
        plugin.process.send_signal(signal.SIGINT)

        assert await plugin.exit_code() == 0
        assert not [line for line in plugin.output if "Traceback" in line]


async def test_a_plugin_dies_with_its_piped(tmp_path: Path) -> None:
    """The parent is killed, so it cannot say goodbye: the kernel does."""
    entry = '{"name": "lab", "port": 0}'
    program = (
        "import subprocess, sys, time\n"
        f"command = {[str(part) for part in LAB]!r}\n"
        f"plugin = subprocess.Popen([*command, 'start', '--piped-plugin-service', 'localhost:1',"
        f" '--config', {entry!r}], stderr=subprocess.PIPE)\n"
        "plugin.stderr.readline()\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(f'{{plugin.pid}}\\n')\n"
        "time.sleep(60)\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    pid = await wait_for_pid(tmp_path / "pid")
    assert is_alive(pid)

    parent.kill()
    await parent.wait()

    async with asyncio.timeout(10):
        while is_alive(pid):  # noqa: ASYNC110 - a foreign process has no event
            await asyncio.sleep(0.01)


# Plugin management


@pytest.mark.parametrize("mode", LaunchMode)
async def test_ready_tells_who_is_there_and_where(mode: LaunchMode) -> None:
    async with FakePiped() as piped, lab(piped, mode=mode) as plugin:
        await piped.wait_until(lambda: bool(piped.ready))
        (ready,) = piped.ready

        assert (ready.name, ready.version, ready.pid) == ("lab", "1.2.3", plugin.process.pid)
        assert ready.port > 0
        assert list(ready.stages_without_files) == ["LAB_WAIT"]


async def test_pings_follow_at_the_interval_that_piped_wants() -> None:
    async with FakePiped(ping_interval_seconds=0.05) as piped, lab(piped):
        await piped.wait_until(lambda: piped.calls["Ping"] >= 5)


async def test_a_missed_ping_is_no_reason_to_end() -> None:
    async with FakePiped(ping_interval_seconds=0.05) as piped, lab(piped) as plugin:
        piped.refuse("Ping", "UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL")
        await piped.wait_until(lambda: piped.calls["Ping"] >= 6)

        assert plugin.process.returncode is None


async def test_a_piped_that_is_slow_to_serve_is_waited_for() -> None:
    async with FakePiped() as piped:
        piped.refuse("Ready", *["UNAVAILABLE"] * 3)
        async with lab(piped):
            assert piped.calls["Ready"] == 4


@pytest.mark.parametrize("rpc", ["Ready", "Ping"])
async def test_a_process_that_piped_has_given_up_on_ends(rpc: str) -> None:
    async with FakePiped(ping_interval_seconds=0.05) as piped:
        piped.refuse(rpc, "FAILED_PRECONDITION")
        ended = await asyncio.create_subprocess_exec(
            *[str(part) for part in LAB],
            *["start", "--piped-plugin-service", piped.address],
            *["--config", '{"name": "lab", "port": 0}'],
            env={**os.environ, "PIPECD_PLUGIN_TOKEN": piped.token},
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(30):
            _, text = await ended.communicate()

    assert ended.returncode == 1
    assert f"piped refused {rpc}: FAILED_PRECONDITION".encode() in text
    assert b"Traceback" not in text


async def test_an_invitation_to_an_agent_without_management_is_no_problem() -> None:
    """The variable may come from somewhere else; the agent is a Go one all the same."""
    async with FakePiped(managed=False) as piped:
        piped.token = "left over from another agent"  # noqa: S105 - a fake one
        async with lab(piped, mode=LaunchMode.COMMAND_LINE) as plugin:
            answer = await plugin.execute("LAB_TELL", {}, stage_id="s1")

    assert answer.status == deployment_pb2.STAGE_SUCCESS
    assert piped.log("s1").sealed


# Start


@pytest.mark.parametrize("mode", LaunchMode)
async def test_under_our_piped_nobody_else_on_the_network_reaches_the_plugin(
    mode: LaunchMode,
) -> None:
    """Whoever reaches it can have a stage run, and a stage may be a script."""
    async with FakePiped() as piped, lab(piped, mode=mode) as plugin:
        found = listening_addresses(plugin.port)

    assert found
    assert found <= LOOPBACK


LISTENS = "0A"
LOOPBACK = {
    "0100007F",  # 127.0.0.1
    "0000000000000000FFFF00000100007F",  # the same, as a socket of the other family has it
    "00000000000000000000000001000000",  # ::1
}


def listening_addresses(port: int) -> set[str]:
    """The addresses on which a port of this machine is listened to, as the kernel writes them."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            address, _, state = line.split()[1:4]
            if state == LISTENS and int(address.split(":")[1], 16) == port:
                found.add(address.split(":")[0])
    return found


async def test_wrong_options_are_told_and_end_the_process_with_2() -> None:
    async with FakePiped() as piped:
        with pytest.raises(StartError, match=r"config\.limit: "):
            async with lab(piped, entry={"config": {"limit": "many"}}):
                pass


async def test_a_taken_port_is_told_in_a_sentence() -> None:
    async with FakePiped(managed=False) as piped, lab(piped, mode=LaunchMode.COMMAND_LINE) as first:
        port = first.port
        ended = await asyncio.create_subprocess_exec(
            *[str(part) for part in LAB],
            *["start", "--piped-plugin-service", piped.address],
            *["--config", f'{{"name": "lab", "port": {port}}}'],
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(30):
            _, text = await ended.communicate()

    assert ended.returncode == 1
    assert b"cannot listen on" in text
    assert b"Traceback" not in text


async def _refused(call: Awaitable[object]) -> CallError:
    try:
        await call
    except CallError as error:
        return error
    raise AssertionError("it was not refused")


async def _stopping(plugin: PluginProcess) -> None:
    """Wait until the plugin has noticed that it is to stop."""
    async with asyncio.timeout(30):
        while True:
            try:
                await plugin.execute("LAB_TELL", {"outcome": "skip"}, stage_id="probe", index=9)
            except CallError as error:
                if error.message == "plugin is stopping":
                    return
                raise
