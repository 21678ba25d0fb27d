# SPDX-License-Identifier: Apache-2.0
"""All processes of one script, found and ended.

A process group is not enough: a script's children may make groups and sessions of their own. They
are found by the token in their environment, by their session, and by their parents. What was found
once stays known by its pid and start time, also when it is nobody's child any more.
"""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
ZOMBIE: Final = b"Z"


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    group: int
    session: int
    started: int

    @property
    def identity(self) -> tuple[int, int]:
        """A pid is used again; together with the start time it is one process."""
        return self.pid, self.started


class ScriptProcesses:
    """The living processes of a script."""

    def __init__(self, script_id: str) -> None:
        self._mark = f"PIPECD_SCRIPT_ID={script_id}".encode()
        self._known: set[tuple[int, int]] = set()

    def find(self, *, session: int | None = None) -> set[int]:
        """The pids of all that live now. `session` only as long as its leader is not reaped."""
        return {each.pid for each in self._find(session)}

    def signal(self, number: signal.Signals, *, session: int | None = None) -> set[int]:
        """Signal all that live now; the value is their pids.

        Whole groups at once, and those that began first before the others: a shell whose command
        ends before it has got the signal itself would go on with its next command.
        """
        found = self._find(session)
        groups = dict.fromkeys(each.group for each in sorted(found, key=lambda it: it.started))
        for group in groups:
            # Gone, or another user's: passed over.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
                if number is signal.SIGTERM:
                    os.killpg(group, signal.SIGCONT)  # a stopped one would not notice
        return {each.pid for each in found}

    def _find(self, session: int | None) -> list[_Process]:
        seen = {each.pid: each for each in _all_processes()}
        mine = {
            each.pid
            for each in seen.values()
            if each.identity in self._known or each.session == session or self._is_marked(each.pid)
        }
        mine |= _descendants(mine, seen.values())
        found = [seen[pid] for pid in mine]
        self._known = {each.identity for each in found}
        return found

    def _is_marked(self, pid: int) -> bool:
        try:
            environment = (PROC / str(pid) / "environ").read_bytes()
        except OSError:
            return False  # gone, or another user's
        return self._mark in environment.split(b"\0")


def _all_processes() -> Iterable[_Process]:
    for entry in os.scandir(PROC):
        if entry.name.isdigit() and (process := _read(int(entry.name))) is not None:
            yield process


def _read(pid: int) -> _Process | None:
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The second field is the program's name in parentheses, and may hold anything.
    fields = text[text.rindex(b")") + 2 :].split()
    if fields[0] == ZOMBIE:
        return None
    return _Process(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        started=int(fields[19]),
    )


def _descendants(roots: set[int], processes: Iterable[_Process]) -> set[int]:
    children: dict[int, list[int]] = {}
    for each in processes:
        children.setdefault(each.parent, []).append(each.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found
