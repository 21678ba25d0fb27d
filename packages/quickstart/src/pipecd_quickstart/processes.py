# SPDX-License-Identifier: Apache-2.0
"""The processes of a quickstart: started from this installation, ended with it."""

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from pipecd_model.errors import PipecdError
from pipecd_runtime import process as child
from pipecd_runtime.process import Argument, Process
from pipecd_wire.headers import CHAOS_PREFIX, PLUGIN_CACHE_VARIABLE

START_LIMIT_SECONDS: Final = 60.0
"""Seconds for a program to say that it serves; a cold machine compiles nothing but reads a lot."""

OUR_VARIABLES: Final = (PLUGIN_CACHE_VARIABLE, CHAOS_PREFIX)
"""The PIPECD_ variables of this process that its programs inherit."""

STOP_SECONDS: Final = 20.0
"""Seconds for a program to end when it is asked to."""

FAILED_STOP_SECONDS: Final = 4.0
"""The same when the quickstart has failed: nothing is left to be waited for."""

LONGEST_LINE: Final = 400

LISTENING: Final = "pipecd server listening on "


class ProgramEndedError(PipecdError):
    """A program of the quickstart ended by itself."""


def program(name: str) -> str:
    """Returns the program of this installation, not another one that happens to be on the PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise PipecdError(
            f"the program {name!r} is not installed",
            hint="install it: `pipx install pipecd`, or `make setup` in a checkout",
        )
    return found


class RunningProgram:
    """One running program with its log file."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            self._process.send_signal(number)

    async def wait(self) -> int:
        return await self._process.wait()

    def failure(self) -> ProgramEndedError:
        """Returns an error with the last thing that the program said."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        said = lines[-1].strip().removeprefix("error: ")[:LONGEST_LINE] if lines else "no word"
        return ProgramEndedError(
            f"{self.name} ended with code {self._process.returncode}: {said}",
            hint=f"its log is {self.log}",
        )


@asynccontextmanager
async def running(
    name: str, arguments: Sequence[Argument], log: Path
) -> AsyncIterator[RunningProgram]:
    """Runs a program while the block runs; then sends SIGTERM, and SIGKILL when that takes long."""
    # A session of its own: a Ctrl-C in the terminal reaches the quickstart alone, which stops the
    # others in their order.
    with log.open("ab") as sink:
        process = await child.start(
            (child.word(program(arguments[0].text)), *arguments[1:]),
            stdout=sink,
            stderr=sink,
            env=child.operator_environment(also=OUR_VARIABLES) | {"PYTHONUNBUFFERED": "1"},
        )
    started = RunningProgram(name, process, log)
    limit = FAILED_STOP_SECONDS
    try:
        yield started
        limit = STOP_SECONDS
    finally:
        await _end(started, limit)


async def _end(started: RunningProgram, limit: float) -> None:
    started.signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(limit):
            await started.wait()
    except TimeoutError:
        started.signal(signal.SIGKILL)
        await started.wait()


async def listening_address(server: RunningProgram, *, since: int) -> str:
    """Waits for the address that the server announces in its log after byte `since`."""
    try:
        async with asyncio.timeout(START_LIMIT_SECONDS):
            while True:
                if not server.running:
                    raise server.failure()
                text = server.log.read_bytes()[since:].decode(errors="replace")
                for line in text.splitlines():
                    if line.startswith(LISTENING):
                        return line.removeprefix(LISTENING).strip()
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise PipecdError(
            f"the server has not started within {START_LIMIT_SECONDS:g}s", hint=f"see {server.log}"
        ) from None
