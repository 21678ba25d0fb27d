# SPDX-License-Identifier: Apache-2.0
"""A disk that is full, read-only or damaged: a sentence, and nothing is lost that was there."""

import asyncio
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from pipecd_test_support.controlplane_process import RunServer
from pipecd_test_support.small_disk import SmallDisk
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.apiservice import service_pb2_grpc as api_grpc
from pipecd_wire.rpc import CallError, call, connect

pytestmark = pytest.mark.sqlite

LIMIT = 60.0

START = """
import resource, sys
import pipecd_controlplane.cli
from pipecd_test_support.bound_by_modes import obey_modes
size = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
obey_modes()
pipecd_controlplane.cli.main()
"""
"""No file may grow beyond a size: what a full disk is to a program that writes. Modes of folders
count for it, also when it is root's."""


async def refused(folder: Path, *, size: int = resource.RLIM_INFINITY) -> str:
    """Start a server that must not come up; answers what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        START,
        str(size),
        *("server", "--data-dir", str(folder), "--listen", "127.0.0.1:0"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(LIMIT):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    said = output.decode()
    assert process.returncode == 1
    assert said.startswith("error: ")
    assert said.count("\n") == 1, "a traceback is no sentence"
    return said


@asynccontextmanager
async def user_at(address: str, folder: Path) -> AsyncIterator[Any]:
    key = (folder / "admin.key").read_text().strip()
    async with connect(address, metadata=lambda: [("authorization", f"API-KEY {key}")]) as channel:
        yield api_grpc.APIServiceStub(channel)


def may_write(process: asyncio.subprocess.Process, size: int) -> None:
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def test_a_full_disk_refuses_writes_with_a_sentence_until_there_is_space(
    server: RunServer, tmp_path: Path
) -> None:
    async with server(tmp_path) as running, user_at(running.address, tmp_path) as user:
        before = await call(user.RegisterPiped, api.RegisterPipedRequest(name="before"))

        may_write(running.process, 0)
        for _ in range(3):
            with pytest.raises(CallError) as caught:
                await call(user.RegisterPiped, api.RegisterPipedRequest(name="meanwhile"))
            assert caught.value.status == "UNAVAILABLE"
            assert caught.value.message.startswith("cannot write to the database: ")
            assert "is the disk full?" in caught.value.message
        known = await call(user.GetPiped, api.GetPipedRequest(piped_id=before.id))
        assert known.piped.name == "before", "what is there can be read all the time"

        may_write(running.process, resource.RLIM_INFINITY)
        after = await call(user.RegisterPiped, api.RegisterPipedRequest(name="after"))
        running.process.terminate()
        assert await running.wait_ended() == 0

    async with server(tmp_path) as again, user_at(again.address, tmp_path) as user:
        for made in (before, after):
            known = await call(user.GetPiped, api.GetPipedRequest(piped_id=made.id))
            assert known.piped.id == made.id


@pytest.mark.parametrize("trouble", ["full", "read-only"])
async def test_a_file_system_that_takes_no_writes_is_said_until_it_does(
    server: RunServer, small_disk: SmallDisk, trouble: str
) -> None:
    """A real one, whose files may be written at its first start and not later."""
    folder = small_disk.make_folder("data")
    async with server(folder) as running, user_at(running.address, folder) as user:
        before = await call(user.RegisterPiped, api.RegisterPipedRequest(name="before"))
        running.process.terminate()
        assert await running.wait_ended() == 0
    if trouble == "full":
        small_disk.fill()
    else:
        small_disk.set_read_only(is_read_only=True)
    assert "restore it from a backup" not in await refused(folder)

    if trouble == "full":
        small_disk.empty()
    else:
        small_disk.set_read_only(is_read_only=False)
    async with server(folder) as running, user_at(running.address, folder) as user:
        known = await call(user.GetPiped, api.GetPipedRequest(piped_id=before.id))
        assert known.piped.name == "before"
        small_disk.fill()

        async def write_on() -> None:
            for number in range(200):
                await call(user.RegisterPiped, api.RegisterPipedRequest(name=f"piped {number}"))

        with pytest.raises(CallError) as caught:
            await write_on()
        assert caught.value.status == "UNAVAILABLE"
        assert caught.value.message.startswith("cannot write to the database: ")
        small_disk.empty()
        await call(user.RegisterPiped, api.RegisterPipedRequest(name="after"))


async def test_a_file_that_may_only_be_read_is_refused(server: RunServer, tmp_path: Path) -> None:
    async with server(tmp_path):
        pass
    file = tmp_path / "pipecd.db"
    file.chmod(0o400)
    content = file.read_bytes()

    said = await refused(tmp_path)

    assert f"cannot use the database {str(file)!r}: Permission denied" in said
    assert file.read_bytes() == content


@pytest.mark.parametrize("size", [0, 10, 4096, 40_000])
async def test_a_disk_that_is_full_at_the_first_start_is_no_harm(
    server: RunServer, tmp_path: Path, size: int
) -> None:
    """Wherever the first start is cut short, the next one begins again."""
    folder = tmp_path / "data"

    assert "free space" in await refused(folder, size=size)

    async with server(folder) as running:
        assert running.lines[0].startswith("pipecd server listening on ")


async def test_a_disk_that_is_full_at_a_later_start_costs_no_data(
    server: RunServer, tmp_path: Path
) -> None:
    async with server(tmp_path) as running, user_at(running.address, tmp_path) as user:
        made = await call(user.RegisterPiped, api.RegisterPipedRequest(name="kept"))

    assert "restore it from a backup" not in await refused(tmp_path, size=0)

    async with server(tmp_path) as running, user_at(running.address, tmp_path) as user:
        await call(user.GetPiped, api.GetPipedRequest(piped_id=made.id))


async def test_a_read_only_folder_is_refused_with_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o500)

    said = await refused(folder)

    assert f"cannot use the data folder {str(folder)!r}: Permission denied" in said


async def test_a_file_that_another_process_has_locked_is_refused(
    server: RunServer, tmp_path: Path
) -> None:
    async with server(tmp_path):
        pass
    script = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()\n"
    )
    holder = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        str(tmp_path / "pipecd.db"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        async with asyncio.timeout(LIMIT):
            assert await holder.stdout.readline() == b"locked\n"
        said = await refused(tmp_path)
    finally:
        holder.stdin.close()
        await holder.wait()

    assert said == (
        f"error: the database {str(tmp_path / 'pipecd.db')!r} is locked by another program"
        " (close whatever has it open, for example a sqlite3 shell)\n"
    )


@pytest.mark.parametrize("damage", ["cut", "page", "end"])
async def test_a_damaged_file_is_refused_and_left_as_it_is(
    server: RunServer, tmp_path: Path, damage: str
) -> None:
    async with server(tmp_path) as running, user_at(running.address, tmp_path) as user:
        for number in range(5):
            await call(user.RegisterPiped, api.RegisterPipedRequest(name=f"piped {number}"))
        running.process.terminate()
        assert await running.wait_ended() == 0
    path = tmp_path / "pipecd.db"
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "page":
        content[page_of_pipeds(path) : page_of_pipeds(path) + 512] = b"\xa5" * 512
    else:
        content = content[:-100]
    path.write_bytes(content)

    said = await refused(tmp_path)

    assert said.startswith(f"error: cannot use the database {str(path)!r}")
    assert "restore it from a backup, or move it away to start with an empty one" in said
    assert path.read_bytes() == content


def page_of_pipeds(path: Path) -> int:
    """Where in the file the table of the pipeds begins."""
    with closing(sqlite3.connect(path)) as reader:
        size = reader.execute("PRAGMA page_size").fetchone()[0]
        page = reader.execute("SELECT rootpage FROM sqlite_master WHERE name = 'piped'").fetchone()
    return int(size * (page[0] - 1))
