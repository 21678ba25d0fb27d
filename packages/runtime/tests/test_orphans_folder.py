# SPDX-License-Identifier: Apache-2.0
"""Orphans of a folder that is about to be removed."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from pipecd_runtime.orphans import Search, end_orphans


def sleeper(cwd: Path, argument: str = "") -> "subprocess.Popen[bytes]":
    """Returns a shell whose child runs already, as the line that it writes says."""
    process = subprocess.Popen(
        ["sh", "-c", "sleep 300 & echo started; wait", argument],
        cwd=cwd,
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"started\n"
    return process


async def test_what_works_in_the_folder_or_names_it_is_ended_and_nothing_else(
    tmp_path: Path,
) -> None:
    folder, sibling = tmp_path / "one", tmp_path / "one-more"
    folder.mkdir()
    sibling.mkdir()
    there = sleeper(folder)
    naming = sleeper(tmp_path, f"{folder}/script.sh")
    beside = sleeper(sibling)
    try:
        ended = await end_orphans(Search(folder=folder))

        assert ended == 4, "two shells, each with its sleep"
        assert there.wait(10) != 0
        assert naming.wait(10) != 0
        assert beside.poll() is None
    finally:
        for process in (there, naming, beside):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
