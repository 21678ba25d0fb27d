# SPDX-License-Identifier: Apache-2.0
"""The shim as the plugin sees it: started, heard of, asked to end. It may be somebody else's."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipecd_plugin_scriptrun.records import Record
from pipecd_plugin_scriptrun.shim import chaos, start
from pipecd_plugin_scriptrun.shim import record as files

FIRST_PAUSE: Final = 0.02
"""Seconds until the next look at a record whose shim was started by somebody else; then longer."""
LONGEST_PAUSE: Final = 0.2
OWN_PAUSE: Final = 0.5
"""The same for our own shim, which wakes us by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What to run."""

    text: str
    directory: Path
    environment: Mapping[str, str]
    token: str
    kill_grace: float


class Shim:
    """Keeps one script, or shall."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._pid: int | None = None
        self._wake_end: int | None = None
        self._woken = asyncio.Event()
        self._pause = FIRST_PAUSE
        self.exit_code: int | None = None
        """Of our own one, after its end."""

    @property
    def is_own(self) -> bool:
        """Was it started here, and is its end still to come?"""
        return self._pid is not None

    def start(self, script: Script, *, floor: int) -> None:
        """Start it; the script has begun when its start record is there. Raises OSError."""
        chaos_variables = {n: v for n, v in os.environ.items() if n.startswith(chaos.PREFIX)}
        text = script.text.encode()
        command = [
            sys.executable,
            "-I",
            "-S",
            str(start.__file__),
            str(self._record.folder),
            str(script.directory),
            str(len(text)),
            str(floor),
            str(script.kill_grace),
        ]
        self.exit_code = None
        source = os.memfd_create("script")
        self._wake_end, wake = os.pipe()
        try:
            os.write(source, text)
            os.lseek(source, 0, os.SEEK_SET)
            # Not asyncio's: that one kills what still runs when the plugin ends.
            self._pid = os.posix_spawn(
                command[0],
                command,
                {**script.environment, **chaos_variables},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, source, 0),
                    (os.POSIX_SPAWN_DUP2, wake, 1),
                    (os.POSIX_SPAWN_OPEN, 2, str(self._record.folder / files.ERRORS), _ADD, 0o600),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM],
            )
        finally:
            os.close(source)
            os.close(wake)
        os.set_blocking(self._wake_end, False)
        asyncio.get_running_loop().add_reader(self._wake_end, self._hear)

    def _hear(self) -> None:
        assert self._wake_end is not None  # noqa: S101 - for the checker
        self._woken.set()
        if not os.read(self._wake_end, 4096):
            self.close()
            self._reap()

    def _reap(self) -> None:
        if self._pid is not None:
            _, status = os.waitpid(self._pid, 0)  # its end of the pipe is closed: it is ending
            self._pid, self.exit_code = None, os.waitstatus_to_exitcode(status)

    async def wait(self) -> None:
        """Wait until there may be something new."""
        pause = OWN_PAUSE if self.is_own else self._pause
        self._pause = min(self._pause * 1.5, LONGEST_PAUSE)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._woken.wait()
        self._woken.clear()

    def has_news(self) -> None:
        """There was something new: look sooner again."""
        self._pause = FIRST_PAUSE

    def signal(self, number: signal.Signals) -> bool:
        """Signal the shim of the record; False while it is not there."""
        started = self._record.started()
        if started is not None and self._record.is_locked():
            pid = started.pid
        elif self._pid is not None:
            pid = self._pid
        else:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    def close(self) -> None:
        """Listen no more. It goes on."""
        if self._wake_end is not None:
            asyncio.get_running_loop().remove_reader(self._wake_end)
            os.close(self._wake_end)
            self._wake_end = None


_ADD: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND
