# SPDX-License-Identifier: Apache-2.0
"""Finds the processes that a cancelled stage leaves running in a plugin made with the Go SDK.

Such a plugin ends the call of a cancelled stage at once, and cannot report when the stage has
really ended: the processes of the stage still run, and the rollback would run beside them. Of the
descendants of the plugin's process, those that work in the files of the stage belong to the stage.
When no other stage runs in the plugin, so does every process that was started since the stage
began. The plugin's own process never does.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipecd_runtime.orphans import PROC, Orphan, Search


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSearch(Search):
    """Finds the processes that one stage has started."""

    folders: tuple[Path, ...]
    """The folders of the files that the stage got."""
    since: int
    """When the stage was called, in ticks since the boot of the machine."""
    alone_until: int = 0
    """Until when it was the only stage that ran in the plugin; 0 when others ran."""

    def find(self) -> list[Orphan]:
        """Returns the running processes of the stage, the oldest first."""
        plugins = {leader.pid for leader in self.leaders}
        found = [each for each in Search.find(self) if each.pid not in plugins]
        parents = {each.pid: _parent_of(each.pid) for each in found}
        mine = {each.pid for each in found if self._is_mine(each)}
        # The children of its processes belong to it too, in whatever folder they work.
        while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
            mine |= more
        return [each for each in found if each.pid in mine]

    def _is_mine(self, process: Orphan) -> bool:
        if process.started < self.since:
            return False
        return process.started <= self.alone_until or any(
            place.is_relative_to(folder)
            for place in _places_of(process.pid)
            for folder in self.folders
        )


def _places_of(pid: int) -> Iterable[Path]:
    """Yields the working folder of a process, and the folder in which it was started."""
    folder = PROC / str(pid)
    try:
        yield Path(os.readlink(folder / "cwd"))  # noqa: PTH115 - it may be gone
        for variable in (folder / "environ").read_bytes().split(b"\0"):
            if variable.startswith(b"PWD="):
                yield Path(os.fsdecode(variable.removeprefix(b"PWD=")))
    except OSError:
        return  # it has ended, or belongs to another user


def _parent_of(pid: int) -> int:
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])
