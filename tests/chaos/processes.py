# SPDX-License-Identifier: Apache-2.0
"""The processes of a site, found from outside by a mark in their environment."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARKS = ("PIPECD_CHAOS_SITE", "CHAOS_SITE")
"""Shims inherit the first one only, scripts the second one only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A living process of the site."""

    pid: int
    parent: int
    command: str
    is_script: bool

    @property
    def plugin(self) -> str:
        """The plugin's name, empty for anything else."""
        for word in self.command.split()[:3]:
            path = Path(word)
            if path.name.startswith("pipecd-plugin-"):
                return path.name.removeprefix("pipecd-plugin-")
            if path.parent.parent.name == path.name:  # a file that was fetched
                return path.name
        return ""

    @property
    def is_shim(self) -> bool:
        return "/shim/start.py" in self.command


def marks(root: Path) -> dict[str, str]:
    """Variables for every program of a site."""
    return dict.fromkeys(MARKS, str(root))


def processes_of(root: Path) -> list[Found]:
    """All that live and carry the site's mark."""
    wanted = {f"{name}={root}".encode() for name in MARKS}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            if wanted.isdisjoint(variables):
                continue
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] == "Z":
                continue
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found.append(
                Found(
                    pid=int(entry.name),
                    parent=int(fields[1]),
                    command=command.strip(),
                    is_script=any(each.startswith(b"PIPECD_SCRIPT_ID=") for each in variables),
                )
            )
    return found


def plugin_pids(root: Path, parent: int) -> dict[str, int]:
    """The plugins of the piped that runs now, by name."""
    return {
        each.plugin: each.pid
        for each in processes_of(root)
        if each.plugin and each.parent == parent
    }


def kill_all(root: Path) -> None:
    """End whatever is left of a site."""
    for _ in range(3):
        for each in processes_of(root):
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
