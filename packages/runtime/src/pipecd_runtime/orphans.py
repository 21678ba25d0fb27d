# SPDX-License-Identifier: Apache-2.0
"""Finds and ends orphans: processes that a plugin has started and that outlive it.

A child of a plugin may outlive it, whatever ended the plugin: one that writes nothing does not even
notice. It is found by three signs: the mark that the starter of a plugin (piped, the conformance
kit) puts into the environment of its process, and which its children inherit; the session of the
process; and its process group. One sign is enough: a child may leave the group and the session,
another may clear its environment. Everything in the session of a marked process belongs to it too.

Scripts of our own SCRIPT_RUN carry no mark and have sessions of their own: they outlive plugins on
purpose, and are none of these.

A pid alone may have been reused by another process; together with its start time it is unique.
Signals are sent through pidfds, which never refer to another process.
"""

import asyncio
import hashlib
import os
import secrets
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

MARK_VARIABLE: Final = "PIPECD_PLUGIN_PROCESS"
"""Holds the mark; the children of a plugin inherit it."""

GRACE_SECONDS: Final = 5.0
"""How long orphans have to end after SIGTERM. They get it once: a plugin of ours that gets it twice
would end scripts that the next plugin process is to follow."""

KILL_SECONDS: Final = 5.0
"""How long the system may take to end processes that got SIGKILL."""

LOOK_SECONDS: Final = 0.02

SCAN_SECONDS: Final = 30.0
"""The limit of one scan of all processes; one that hangs in the kernel may block it."""

PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Which process of which plugin of which data folder."""

    folder: str
    plugin: str
    start: str

    def __str__(self) -> str:
        return f"{self.folder}:{quote(self.plugin, safe='')}:{self.start}"

    @classmethod
    def parse(cls, text: str) -> "Mark | None":
        """Returns the mark in a text; None when the text is not one."""
        match text.split(":"):
            case [folder, plugin, start]:
                return cls(folder=folder, plugin=unquote(plugin), start=start)
        return None


def new_mark(data_dir: Path, plugin: str) -> Mark:
    """Returns a mark for the next process of a plugin."""
    return Mark(folder=folder_id(data_dir), plugin=plugin, start=secrets.token_hex(8))


def folder_id(data_dir: Path) -> str:
    """Returns an id of this piped's data folder, different from others on the machine.

    Not its path: two containers that see each other's processes may have different folders under
    the same path.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    found = data_dir.stat()
    return hashlib.sha256(f"{found.st_dev}:{found.st_ino}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """A process of a plugin, which leads a session and a process group with its pid as their id."""

    pid: int
    started: int
    """Its start time, in ticks since the boot of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A process that a plugin has left behind, or the plugin itself."""

    pid: int
    started: int
    name: str
    group: int
    session: int

    @property
    def places(self) -> tuple[int, int]:
        """Returns the ids of its session and its process group."""
        return self.session, self.group


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Which orphans to find: by the leaders of their sessions, their marks, or a folder."""

    leaders: Collection[Leader] = ()
    is_wanted: Callable[[Mark], bool] = lambda _: False
    folder: Path | None = None
    """Also processes that work in this folder, or have it on their command line, scripts among
    them: for a folder that is about to be removed."""

    def find(self) -> list[Orphan]:
        """Returns the orphans that are alive, the oldest first."""
        processes = list(_living_processes())
        started = {each.pid: each.started for each in processes}
        # While a session has members, its number is given to no other process.
        leaders = {
            leader.pid: leader.started
            for leader in self.leaders
            if started.get(leader.pid, leader.started) == leader.started
        }
        sessions = {
            each.session
            for each in processes
            if any(each.started >= leaders.get(at, each.started + 1) for at in each.places)
            or self._is_marked(each.pid)
            or self._uses_folder(each.pid)
        }
        # Each plugin is given a session; the one of this program is none of them.
        sessions.discard(os.getsid(0))
        found = [each for each in processes if each.session in sessions]
        return sorted(found, key=lambda each: (each.started, each.pid))

    def _is_marked(self, pid: int) -> bool:
        mark = _mark_of(pid)
        return mark is not None and self.is_wanted(mark)

    def _uses_folder(self, pid: int) -> bool:
        if self.folder is None:
            return False
        process = PROC / str(pid)
        place = f"{self.folder}/"
        try:
            if process.stat().st_uid != os.geteuid():
                return False
            is_there = f"{(process / 'cwd').readlink()}/".startswith(place)
            return is_there or os.fsencode(place) in (process / "cmdline").read_bytes()
        except OSError:
            return False


def ticks_now() -> int:
    """Returns the current time in ticks since the boot, the unit of start times of processes."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


class StuckError(Exception):
    """Processes do not end; the message names them."""


async def end_orphans(search: Search) -> int:
    """Ends all orphans that a search finds, with SIGTERM and then SIGKILL; returns their number.

    Raises StuckError when some cannot be ended.
    """
    first = await _find(search)
    if not first:
        return 0
    _signal(first, signal.SIGTERM)
    await _wait_gone(first, GRACE_SECONDS)
    clock = asyncio.get_running_loop().time
    over = clock() + KILL_SECONDS
    # Two scans in a row: one alone may miss what was started meanwhile.
    clean = 0
    while (clean := 0 if (found := await _find(search)) else clean + 1) < 2:
        if found and clock() >= over:
            raise StuckError(", ".join(f"{each.pid} ({each.name})" for each in found))
        _signal(found, signal.SIGKILL)
        await asyncio.sleep(LOOK_SECONDS)
    return len(first)


async def _find(search: Search) -> list[Orphan]:
    try:
        async with asyncio.timeout(SCAN_SECONDS):
            return await asyncio.to_thread(search.find)
    except TimeoutError:
        raise StuckError("the system does not answer what is running") from None


async def _wait_gone(orphans: Collection[Orphan], limit: float) -> None:
    """Waits until all have ended, up to the limit; the process that adopted them reaps them."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit):
            while any(start_of(each.pid) == each.started for each in orphans):  # noqa: ASYNC110 - no event
                await asyncio.sleep(LOOK_SECONDS)


def _signal(orphans: Collection[Orphan], number: signal.Signals) -> None:
    """Signals the oldest first: a shell whose command ends before it would start the next."""
    for each in orphans:
        with _descriptor(each) as descriptor, suppress(OSError):
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, number)
                if number is signal.SIGTERM:
                    signal.pidfd_send_signal(descriptor, signal.SIGCONT)  # one that is stopped


