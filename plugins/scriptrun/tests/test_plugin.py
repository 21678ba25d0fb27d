# SPDX-License-Identifier: Apache-2.0
"""SCRIPT_RUN and its rollback: real shells, in the test's own process."""

import asyncio
import os
import signal
import stat
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from pipecd_plugin_scriptrun.plugin import ScriptRun

from pipecd_sdk import Clock, PipedError, Severity, StageStatus
from pipecd_sdk.testing import InMemoryMetadata, StageHarness
from pipecd_sdk.testing.pids import is_alive, wait_for_pid


def script_harness(folder: Path, *, kill_grace: str = "10s") -> StageHarness[ScriptRun]:
    return StageHarness(
        ScriptRun(), clock=Clock(), config={"killGrace": kill_grace}, directory=folder
    )


def output(harness: StageHarness[ScriptRun]) -> list[str]:
    """What the script itself wrote: after its own text, before the last sentence."""
    lines = [line.text for line in harness.log]
    start = next(i for i, line in enumerate(lines) if i and not line.startswith("  "))
    return lines[start:-1]


async def test_a_script_runs_in_the_application_directory(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)

    result = await harness.run("SCRIPT_RUN", {"run": "pwd; echo done > made-by-script"})

    assert result.status is StageStatus.SUCCESS
    assert output(harness) == [str(tmp_path)]
    assert (tmp_path / "made-by-script").read_text() == "done\n"


async def test_the_log_has_the_script_then_its_output_then_the_result(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)

    await harness.run("SCRIPT_RUN", {"run": "echo $MSG\necho err >&2\n", "env": {"MSG": "hi"}})

    assert [line.text for line in harness.log] == [
        "Running:",
        "  echo $MSG",
        "  echo err >&2",
        "hi",
        "err",
        "The script has succeeded",
    ]
    assert harness.log[-1].severity is Severity.SUCCESS


async def test_the_exit_code_is_the_reason_of_a_failure(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)

    result = await harness.run("SCRIPT_RUN", {"run": "exit 3"})

    assert result.status is StageStatus.FAILURE
    assert result.reason == "the script failed with exit code 3"
    assert (harness.log[-1].severity, harness.log[-1].text) == (Severity.ERROR, result.reason)


async def test_a_script_ended_by_a_signal_says_so(tmp_path: Path) -> None:
    result = await script_harness(tmp_path).run("SCRIPT_RUN", {"run": "kill -9 $$"})

    assert result.reason == "the script was ended by SIGKILL"


async def test_a_list_of_commands_is_one_script_that_stops_at_a_failure(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)

    result = await harness.run("SCRIPT_RUN", {"runs": ["A=1", "echo $A", "false", "echo never"]})

    assert result.reason == "the script failed with exit code 1"
    assert output(harness) == ["1", "pipecd: command 3 of 4 failed with exit code 1"]


async def test_lines_come_while_the_script_runs(tmp_path: Path) -> None:
    """Seen before the end: the script ends only after its output was read."""
    harness = script_harness(tmp_path)
    script = "echo first; while ! [ -e go ]; do sleep 0.02; done"
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}))
        await harness.wait_logged("first", exact=True)

        assert not running.done()
        (tmp_path / "go").touch()


async def test_a_line_without_end_is_shown_too(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)
    script = "printf 'are you sure? '; while ! [ -e go ]; do sleep 0.02; done"
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}))
        await harness.wait_logged("are you sure? ", exact=True)
        (tmp_path / "go").touch()


async def test_much_output_arrives_whole_and_in_order(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)

    await harness.run("SCRIPT_RUN", {"run": "seq 1 20000"})

    assert output(harness) == [str(number) for number in range(1, 20001)]


async def test_a_script_gets_no_input(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)

    result = await harness.run("SCRIPT_RUN", {"run": "read answer || echo nobody answers"})

    assert result.status is StageStatus.SUCCESS
    assert output(harness) == ["nobody answers"]


async def test_the_script_is_a_private_file_and_no_argument(tmp_path: Path) -> None:
    """What stands in a command line can be read by everybody on the machine."""
    harness = script_harness(tmp_path)
    script = 'echo "$0"; tr "\\0" " " < /proc/$$/cmdline; echo; stat -c %a "$0"'

    await harness.run("SCRIPT_RUN", {"run": script})

    file, command, mode = output(harness)
    assert command.split() == ["/bin/sh", "-l", file]
    assert mode == f"{stat.S_IRUSR | stat.S_IWUSR:o}"
    assert not Path(file).exists()  # noqa: ASYNC240 - nothing else runs


async def test_a_missing_folder_fails_with_a_reason(tmp_path: Path) -> None:
    harness = script_harness(tmp_path / "gone")

    result = await harness.run("SCRIPT_RUN", {"run": "true"})

    assert result.status is StageStatus.FAILURE
    assert result.reason.startswith("the script could not be started: ")


async def test_a_script_without_files_does_not_run_somewhere_else() -> None:
    harness = StageHarness(ScriptRun(), clock=Clock(), directory=None)

    result = await harness.run("SCRIPT_RUN", {"run": "pwd"})

    assert result.status is StageStatus.FAILURE
    assert result.reason.startswith("piped sent no files for this stage")


# Marks: at most once, and never silently


