# SPDX-License-Identifier: Apache-2.0
"""What a cancelled stage leaves running in a plugin that cannot say when the stage has ended.

A plugin made with the Go SDK gives up the call of a cancelled stage at once, and what the stage had
started goes on: the stage's rollback would run beside it. Of all that comes from the plugin's
process, what works in the files of the stage is the stage's; and when no other stage runs there, so
is everything that was started since the stage was. The plugin itself is none of it.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipecd_runtime.orphans import PROC, Orphan, Search


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSearch(Search):
    """Looks for what one stage has started."""

    folders: tuple[Path, ...]
    """The files that the stage was given."""
    since: int
    """When it was called, in ticks since the boot of the machine."""
    alone_until: int = 0
    """Until when it was the only stage that ran in the plugin; 0 when it was not."""

    def find(self) -> list[Orphan]:
        """Those that live, the oldest first."""
        plugins = {leader.pid for leader in self.leaders}
        found = [each for each in Search.find(self) if each.pid not in plugins]
        parents = {each.pid: _parent_of(each.pid) for each in found}
        mine = {each.pid for each in found if self._is_mine(each)}
        # What it has started belongs to it, wherever it works.
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
    """Where a process works, and where it was started."""
    folder = PROC / str(pid)
    try:
        yield Path(os.readlink(folder / "cwd"))  # noqa: PTH115 - it may be gone
        for variable in (folder / "environ").read_bytes().split(b"\0"):
            if variable.startswith(b"PWD="):
                yield Path(os.fsdecode(variable.removeprefix(b"PWD=")))
    except OSError:
        return  # gone, or another user's


def _parent_of(pid: int) -> int:
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])
