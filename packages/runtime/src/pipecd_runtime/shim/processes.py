# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH123
"""Finds and signals all processes of one script.

A process group is not enough: a script's children may make groups and sessions of their own. The
shim, which gathers orphans, finds all of them below itself. Where it is gone they are found by the
token in their environment, and by their parents. What was found once stays known by its pid and
start time, also when its parent is gone.
"""

import os

SCRIPT_ID = "PIPECD_SCRIPT_ID"
"""The variable that holds the token."""

INT, TERM, KILL, CONT = 2, 15, 9, 18


class LiveProcess:
    """A live process: not a zombie."""

    __slots__ = ("group", "parent", "pid", "started")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid = pid
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.started = int(fields[19])

    @property
    def identity(self) -> tuple[int, int]:
        """Returns pid and start time: a pid alone may be used again by another process."""
        return self.pid, self.started


class ScriptProcesses:
    """The living processes of a script."""

    def __init__(self, script_id: str, *, below: int | None = None) -> None:
        """`below`: the shim's pid; all its descendants belong to the script, itself does not."""
        self._mark = f"{SCRIPT_ID}={script_id}".encode()
        self._below = below
        self._known: set[tuple[int, int]] = set()

    def signal(self, number: int) -> set[int]:
        """Signals all live processes of the script; returns their pids.

        Whole process groups at once, the oldest first: a shell whose command ends before the shell
        itself gets the signal would start its next command.
        """
        found = self._find()
        for group in dict.fromkeys(each.group for each in sorted(found, key=lambda it: it.started)):
            _signal_group(group, number)
            if number in (INT, TERM):
                _signal_group(group, CONT)  # a stopped one would not notice
        return {each.pid for each in found}

    def find(self) -> set[int]:
        """Returns the pids of all live processes of the script."""
        return {each.pid for each in self._find()}

    def _find(self) -> list[LiveProcess]:
        seen = {each.pid: each for each in _all_processes()}
        mine = {
            each.pid
            for each in seen.values()
            if each.identity in self._known or self._is_marked(each.pid)
        }
        if self._below is not None:
            mine.add(self._below)
        mine |= _descendants(mine, seen)
        mine.discard(self._below or os.getpid())
        found = [seen[pid] for pid in mine if pid in seen]
        self._known = {each.identity for each in found}
        return found

    def _is_marked(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            return False  # gone, or another user's
        return self._mark in environment.split(b"\0")


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return  # gone, or another user's: passed over


def _all_processes() -> list[LiveProcess]:
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    return [process for pid in pids if (process := _read(pid)) is not None]


def _read(pid: int) -> LiveProcess | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The second field is the program's name in parentheses, and may hold anything.
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] == b"Z" else LiveProcess(pid, fields)


def _descendants(roots: set[int], processes: dict[int, LiveProcess]) -> set[int]:
    children: dict[int, list[int]] = {}
    for each in processes.values():
        children.setdefault(each.parent, []).append(each.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found
