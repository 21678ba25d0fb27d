# SPDX-License-Identifier: Apache-2.0
"""A disk that takes nothing: a sentence, never a second run, and it goes on when there is room.

A limit on the size of files, which can be set from outside at any moment, stands in for the disk:
programs see a write that fails, as they do on a full one.
"""

import asyncio
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipecd_runtime.shim import start
from pipecd_runtime.shim.runner import NOT_STARTED, RELEASE
from pipecd_sdk.scripts.output import OutputFile
from pipecd_sdk.scripts.records import EndRecord, ScriptRecord
from pipecd_sdk.scripts.shim_client import Script, _job
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, executable, start_plugin
from pipecd_wire.model import deployment_pb2

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
FULL = (0, resource.RLIM_INFINITY)
SHIM = [sys.executable, "-I", "-S", str(start.__file__)]


def limit(process: Process, size: tuple[int, int]) -> None:
    """From now on no file may be longer."""
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, size)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - other processes make it true
            await asyncio.sleep(0.01)


@asynccontextmanager
async def shim(
    folder: Path, text: str, *, command: list[str] = SHIM, full: bool = False
) -> AsyncIterator[tuple[Process, ScriptRecord]]:
    """A shim that was given a script."""
    record = ScriptRecord(folder=folder / "record")
    record.begin("token")
    script = Script(
        text=text,
        directory=folder,
        environment={"PATH": "/usr/bin:/bin"},
        token="token",  # noqa: S106 - a name, not a secret
        kill_grace_seconds=1.0,
    )
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=DEVNULL)
    assert process.stdin is not None
    try:
        if full:
            limit(process, FULL)
        process.stdin.write(_job(record, script, 0) + RELEASE)
        await process.stdin.drain()
        process.stdin.close()
        yield process, record
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def told(record: ScriptRecord) -> list[str]:
    """What the log of the script would show."""
    output = OutputFile(record.output)
    try:
        blocks = output.read() or []
        return [block.text for block in (*blocks, *output.rest())]
    finally:
        output.close()


async def test_a_shim_without_room_starts_nothing_and_leaves_no_sign_of_a_start(
    tmp_path: Path,
) -> None:
    async with shim(tmp_path, "echo x >> ran", full=True) as (process, record):
        assert await process.wait() == NOT_STARTED
    assert not record.is_started()
    assert not (tmp_path / "ran").exists()

    async with shim(tmp_path, "echo x >> ran") as (process, record):
        assert await process.wait() == 0
    assert record.read_ended() == EndRecord(code=0, asked=False)
    assert (tmp_path / "ran").read_text() == "x\n"


async def test_a_script_goes_on_while_the_disk_is_full_and_its_log_says_what_is_missing(
    tmp_path: Path,
) -> None:
    # More than a pipe holds: when it is written, the shim has read the most of it.
    script = "echo first; while ! [ -e full ]; do sleep 0.01; done\n"
    script += "head -c 500000 /dev/zero | tr '\\0' x; echo; echo x >> wrote\n"
    script += "while ! [ -e room ]; do sleep 0.01; done; echo third"
    async with shim(tmp_path, script) as (process, record):
        await until(lambda: record.output.exists() and told(record) == ["first"])
        limit(process, FULL)
        (tmp_path / "full").touch()
        await until((tmp_path / "wrote").exists)
        limit(process, NO_LIMIT)
        (tmp_path / "room").touch()
        assert await process.wait() == 0
    assert record.read_ended() == EndRecord(code=0, asked=False)
    lines = told(record)
    assert lines[0] == "first"
    assert lines[-1] == "third"
    loss = "bytes of output are lost: there was no room for them on the disk"
    assert sum(line.endswith(loss) for line in lines) == 1


async def test_the_end_of_a_script_is_kept_as_soon_as_there_is_room(tmp_path: Path) -> None:
    script = "echo x >> ran; while ! [ -e full ]; do sleep 0.01; done; echo x >> ended; exit 7"
    async with shim(tmp_path, script) as (process, record):
        await until((tmp_path / "ran").exists)
        limit(process, FULL)
        (tmp_path / "full").touch()
        await until((tmp_path / "ended").exists)
        await until(lambda: not (record.folder / "script.sh").exists())  # the script is over
        assert record.is_locked()
        assert record.read_ended() is None
        limit(process, NO_LIMIT)
        assert await process.wait() == 0
    assert record.read_ended() == EndRecord(code=7, asked=False)
    assert (tmp_path / "ran").read_text() == "x\n"


async def test_a_script_that_writes_for_ever_does_not_fill_the_disk(tmp_path: Path) -> None:
    small = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "from pipecd_runtime.shim import runner\n"
        "runner.LARGEST_OUTPUT = 10_000\n"
        "sys.exit(runner.main())"
    )
    source = str(Path(str(start.__file__)).parents[2])
    command = [sys.executable, "-I", "-S", "-c", small, source]
    async with shim(tmp_path, "echo begin; seq 1 100000", command=command) as (process, record):
        assert await process.wait() == 0
    assert record.read_ended() == EndRecord(code=0, asked=False)
    assert record.output.stat().st_size < 11_000
    lines = told(record)
    assert lines[0] == "begin"
    assert lines[-1].endswith("bytes of output are left out: the log of a script holds 10000 bytes")


async def test_a_plugin_without_room_fails_the_stage_and_runs_nothing(tmp_path: Path) -> None:
    options = {"run": "echo x >> ran"}
    async with (
        FakePiped() as piped,
        start_plugin(
            piped,
            [executable("pipecd-plugin-scriptrun")],
            name="scriptrun",
            mode=LaunchMode.DESCRIPTOR,
        ) as plugin,
    ):
        limit(plugin.process, FULL)
        failed = await plugin.execute("SCRIPT_RUN", options, stage_id="s1", directory=tmp_path)
        assert failed.status == deployment_pb2.STAGE_FAILURE
        assert "the script's record cannot be kept" in failed.message
        assert not (tmp_path / "ran").exists()

        limit(plugin.process, NO_LIMIT)
        done = await plugin.execute("SCRIPT_RUN", options, stage_id="s2", directory=tmp_path)
        assert done.status == deployment_pb2.STAGE_SUCCESS, done.message
        assert (tmp_path / "ran").read_text() == "x\n"


async def test_a_folder_that_takes_nothing_fails_the_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPECD_SCRIPTS_DIR", "/proc/scripts")
    async with (
        FakePiped() as piped,
        start_plugin(
            piped,
            [executable("pipecd-plugin-scriptrun")],
            name="scriptrun",
            mode=LaunchMode.DESCRIPTOR,
        ) as plugin,
    ):
        options = {"run": "echo x >> ran"}
        failed = await plugin.execute("SCRIPT_RUN", options, stage_id="s1", directory=tmp_path)
    assert failed.status == deployment_pb2.STAGE_FAILURE
    assert "the script's record cannot be kept" in failed.message
    assert not (tmp_path / "ran").exists()
