# SPDX-License-Identifier: Apache-2.0
"""Starts child processes: the one module through which our programs start others.

Every child has an environment that the caller chooses, arguments in which a word from outside is
never read as an option, a session of its own, and no open files but those it is given. A test of
the whole source tree finds processes that are started without this module.
"""

import asyncio
import os
import signal
import subprocess
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, TypeAlias

from pipecd_runtime.arguments import (
    Argument,
    BadArgumentError,
    command_line,
    join_option,
    own,
    vouch_for,
    word,
)
from pipecd_runtime.environment import (
    check_environment,
    choose_environment,
    operator_environment,
)

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "Argument",
    "BadArgumentError",
    "Completed",
    "Process",
    "choose_environment",
    "join_option",
    "operator_environment",
    "own",
    "run_blocking",
    "spawn_detached",
    "start",
    "vouch_for",
    "word",
]

DEVNULL: Final = subprocess.DEVNULL
PIPE: Final = subprocess.PIPE
STDOUT: Final = subprocess.STDOUT

Completed: TypeAlias = subprocess.CompletedProcess[str]
File: TypeAlias = int | IO[bytes] | IO[str]
"""A descriptor, an open file, or one of DEVNULL, PIPE and STDOUT."""


async def start(
    arguments: Sequence[Argument],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: File = DEVNULL,
    stdout: File = DEVNULL,
    stderr: File = DEVNULL,
    pass_fds: Sequence[int] = (),
) -> Process:
    """Starts a child in a session of its own. Raises BadArgumentError, or OSError.

    The first argument is the program: a path, or a name that is looked for on the PATH of `env`.
    When the call is cancelled, the child's whole group is killed: the child may have run already,
    and have started others that asyncio does not know.
    """
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *command_line(arguments),
            env=check_environment(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(pass_fds),
            close_fds=True,
            start_new_session=True,
        )
    )
    cancelled: asyncio.CancelledError | None = None
    while not starting.done():
        try:
            await asyncio.wait({starting})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return starting.result()
    if starting.exception() is None:
        await _kill_group(starting.result())
    raise cancelled


async def _kill_group(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def run_blocking(
    arguments: Sequence[Argument], *, env: Mapping[str, str], cwd: Path | None = None
) -> Completed:
    """Runs a child to its end and returns its outputs as text. Raises as `start` does.

    When the call is interrupted, the child's whole group is killed.
    """
    command = command_line(arguments)
    with subprocess.Popen(  # noqa: S603 - arguments are checked
        command,
        env=check_environment(env),
        cwd=cwd,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        text=True,
        errors="replace",
        close_fds=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def spawn_detached(
    arguments: Sequence[Argument], *, env: Mapping[str, str], stdin: int, stdout: int
) -> int:
    """Starts a child that may outlive us; returns its pid. The program is a path.

    asyncio does not watch it: the caller reaps it. It has the default signal handlers, and its
    stderr is discarded. Raises as `start` does.
    """
    command = command_line(arguments)
    return os.posix_spawn(
        command[0],
        command,
        check_environment(env),
        file_actions=[
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            *((os.POSIX_SPAWN_CLOSE, number) for number in _inheritable()),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM],
    )


def _inheritable() -> list[int]:
    """Returns open descriptors beyond the first three that a child would inherit."""
    found = []
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are enough
        number = int(entry)
        with suppress(OSError):  # the one that lists them is closed already
            if number > 2 and os.get_inheritable(number):
                found.append(number)
    return found
