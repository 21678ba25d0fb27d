# SPDX-License-Identifier: Apache-2.0
"""Records the processes of programs, and ends the orphans that they have left.

Most programs are killed by the kernel when piped dies, but a few cannot be, and neither can the
children of any program. So each process stays on record until nothing of it is left: its pid with
its start time and the boot id of the machine. `pipecd_runtime.orphans` finds its descendants.
"""

import json
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipecd_piped.programs.errors import ProgramError
from pipecd_runtime.logs import logger
from pipecd_runtime.orphans import (
    Leader,
    Mark,
    Search,
    StuckError,
    end_orphans,
    folder_id,
    start_of,
)

log = logger(__name__)


class OrphanReaper:
    """Ends the orphans of programs that were started from one data folder."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._folder = data_dir / "processes"

    def record(self, plugin: str, pid: int) -> None:
        """Record a process, until `end` or `sweep` has ended all that is left of it."""
        about = {
            "plugin": plugin,
            "started": start_of(pid),
            "boot": boot_id(),
            "namespace": pid_namespace(),
        }
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            scratch = self._folder / f"{pid}.new"
            scratch.write_text(json.dumps(about))
            scratch.replace(self._folder / str(pid))
        except OSError as error:
            # A full disk must not stop plugins: their orphans are also found by their mark.
            log.warning("plugin.not_recorded", plugin=plugin, pid=pid, reason=error.strerror)

    async def sweep(self) -> None:
        """End the orphans of an earlier piped. Those that cannot be ended stay on record."""
        for file in self._files():
            if _read(file) is None:
                with suppress(OSError):
                    file.unlink()
        try:
            await self._end(lambda _: True)
        except StuckError as error:
            log.error("plugin.orphans_stuck", processes=str(error))  # noqa: TRY400

    async def end(self, plugin: str, *, others: Collection[str]) -> None:
        """End the orphans of earlier processes of a plugin, before the next process starts.

        `others`: the other plugins that are configured. Orphans of none of them may be this one's,
        from when it had another name. Raises ProgramError when an orphan cannot be ended.
        """
        try:
            await self._end(lambda name: name == plugin or name not in others)
        except StuckError as error:
            raise ProgramError(
                f"what an earlier process of the plugin {plugin!r} has started cannot be ended:"
                f" {error}",
                hint="a stage must not go on beside it; end these processes, or wait for their end",
            ) from None

    async def _end(self, is_wanted: Callable[[str], bool]) -> None:
        read = {file: _read(file) for file in self._files()}
        records = {file: it for file, it in read.items() if it is not None and is_wanted(it.plugin)}
        own_folder = folder_id(self._data_dir)

        def is_marked(mark: Mark) -> bool:
            return mark.folder == own_folder and is_wanted(mark.plugin)

        search = Search(
            leaders=[it.leader for it in records.values() if it.leader is not None],
            is_wanted=is_marked,
        )
        count = await end_orphans(search)
        if count:
            plugins = sorted({it.plugin for it in records.values()})
            log.warning("plugin.orphans_ended", plugins=plugins, processes=count)
        for file in records:
            with suppress(OSError):
                file.unlink()

    def _files(self) -> list[Path]:
        return sorted(self._folder.iterdir()) if self._folder.is_dir() else []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """The record of a process."""

    plugin: str
    leader: Leader | None
    """None when the pid is from another boot or another PID namespace."""


def _read(file: Path) -> _Record | None:
    try:
        about = json.loads(file.read_text())
        pid, started, plugin = int(file.name), int(about["started"]), str(about["plugin"])
        is_valid = about["boot"] == boot_id() and about.get("namespace", "") in (
            "",
            pid_namespace(),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # not ours, or the disk was full
    leader = Leader(pid=pid, started=started) if is_valid and started else None
    return _Record(plugin=plugin, leader=leader)


def boot_id() -> str:
    """Returns the id of the current boot of the machine, empty when it is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> str:
    """Returns the id of the PID namespace, which differs between containers; empty if unknown."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - it names no file
    except OSError:
        return ""
