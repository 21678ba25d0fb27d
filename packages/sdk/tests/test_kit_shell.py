# SPDX-License-Identifier: Apache-2.0
"""Programs of a stage: output, exit codes, and an end of everything they started."""

import asyncio
import doctest
from datetime import timedelta
from pathlib import Path

import pytest

from pipecd_sdk import StageContext, StagePlugin, StageStatus, stage
from pipecd_sdk.kit import process, shell
from pipecd_sdk.kit.shell import CommandFailedError, run
from pipecd_sdk.testing import StageHarness
from pipecd_sdk.testing.pids import is_alive, wait_for_pid

TREE = "trap '' TERM; (trap '' TERM; sleep 300) & echo $! > {file}; wait"


class Runner(StagePlugin):
    def __init__(self, command: str) -> None:
        self._command = command

    @stage("RUN")
    async def run_it(self, ctx: StageContext) -> None:
        ctx.log.info("begins")
        await run(self._command, log=ctx.log, grace=timedelta(milliseconds=200))


async def ended(pid: int) -> None:
    async with asyncio.timeout(30):
        while is_alive(pid):  # noqa: ASYNC110 - a process that is not ours has no event
            await asyncio.sleep(0.01)


def test_the_examples_are_true() -> None:
    for module in (shell, process):
        assert doctest.testmod(module).failed == 0


async def test_lines_go_to_the_stage_log_as_they_come(tmp_path: Path) -> None:
    """The first line is there while the program still waits for us."""
    go = tmp_path / "go"
    harness = StageHarness(
        Runner(f"echo one; while [ ! -e {go} ]; do sleep 0.01; done; echo two >&2; printf three")
    )
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("RUN"))
        await harness.wait_logged("one", exact=True)
        go.touch()

    assert (await running).status is StageStatus.SUCCESS
    assert sorted(line.text for line in harness.log) == ["begins", "one", "three", "two"]


async def test_a_list_is_run_without_a_shell_with_input_folder_and_environment(
    tmp_path: Path,
) -> None:
    completed = await run(
        ["sh", "-c", 'cat; pwd; echo "$A" "$1"', "sh", "$HOME; rm"],
        cwd=tmp_path,
        env={"A": "b"},
        input=b"given\n",
    )

    assert completed.output == f"given\n{tmp_path}\nb $HOME; rm\n"


async def test_a_failure_tells_the_exit_code_and_the_last_error() -> None:
    with pytest.raises(
        CommandFailedError, match=r"^the script ended with exit code 3: bad$"
    ) as told:
        await run("echo out; echo worse >&2; echo bad >&2; exit 3")

    assert told.value.completed.output == "out\n"
    assert told.value.completed.exit_code == 3


async def test_a_program_that_is_not_there_is_a_failure_with_its_name() -> None:
    with pytest.raises(CommandFailedError, match="'no-such' could not be started: No such file"):
        await run(["no-such"])


async def test_cancelling_the_stage_ends_the_whole_tree(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    harness = StageHarness(Runner(TREE.format(file=file)))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("RUN"))
        child = await wait_for_pid(file)
        running.cancel()

    assert running.cancelled()
    await ended(child)


async def test_cancelling_ends_what_outlived_its_parent_too(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    harness = StageHarness(Runner(f"sleep 300 & echo $! > {file}; echo $$ > {file}.parent"))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("RUN"))
        child = await wait_for_pid(file)
        await ended(await wait_for_pid(Path(f"{file}.parent")))
        running.cancel()

    await ended(child)


async def test_a_limit_ends_the_whole_tree_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with pytest.raises(CommandFailedError, match="the script did not end within 0:00:01"):
        await run(
            TREE.format(file=file),
            limit=timedelta(seconds=1),
            grace=timedelta(milliseconds=100),
        )

    await ended(await wait_for_pid(file))


async def test_what_a_script_left_in_the_background_does_not_hold_the_stage(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pid"
    async with asyncio.timeout(30):
        # It ends only after it is waited for: asyncio's own pipes would wait for both.
        completed = await run(f"sleep 300 & echo $! > {file}; sleep 0.3; echo done")

    assert completed.output == "done\n"
    await ended(await wait_for_pid(file))


async def test_output_that_is_no_text_and_lines_without_end_are_passed_on() -> None:
    harness = StageHarness(Runner(r"printf '\377ok\n'; head -c 200000 /dev/zero | tr '\0' x"))

    await harness.run("RUN")

    assert harness.log[1].text == "\ufffdok"
    assert sum(len(line.text) for line in harness.log[2:]) == 200_000


async def test_input_that_nobody_reads_is_no_failure() -> None:
    completed = await run(["true"], input=b"x" * 1_000_000)

    assert completed.exit_code == 0


async def test_a_word_from_outside_is_never_an_option(tmp_path: Path) -> None:
    evil = process.word(f"--output={tmp_path}/evil")

    with pytest.raises(CommandFailedError, match="would read it as an option"):
        await run(["sort", evil, "/dev/null"])

    assert not list(tmp_path.iterdir())  # noqa: ASYNC240 - a test
    assert (await run(["sort", "--", process.word("-x")], check=False)).exit_code != 0


async def test_a_script_that_begins_with_a_dash_is_a_script() -> None:
    assert (await run("-x; echo here", check=False)).output == "here\n"


async def test_a_program_finds_the_plugins_environment_without_what_is_pipecds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OF_THE_OPERATOR", "1")
    monkeypatch.setenv("PIPECD_PLUGIN_TOKEN", "secret")
    monkeypatch.setenv("PIPECD_PLUGIN_PROCESS", "a mark")

    found = (await run(["env"], env={"MINE": "2"})).output.splitlines()

    assert {"OF_THE_OPERATOR=1", "MINE=2"} <= {*found}
    assert [line for line in found if line.startswith("PIPECD_")] == [
        "PIPECD_PLUGIN_PROCESS=a mark"
    ], "so that piped finds what a killed plugin has left"


async def test_a_closed_environment_has_only_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERATOR", "here")
    done = await run(["/usr/bin/env"], env={"NAME": "you"}, inherit_env=False)
    names = {line.partition("=")[0] for line in done.output.splitlines()}
    assert "NAME" in names
    assert "OPERATOR" not in names


async def test_output_that_is_more_than_is_kept_is_said_to_be_cut() -> None:
    assert not (await run("echo short")).is_cut
    assert (await run(f"head -c {shell.MOST_KEPT + 200_000} /dev/zero")).is_cut
