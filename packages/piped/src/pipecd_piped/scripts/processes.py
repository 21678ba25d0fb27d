# SPDX-License-Identifier: Apache-2.0
"""Finds the processes of a script whose shim has died, by the script's token, and ends them.

The token is in the environment of every process that a script starts. A process that was found once
stays known by its pid and start time, and so do its children, with or without the token.
"""

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipecd_runtime.backoff import Backoff
from pipecd_wire.headers import SCRIPT_ID_VARIABLE

FIRST_POLL_SECONDS: Final = 0.01
LONGEST_POLL_SECONDS: Final = 0.2
KILL_SECONDS: Final = 5.0
"""Seconds in which killed processes disappear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptProcess:
    """A running process."""

    pid: int
    parent: int
    group: int
    started: int

    @property
    def identity(self) -> tuple[int, int]:
        """Returns the pid with the start time: a pid alone may be reused by another process."""
        return self.pid, self.started


async def end_marked(token: str, grace_seconds: float) -> bool:
    """End all processes with the token, with SIGKILL after the grace period.

    Returns False when some cannot be ended.
    """
    known: set[tuple[int, int]] = set()
    over = time.monotonic() + grace_seconds
    _signal(await asyncio.to_thread(_find, token, known), signal.SIGTERM)
    backoff = Backoff(
        first_seconds=FIRST_POLL_SECONDS, longest_seconds=LONGEST_POLL_SECONDS, jitter=0
    )
    while alive := await asyncio.to_thread(_find, token, known):
        if time.monotonic() >= over:
            _signal(alive, signal.SIGKILL)
        if time.monotonic() >= over + KILL_SECONDS:
            return False
        await asyncio.sleep(backoff.next_pause_seconds())
    return True


def _find(token: str, known: set[tuple[int, int]]) -> list[ScriptProcess]:
    """Returns the running processes of the script, and adds them to `known`."""
    mark = f"{SCRIPT_ID_VARIABLE}={token}".encode()
    seen = {each.pid: each for each in _all()}
    mine = {pid for pid, each in seen.items() if each.identity in known or _has(pid, mark)}
    children: dict[int, list[int]] = {}
    for each in seen.values():
        children.setdefault(each.parent, []).append(each.pid)
    waiting = list(mine)
    while waiting:
        below = [pid for pid in children.get(waiting.pop(), ()) if pid not in mine]
        mine.update(below)
        waiting += below
    mine.discard(os.getpid())
    found = [seen[pid] for pid in mine]
    known.update(each.identity for each in found)
    return found


def _signal(found: list[ScriptProcess], number: signal.Signals) -> None:
    """Signal whole process groups, the oldest first.

    Otherwise a shell would start its next command when the current one has been ended.
    """
    groups = dict.fromkeys(each.group for each in sorted(found, key=lambda it: it.started))
    for group in groups:
        if group in {0, os.getpgrp()}:
            continue
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
            os.killpg(group, signal.SIGCONT)  # a stopped process handles no signal


def _has(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # gone, or another user's


def _all() -> list[ScriptProcess]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [process for pid in pids if (process := _read(pid)) is not None]


def _read(pid: int) -> ScriptProcess | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    if not fields or fields[0] in {"Z", "X"}:
        return None
    return ScriptProcess(
        pid=pid, parent=int(fields[1]), group=int(fields[2]), started=int(fields[19])
    )
