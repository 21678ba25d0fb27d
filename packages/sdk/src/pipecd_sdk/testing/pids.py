# SPDX-License-Identifier: Apache-2.0
"""Processes that a tested stage started, seen from outside."""

import asyncio
from pathlib import Path

POLL_SECONDS = 0.01


async def wait_for_pid(file: Path, *, limit: float = 30) -> int:
    """Waits until a process has written its pid to a file, and returns it.

    Raises TimeoutError after `limit` seconds.
    """
    async with asyncio.timeout(limit):
        while not (text := _text(file)).endswith("\n"):  # noqa: ASYNC110 - files have no event
            await asyncio.sleep(POLL_SECONDS)
    return int(text)


def is_alive(pid: int) -> bool:
    """Returns whether a process runs; a zombie, which is not reaped yet, does not."""
    stat = _text(Path(f"/proc/{pid}/stat"))
    return bool(stat) and stat.rpartition(")")[2].split()[0] != "Z"


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
