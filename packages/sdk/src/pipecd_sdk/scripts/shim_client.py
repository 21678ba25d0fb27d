# SPDX-License-Identifier: Apache-2.0
"""The plugin's side of a shim: starts it, waits for it, signals it. Another process may own it."""

import asyncio
import os
import select
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from pipecd_runtime.shim.processes import SCRIPT_ID
from pipecd_runtime.shim.runner import INTERRUPT, LOGIN, NEWS, PID_BYTES, RELEASE
from pipecd_sdk.scripts.prefork import SHIMS
from pipecd_sdk.scripts.records import ScriptRecord

__all__ = ["SCRIPT_ID", "Script", "Shim"]

FIRST_PAUSE_SECONDS: Final = 0.02
"""Seconds until the next look at a record whose shim another process started; then longer."""
LONGEST_PAUSE_SECONDS: Final = 0.2
OWN_PAUSE_SECONDS: Final = 0.5
"""The same for our own shim, which wakes us by itself."""
PIPE_ROOM: Final = 32 * 1024
"""Bytes that an empty pipe takes at once."""


class Script(NamedTuple):
    """A script and how its shim runs it."""

    text: str
    directory: Path
    environment: Mapping[str, str]
    token: str
    kill_grace_seconds: float
    is_interrupted: bool = False
    """Whether SIGINT ends it, as at a terminal, and the grace period is never shortened."""
    is_login: bool = True
    """Whether its shell is a login shell."""


class Shim:
    """The shim that runs one script, or is about to."""

    def __init__(self, record: ScriptRecord) -> None:
        self._record = record
        self._pid: int | None = None
        self._heard = b""
        self._wake_end: int | None = None
        self._release_end: int | None = None
        self._woken = asyncio.Event()
        self._pause = FIRST_PAUSE_SECONDS
        self.exit_code: int | None = None
        """Of our own one, after its end; None also when it was killed."""

    @property
    def is_own(self) -> bool:
        """Returns whether this process started the shim and it has not ended yet."""
        return self._wake_end is not None

    async def prepare(self, script: Script, *, floor: int) -> None:
        """Hands the script to a shim, which makes everything ready but its start. Raises OSError.

        After that, `release` has it started; `leave` has the shim end without having done anything.
        """
        self.exit_code, self._pid, self._heard = None, None, b""
        idle = SHIMS.take()
        job = _job(self._record, script, floor)
        self._wake_end = idle.wake
        self._release_end = os.dup(idle.job)  # the job's own end is closed by who writes the job
        os.set_blocking(self._wake_end, False)
        asyncio.get_running_loop().add_reader(self._wake_end, self._hear)
        try:
            if len(job) <= PIPE_ROOM:
                _hand_over(idle.job, job)
            else:
                await asyncio.to_thread(_hand_over, idle.job, job)
        except BrokenPipeError:
            self._woken.set()  # it has ended while it was idle: its end is noticed like any other

    def release(self) -> None:
        """Has the shim start the script, which has begun when its start record is there."""
        if self._release_end is not None:
            with suppress(BrokenPipeError):  # it has ended: that is noticed like any other end
                os.write(self._release_end, RELEASE)
            self._hold_back()

    def _hold_back(self) -> None:
        if self._release_end is not None:
            os.close(self._release_end)
            self._release_end = None

    def _hear(self) -> None:
        assert self._wake_end is not None  # noqa: S101 - for the checker
        self._woken.set()
        news = os.read(self._wake_end, 4096)
        if not news:
            self._hold_back()
            self._close()
            return
        if self._pid is None:
            self._heard += news
            if len(self._heard) < PID_BYTES:
                return
            self._pid = int.from_bytes(self._heard[:PID_BYTES], "big")
            news = self._heard[PID_BYTES:]
        for code in news.replace(NEWS, b""):
            self.exit_code = code

    async def wait(self) -> None:
        """Waits until the shim wakes us or the pause is over: there may be new output."""
        pause = OWN_PAUSE_SECONDS if self.is_own else self._pause
        self._pause = min(self._pause * 1.5, LONGEST_PAUSE_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._woken.wait()
        self._woken.clear()

    def has_news(self) -> None:
        """Resets the pause between two looks: there was something new."""
        self._pause = FIRST_PAUSE_SECONDS

    def signal(self, number: signal.Signals) -> bool:
        """Signals the shim of the record; returns False while there is none."""
        started = self._record.read_started()
        if started is not None and self._record.is_locked():
            pid = started.pid
        elif self._pid is not None and self._wake_end is not None:
            _signal_own(self._pid, self._wake_end, number)
            return True
        else:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    def leave(self) -> None:
        """Stops following the shim, which continues until its script has ended.

        One that was not released ends at once.
        """
        self._hold_back()
        self._close()

    def _close(self) -> None:
        if self._wake_end is not None:
            asyncio.get_running_loop().remove_reader(self._wake_end)
            os.close(self._wake_end)
            self._wake_end = None
            SHIMS.give_back()


def _signal_own(pid: int, wake_end: int, number: signal.Signals) -> None:
    """Signals the shim that writes to a pipe, and never another process that has got its pid."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            if not _has_ended(wake_end):  # it had not when the descriptor was opened either
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _has_ended(wake_end: int) -> bool:
    """Returns whether the other end of the pipe is closed; what was written may be unread."""
    poll = select.poll()
    poll.register(wake_end, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _job(record: ScriptRecord, script: Script, floor: int) -> bytes:
    """Returns the job that the shim reads: a length, then texts, each ended by a null character."""
    manner = [LOGIN] * script.is_login + [INTERRUPT] * script.is_interrupted
    texts = [
        str(record.folder),
        str(script.directory),
        str(floor),
        str(script.kill_grace_seconds),
        " ".join(manner),
        script.text,
        *(f"{name}={value}" for name, value in script.environment.items()),
    ]
    job = b"".join(os.fsencode(text) + b"\0" for text in texts)
    return len(job).to_bytes(8, "big") + job


def _hand_over(pipe: int, job: bytes) -> None:
    """Writes the job and closes the pipe; here, as a thread continues when its task is cancelled.

    If the pipe was closed by another thread meanwhile, its number could be another file's.
    """
    try:
        while job:
            job = job[os.write(pipe, job) :]
    finally:
        os.close(pipe)
