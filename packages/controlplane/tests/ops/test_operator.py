# SPDX-License-Identifier: Apache-2.0
"""A backup is asked of the server that owns the folder, by whoever may use the folder."""

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pipecd_controlplane.ops.operator import LONGEST, SOCKET, ask_for_backup, serving_operator
from pipecd_controlplane.store.blobs.config import BlobFolder
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.sqlite.backup import restore
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE
from pipecd_model.errors import PipecdError
from pipecd_test_support.controlplane_server import Serve, ServedControlPlane
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.rpc import call

LIMIT = 60.0


async def pipecd(*arguments: str) -> tuple[int, str]:
    """Run the command; answers its code and all that it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from pipecd_controlplane.cli import main; main()",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(LIMIT):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return process.returncode or 0, said.decode()


@pytest.mark.sqlite
async def test_a_running_server_writes_the_backup_itself(
    plane: ServedControlPlane, serve: Serve, tmp_path: Path
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    folder, file = str(tmp_path / "data"), str(tmp_path / "copy.tar")

    code, said = await pipecd("backup", "--data-dir", folder, "--output", file)
    assert (code, f"wrote {file}" in said) == (0, True), said
    code, said = await pipecd("restore", "--input", file, "--data-dir", f"{folder}-2")
    assert code == 0, said

    async with serve(tmp_path / "data-2") as second:
        listed = await call(second.admin.api.ListApplications, apiservice.ListApplicationsRequest())
    assert [each.id for each in listed.applications] == [application_id]


async def test_the_folder_of_a_server_that_is_down_is_copied_as_well(tmp_path: Path) -> None:
    async with open_database(
        SqliteFolder(folder=tmp_path / "data"), on_commit=lambda _changes: None
    ):
        pass
    assert ask_for_backup(tmp_path / "data", tmp_path / "copy.tar") is None

    code, said = await pipecd(
        "backup", "--data-dir", str(tmp_path / "data"), "--output", str(tmp_path / "copy.tar")
    )

    assert code == 0, said
    restore(tmp_path / "copy.tar", tmp_path / "restored")
    assert (tmp_path / "restored" / DATABASE_FILE).exists()


@pytest.mark.sqlite
async def test_a_refusal_comes_back_as_a_sentence(
    plane: ServedControlPlane, tmp_path: Path
) -> None:
    (tmp_path / "there.tar").write_text("x")

    code, said = await pipecd(
        "backup", "--data-dir", str(tmp_path / "data"), "--output", str(tmp_path / "there.tar")
    )

    assert code == 1
    assert "exists already" in said
    assert (tmp_path / "there.tar").read_text() == "x"


async def test_only_the_folders_user_can_ask(plane: ServedControlPlane, tmp_path: Path) -> None:
    path = tmp_path / "data" / SOCKET

    assert path.is_socket()
    assert path.stat().st_mode & 0o077 == 0


async def test_the_socket_goes_with_the_server_and_one_that_was_left_is_no_hindrance(
    tmp_path: Path,
) -> None:
    deep = tmp_path / ("x" * 90) / ("y" * 90)  # longer than the address of a socket
    deep.mkdir(parents=True)
    (deep / SOCKET).write_text("left")

    async with serving_operator(
        deep, SqliteFolder(folder=deep), BlobFolder(folder=deep), lambda: 5
    ):
        assert (deep / SOCKET).is_socket()
    assert not (deep / SOCKET).exists()


@pytest.mark.parametrize("line", [b"\n", b"not json\n", b"[]\n", b'{"x": 1}\n', b"x" * LONGEST * 2])
async def test_nonsense_is_answered_and_does_no_harm(tmp_path: Path, line: bytes) -> None:
    async with serving_operator(
        tmp_path, SqliteFolder(folder=tmp_path), BlobFolder(folder=tmp_path), lambda: 5
    ):
        for _ in range(2):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
            writer.write(line)
            writer.write_eof()
            async with asyncio.timeout(LIMIT):
                answer = await reader.read()
            writer.transport.abort()
            assert b"nothing to ask for" in answer


async def test_a_server_that_goes_away_is_said(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / SOCKET))
        listener.listen()

        async def hang_up() -> None:
            connection, _ = await asyncio.to_thread(listener.accept)
            await asyncio.to_thread(connection.recv, 1000)
            connection.close()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(hang_up())
            with pytest.raises(PipecdError, match="stopped before"):
                await asyncio.to_thread(ask_for_backup, tmp_path, tmp_path / "copy.tar")
