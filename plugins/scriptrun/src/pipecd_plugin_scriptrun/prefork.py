# SPDX-License-Identifier: Apache-2.0
"""Shims that are started before a script needs them, so that a script does not wait for Python.

One is kept while scripts are likely: from planning on, and after each start. It ends by itself when
this process does, and after a while without work.
"""

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Final

from pipecd_plugin_scriptrun.shim import chaos, start
from pipecd_sdk.kit.process import own, spawn_detached, word

KEEP_SECONDS: Final = 60.0
"""Seconds without a script after which the idle shim is closed."""


@dataclass(slots=True, kw_only=True)
class IdleShim:
    """A shim without a script."""

    pid: int
    job: int
    """The end of a pipe: what to run."""
    wake: int
    """The end of a pipe: something has changed, or the shim has ended."""


class ShimPool:
    """Holds at most one idle shim."""

    def __init__(self) -> None:
        self._idle: IdleShim | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._ending: list[int] = []

    def prepare(self) -> None:
        """Starts an idle shim unless there is one, and keeps it a while; on the event loop."""
        loop = asyncio.get_running_loop()
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = loop.call_later(KEEP_SECONDS, self.drop)
        if self._idle is None:
            self._idle = spawn()

    def take(self) -> IdleShim:
        """Returns the idle shim, or a new one. Raises OSError."""
        self._reap()
        idle, self._idle = self._idle, None
        return idle or spawn()

    def drop(self) -> None:
        """Closes the idle shim, which ends by itself then."""
        if self._idle is not None:
            os.close(self._idle.job)
            os.close(self._idle.wake)
            self.reap_later(self._idle.pid)
            self._idle = None

    def reap_later(self, pid: int) -> None:
        """Registers a shim that ends by itself; a later `take` reaps it."""
        self._ending.append(pid)

    def _reap(self) -> None:
        self._ending = [pid for pid in self._ending if os.waitpid(pid, os.WNOHANG)[0] == 0]


def spawn() -> IdleShim:
    """Starts a shim and returns it. Raises OSError."""
    command = (word(sys.executable), *own("-I", "-S"), word(str(start.__file__)))
    source, job = os.pipe()
    wake_end, wake = os.pipe()
    try:
        # Not asyncio's: that one kills what still runs when the plugin ends.
        pid = spawn_detached(
            command,
            env={
                name: value for name, value in os.environ.items() if name.startswith(chaos.PREFIX)
            },
            stdin=source,
            stdout=wake,
        )
    except OSError:
        os.close(job)
        os.close(wake_end)
        raise
    finally:
        os.close(source)
        os.close(wake)
    return IdleShim(pid=pid, job=job, wake=wake_end)


SHIMS: Final = ShimPool()
"""The pool of this process, shared by all its stages."""