async def test_the_start_is_marked_before_the_first_command(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)
    async with asyncio.TaskGroup() as tasks:
        script = "echo here; while ! [ -e go ]; do sleep 0.02; done"
        tasks.create_task(harness.run("SCRIPT_RUN", {"run": script}, index=4))
        await harness.wait_logged("here", exact=True)

        assert harness.deployment_metadata["started-4"] == "_"
        (tmp_path / "go").touch()


async def test_an_interrupted_script_is_not_run_again(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)
    harness.deployment_metadata["started-0"] = "_"

    result = await harness.run("SCRIPT_RUN", {"run": "touch ran-again"})

    assert result.status is StageStatus.FAILURE
    assert "interrupted" in result.reason
    assert "not run again" in result.reason
    assert not (tmp_path / "ran-again").exists()


async def test_a_script_that_cannot_be_marked_is_not_started(tmp_path: Path) -> None:
    """Without the mark a rollback would not know of it, and it could run twice."""

    class Broken(InMemoryMetadata):
        async def put_many(self, values: Mapping[str, str]) -> None:
            raise PipedError(f"cannot keep {', '.join(values)}")

    harness = script_harness(tmp_path)
    harness.deployment_metadata = Broken()

    result = await harness.run("SCRIPT_RUN", {"run": "touch ran"})

    assert result.status is StageStatus.FAILURE
    assert not (tmp_path / "ran").exists()


def list_once_ready(scripts: Path) -> set[str]:
    """The files of a record, as soon as its shim has written the script."""
    over = time.monotonic() + 30
    while not list(scripts.rglob("script.sh.*")):
        assert time.monotonic() < over
        time.sleep(0.005)
    return {each.name for each in scripts.rglob("*")}


async def test_a_script_is_ready_while_it_is_marked_and_starts_only_then(
    tmp_path: Path, scripts: Path
) -> None:
    """Its shim has all it needs by then; a start without the mark could be a second one."""

    class Slow(InMemoryMetadata):
        seen: set[str]

        async def put_many(self, values: Mapping[str, str]) -> None:
            self.seen = await asyncio.to_thread(list_once_ready, scripts)
            await super().put_many(values)

    harness = script_harness(tmp_path)
    marks = harness.deployment_metadata = Slow()

    result = await harness.run("SCRIPT_RUN", {"run": "touch ran"})

    assert result.status is StageStatus.SUCCESS
    assert {"intent", "output", "grace"} <= marks.seen
    assert not {"started", "lock", "script.sh"} & marks.seen
    assert (tmp_path / "ran").exists()


# Rollback


async def test_a_started_script_is_rolled_back_with_its_own_variables(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)
    options = {"run": "exit 1", "onRollback": "echo $MSG $SR_IS_ROLLBACK", "env": {"MSG": "undo"}}
    await harness.run("SCRIPT_RUN", options, index=2)
    harness.log.clear()

    result = await harness.run("SCRIPT_RUN_ROLLBACK", options, index=2)

    assert result.status is StageStatus.SUCCESS
    assert output(harness) == ["undo true"]


async def test_a_script_that_never_started_is_not_rolled_back(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)
    harness.deployment_metadata["started-0"] = "_"  # another one
    options = {"run": "true", "onRollback": "touch rolled-back"}

    result = await harness.run("SCRIPT_RUN_ROLLBACK", options, index=1)

    assert result.status is StageStatus.SUCCESS
    assert harness.text == "The script had not been started: there is nothing to roll back"
    assert not (tmp_path / "rolled-back").exists()


async def test_an_interrupted_rollback_is_not_run_again(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)
    options = {"run": "true", "runsOnRollback": ["touch rolled-back"]}
    await harness.run("SCRIPT_RUN", options)
    harness.deployment_metadata["rollback-started-0"] = "_"

    result = await harness.run("SCRIPT_RUN_ROLLBACK", options)

    assert result.status is StageStatus.FAILURE
    assert not (tmp_path / "rolled-back").exists()


# What a script leaves behind


async def test_a_failed_script_leaves_nothing_running(tmp_path: Path) -> None:
    """The rollback comes next, and must not meet it."""
    harness = script_harness(tmp_path)
    script = "setsid sleep 300 & echo $! > child; exit 1"

    result = await harness.run("SCRIPT_RUN", {"run": script})

    assert result.status is StageStatus.FAILURE
    assert not is_alive(await wait_for_pid(tmp_path / "child"))


async def test_a_background_process_that_writes_belongs_to_the_script(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)

    result = await harness.run("SCRIPT_RUN", {"run": "(sleep 0.3; echo late) & echo early"})

    assert result.status is StageStatus.SUCCESS
    assert output(harness) == ["early", "late"]


async def test_a_daemon_of_a_successful_script_may_live_on(tmp_path: Path) -> None:
    harness = script_harness(tmp_path)
    script = "setsid sleep 300 >/dev/null 2>&1 & echo $! > daemon"

    result = await harness.run("SCRIPT_RUN", {"run": script})

    daemon = await wait_for_pid(tmp_path / "daemon")
    assert result.status is StageStatus.SUCCESS
    assert is_alive(daemon)
    os.kill(daemon, signal.SIGKILL)


@pytest.mark.parametrize("given", [{"killGrace": "-1s"}, {"killGrace": "soon"}])
async def test_a_wrong_option_of_the_plugin_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(Exception, match="killGrace"):
        StageHarness(ScriptRun(), config=given)
