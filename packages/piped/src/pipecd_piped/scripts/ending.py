# SPDX-License-Identifier: Apache-2.0
"""Ends scripts before anything may follow them: the next stage, the rollback, the deployment's end.

A script outlives piped and the plugin that started it. So the piped that ends a stage may have just
started, and the plugin may not have been called, be lost or be removed. The records on disk decide
then: a start record is written in place of a shim that has not made its own, so that it cannot
start the script; a shim that runs gets the signal to end its script; the processes that a dead shim
has left are ended here.
"""

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipecd_piped.scripts.processes import FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS, end_marked
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger
from pipecd_runtime.script_records import (
    EXIT,
    GRACE,
    INTENT,
    LOCK,
    STARTED,
    STOPPED,
    find_deployment_folder,
    list_deployment_folders,
    list_records,
)

log = logger(__name__)

DEFAULT_GRACE_SECONDS: Final = 10.0
"""The grace period in seconds of a script whose record has none."""
SHIM_RESERVE_SECONDS: Final = 15.0
"""Seconds after the grace period in which the shim kills the script and records its exit."""
FULL_DISK_SECONDS: Final = 15.0
"""Seconds in which a new shim has written its start record, or given up on a full disk."""


class RunningScripts:
    """The scripts of this data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def stop(self, deployment_id: str, stage_id: str) -> bool:
        """Forbid every start of the scripts of a stage; returns whether any are on record."""
        records = list_records(find_deployment_folder(self._folder, deployment_id), only=stage_id)
        for record in records:
            with suppress(OSError):
                forbid(record)
        return bool(records)

    async def end(
        self, deployment_id: str, *, only: str | None = None, but: str | None = None
    ) -> int:
        """End the scripts of a deployment: `only` those of one stage, or all `but` those.

        Returns how many were running. Afterwards none runs, and none can start any more.
        """
        folder = find_deployment_folder(self._folder, deployment_id)
        return await self._end(list_records(folder, only=only, but=but))

    async def end_all(self) -> int:
        """End all scripts; returns how many were running."""
        folders = list_deployment_folders(self._folder)
        return await self._end(each for folder in folders for each in list_records(folder))

    async def _end(self, records: Iterable[Path]) -> int:
        async with asyncio.TaskGroup() as tasks:
            ending = [
                tasks.create_task(_end_logged(each)) for each in records if not _is_over(each)
            ]
        return sum(each.result() for each in ending)


async def _end_logged(record: Path) -> bool:
    lived = await end_script(record)
    if lived:
        log.warning("script.ended", deployment=record.parent.name, record=record.name)
    return lived


async def end_script(record: Path) -> bool:
    """End a script and all its processes, and forbid its start; returns whether its shim ran."""
    grace = _grace(record)
    now = time.monotonic
    began = now()
    backoff = Backoff(
        first_seconds=FIRST_POLL_SECONDS, longest_seconds=LONGEST_POLL_SECONDS, jitter=0
    )
    is_asked = had_shim = False
    while not _is_over(record):
        is_started, is_locked = (record / STARTED).exists(), _is_locked(record)
        if is_started and not is_locked:
            break
        try:
            forbid(record)
        except OSError as error:
            # A shim cannot write its start record either: one that was just started gives up soon.
            if now() >= began + FULL_DISK_SECONDS and not is_locked:
                log.warning("script.not_forbidden", record=str(record), reason=str(error))
                break
        if is_locked:
            had_shim = True
            late = now() - began - grace
            if late > 2 * SHIM_RESERVE_SECONDS:
                log.error("script.shim_cannot_be_ended", record=str(record))
                break
            number = signal.SIGKILL if late > SHIM_RESERVE_SECONDS else signal.SIGTERM
            if number == signal.SIGKILL or not is_asked:
                is_asked = _signal_shim(record, number)
        await asyncio.sleep(backoff.next_pause_seconds())
    token = _read(record / INTENT)
    has_run = not _is_over(record) and _read(record / STARTED) != STOPPED
    if has_run and token and not await end_marked(token, grace):
        log.error("script.cannot_be_ended", record=str(record))
    return had_shim


def forbid(record: Path) -> None:
    """Forbid the start of a script. Raises OSError.

    Makes the start record, which can be made only once: a shim that finds it does not start.
    """
    (record / STOPPED).touch(mode=0o600)
    with suppress(FileExistsError), (record / STARTED).open("x") as file:
        file.write(f"{STOPPED}\n")


def _is_over(record: Path) -> bool:
    """Returns whether the script has ended: its shim has recorded the exit, or it has no record."""
    return (record / EXIT).exists() or not record.is_dir()


def _grace(record: Path) -> float:
    try:
        return max(0.0, float(_read(record / GRACE)))
    except ValueError:
        return DEFAULT_GRACE_SECONDS


def _is_locked(record: Path) -> bool:
    """Returns whether the shim runs: it holds the lock of its record."""
    try:
        lock = os.open(record / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _signal_shim(record: Path, number: signal.Signals) -> bool:
    """Signal the shim that holds the lock; returns False when its process is not known yet."""
    words = _read(record / STARTED).split()
    try:
        pid = int(words[0])
        descriptor = os.pidfd_open(pid)
    except (OSError, ValueError, IndexError, OverflowError):
        return False
    try:
        # The pid may have been reused; the descriptor, while open, refers to one process only.
        if not _has_open(pid, record / LOCK):
            return False
        signal.pidfd_send_signal(descriptor, number)
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)  # a stopped process handles no signal
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _has_open(pid: int, file: Path) -> bool:
    """Returns whether a process other than this one has the file open."""
    wanted = file.stat()
    for each in Path(f"/proc/{pid}/fd").iterdir() if pid != os.getpid() else ():
        with suppress(OSError):
            if os.path.samestat(each.stat(), wanted):
                return True
    return False


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
