# SPDX-License-Identifier: Apache-2.0
"""Plugins that have outlived their piped, found again and ended before new ones start.

A plugin is told by the system when its piped dies; a few cannot hear it. So each process is on
record while it lives: a pid alone may belong to somebody else by now, together with the moment of
its start and the boot of the machine it cannot. Signals go through descriptors of the processes,
which never come to mean another one.
"""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from piped.oplog import logger

log = logger(__name__)

GRACE: Final = 2.0
"""Seconds that a leftover has to end by itself. It is told once: told twice, it would end scripts
that the next plugin shall follow."""

AFTER_KILL: Final = 5.0
"""Seconds in which the system takes away processes that were killed."""

LOOK: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A process that an earlier piped has started, and those of its group."""

    plugin: str
    pid: int
    descriptors: tuple[int, ...]
    """Of the whole group, its own the first."""


@contextmanager
def recorded(folder: Path, plugin: str, pid: int) -> Iterator[None]:
    """Have a process on record while the block runs."""
    file = folder / str(pid)
    about = {"plugin": plugin, "started": started_at(pid), "boot": boot_id()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / f"{pid}.new"
        scratch.write_text(json.dumps(about))
        scratch.replace(file)
    except OSError as error:
        # A disk that takes nothing is no reason to have no plugins.
        log.warning("plugin.not_recorded", plugin=plugin, pid=pid, reason=error.strerror)
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink()


async def sweep(folder: Path) -> None:
    """End what is left of the plugins on record, all at once, and forget them."""
    async with asyncio.TaskGroup() as tasks:
        for leftover in _found(folder):
            tasks.create_task(_end(leftover))


def _found(folder: Path) -> Iterator[Leftover]:
    """Those that live; each record is removed when it was looked at."""
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.name.isdecimal() and (leftover := _find(file)) is not None:
            yield leftover
        with suppress(OSError):
            file.unlink()


def _find(file: Path) -> Leftover | None:
    """The process on record, if it still lives."""
    pid = int(file.name)
    try:
        about = json.loads(file.read_text())
        on_record = (str(about["started"]), str(about["boot"]))
        plugin = str(about["plugin"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not ours, or the disk was full
    descriptors = [_descriptor(pid), *(_descriptor(each) for each in _group(pid) if each != pid)]
    # Looked at after they were opened: as long as it lives, its group is its own.
    if descriptors[0] is not None and on_record == (started_at(pid), boot_id()):
        held = tuple(each for each in descriptors if each is not None)
        return Leftover(plugin=plugin, pid=pid, descriptors=held)
    for each in descriptors:
        if each is not None:
            os.close(each)
    return None


async def _end(leftover: Leftover) -> None:
    first, *others = leftover.descriptors
    try:
        _signal(first, signal.SIGTERM)
        await _gone((first,), GRACE)
        # Stopped, it cannot end and give its number away between the look and the kill.
        if _signal(first, signal.SIGSTOP) and started_at(leftover.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leftover.pid, signal.SIGKILL)
        for each in others:
            _signal(each, signal.SIGKILL)
        gone = await _gone(leftover.descriptors, AFTER_KILL)
        log.warning("plugin.leftover_ended", plugin=leftover.plugin, pid=leftover.pid, gone=gone)
    finally:
        for each in leftover.descriptors:
            os.close(each)


async def _gone(descriptors: tuple[int, ...], limit: float) -> bool:
    """Wait until all have ended, not longer than the limit; whoever adopted them reaps them."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit):
            while any(_lives(each) for each in descriptors):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(LOOK)
            return True
    return False


def _lives(descriptor: int) -> bool:
    text = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    pid = next((line.split()[1] for line in text.splitlines() if line.startswith("Pid:")), "-1")
    return int(pid) > 0 and bool(started_at(int(pid)))


def _descriptor(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (OSError, OverflowError):
        return None


def _signal(descriptor: int, number: signal.Signals) -> bool:
    try:
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    return True


def _group(leader: int) -> list[int]:
    """The processes of a group."""
    found = []
    for entry in Path("/proc").iterdir():
        fields = _stat(int(entry.name)) if entry.name.isdigit() else []
        if len(fields) > 2 and fields[2] == str(leader):
            found.append(int(entry.name))
    return found


def started_at(pid: int) -> str:
    """When a process was started, in ticks since the boot; empty when it does not live."""
    fields = _stat(pid)
    return "" if not fields or fields[0] in {"Z", "X"} else fields[19]


def _stat(pid: int) -> list[str]:
    """The facts of a process, from its state on; none when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def boot_id() -> str:
    """What tells this boot of the machine from all others."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
