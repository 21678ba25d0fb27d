# SPDX-License-Identifier: Apache-2.0
"""Shims that are ready before a script needs them, so that no script waits for Python.

A template, a shim that Python has started already, is forked for each of them: a millisecond
instead of fifteen. Template and one ready shim are kept while scripts are likely: from planning on,
and after each start. Both end by themselves when this process does, and after a while without work.
"""

import asyncio
import os
import socket
import sys
from contextlib import suppress
from typing import Final, NamedTuple

from pipecd_runtime.process import own, spawn_detached, word
from pipecd_runtime.shim import chaos, start

KEEP_SECONDS: Final = 60.0
"""Seconds without a script after which the ready shim and the template are closed."""


class IdleShim(NamedTuple):
    """A shim without a script."""

    job: int
    """The end of a pipe: what to run."""
    wake: int
    """The end of a pipe: the shim's pid, then that something has changed, then its exit code."""


class Template:
    """The process that shims are forked from."""

    def __init__(self) -> None:
        """Starts the process. Raises OSError when it cannot be started."""
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        command = (word(sys.executable), *own("-I", "-S"), word(str(start.__file__)))
        with its:
            try:
                # Not asyncio's: that one kills what still runs when the plugin ends.
                self.pid = spawn_detached(
                    (*command, *own("template")),
                    env={
                        name: value
                        for name, value in os.environ.items()
                        if name.startswith(chaos.PREFIX)
                    },
                    stdin=its.fileno(),
                    stdout=its.fileno(),
                )
            except OSError:
                mine.close()
                raise
        mine.setblocking(False)
        self._socket = mine

    def order(self) -> IdleShim:
        """Has a shim forked and returns it at once. Raises OSError when the template is lost."""
        source, job = os.pipe()
        wake_end, wake = os.pipe()
        try:
            socket.send_fds(self._socket, [b"!"], [source, wake])
        except OSError:
            os.close(job)
            os.close(wake_end)
            raise
        finally:
            os.close(source)
            os.close(wake)
        return IdleShim(job=job, wake=wake_end)

    def close(self) -> None:
        """Lets the process end, which the shims that were forked from it do not notice."""
        self._socket.close()


class ShimPool:
    """Holds the template and at most one idle shim."""

    def __init__(self) -> None:
        self._template: Template | None = None
        self._idle: IdleShim | None = None
        self._in_use = 0
        self._expiry: asyncio.TimerHandle | None = None
        self._ending: list[int] = []

    def prepare(self) -> None:
        """Makes a shim ready unless one is, and keeps it a while; on the event loop.

        Without room for one nothing happens: the script that needs it says so.
        """
        self._keep()
        if self._idle is None:
            with suppress(OSError):
                self._idle = self._order()

    def take(self) -> IdleShim:
        """Returns the idle shim, or a new one; `give_back` must follow. Raises OSError."""
        taken = self._idle or self._order()
        self._idle = None
        self._in_use += 1
        self._keep()
        return taken

    def give_back(self) -> None:
        """Notes that a shim has ended, or is not followed any more."""
        self._in_use -= 1

    def drop(self) -> None:
        """Closes the idle shim and the template, which end by themselves then."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._idle is not None:
            os.close(self._idle.job)
            os.close(self._idle.wake)
            self._idle = None
        self._drop_template()

    def _keep(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(KEEP_SECONDS, self._expire)

    def _expire(self) -> None:
        if self._in_use:
            self._keep()  # the template reaps its shims
        else:
            self.drop()

    def _order(self) -> IdleShim:
        self._reap()
        if self._template is not None:
            try:
                return self._template.order()
            except OSError:
                self._drop_template()  # it was killed, or does not answer
        self._template = Template()
        return self._template.order()

    def _drop_template(self) -> None:
        if self._template is not None:
            self._template.close()
            self._ending.append(self._template.pid)
            self._template = None

    def _reap(self) -> None:
        self._ending = [pid for pid in self._ending if os.waitpid(pid, os.WNOHANG)[0] == 0]


SHIMS: Final = ShimPool()
"""The pool of this process, shared by all its stages."""