@contextmanager
def _descriptor(orphan: Orphan) -> Iterator[int | None]:
    try:
        descriptor = os.pidfd_open(orphan.pid)
    except OSError:
        yield None
        return
    try:
        # Looked at after it was opened: from here on it is this process and no other.
        yield descriptor if start_of(orphan.pid) == orphan.started else None
    finally:
        os.close(descriptor)


def _living_processes() -> Iterator[Orphan]:
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if entry.name.isdecimal() and (process := _read(int(entry.name))) is not None:
            yield process


def start_of(pid: int) -> int:
    """Returns when a process was started, in ticks since the boot; 0 when it is not alive."""
    process = _read(pid)
    return process.started if process is not None else 0


def _read(pid: int) -> Orphan | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses, and may hold anything.
    begin, _, rest = text.rpartition(")")
    fields = rest.split()
    threads = int(fields[17])
    if fields[0] in {"X", "x"} or (fields[0] == "Z" and threads <= 1):
        return None  # it has ended; one whose first thread alone has ended lives on
    return Orphan(
        pid=pid,
        name=begin.partition("(")[2],
        group=int(fields[2]),
        session=int(fields[3]),
        started=int(fields[19]),
    )


def _mark_of(pid: int) -> Mark | None:
    """Returns the mark in a process's environment; None for another user's, who may forge it."""
    folder = PROC / str(pid)
    try:
        if folder.stat().st_uid != os.geteuid():
            return None
        environment = (folder / "environ").read_bytes()
    except OSError:
        return None
    beginning = f"{MARK_VARIABLE}=".encode()
    for variable in environment.split(b"\0"):
        if variable.startswith(beginning):
            return Mark.parse(variable.removeprefix(beginning).decode(errors="replace"))
    return None
