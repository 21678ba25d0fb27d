# SPDX-License-Identifier: Apache-2.0
"""One process of a program: started in its own session, and killed with its process group."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from pipecd_piped.programs.command import Command
from pipecd_piped.programs.errors import ProgramError
from pipecd_runtime import process as door


class ProgramProcess:
    """A process that was started, with its output."""

    def __init__(self, process: asyncio.subprocess.Process, output: asyncio.StreamReader) -> None:
        self._process = process
        self.output = output

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """Wait until the process ends; returns its exit code, negative for a signal."""
        return await self._process.wait()

    def terminate(self) -> None:
        """Send SIGTERM to the process, if it still runs."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """Kill the process with its group, if it still runs; `orphans` ends what it has left."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def kill_and_wait(self, limit: float) -> None:
        """Kill the process with its group, and wait for its end, `limit` seconds at most."""
        self.kill()
        await self.wait_ended(limit)

    async def wait_ended(self, limit: float) -> None:
        """Wait until the process ends, `limit` seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self.wait()


@asynccontextmanager
async def running_process(
    command: Command, on_start: Callable[[int], None]
) -> AsyncIterator[ProgramProcess]:
    """Run a process while the block runs, and kill it afterwards; `on_start` gets its pid.

    Raises ProgramError when it cannot start.

    Must run on the main thread: a program gets its parent-death signal when the thread that started
    it ends.
    """
    # With asyncio's own pipes, `wait` would not return while a child still holds the pipe.
    reading, writing = os.pipe()
    said = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(said), os.fdopen(reading, "rb", buffering=0)
    )
    try:
        try:
            process = ProgramProcess(await _start(command, writing), said)
        finally:
            os.close(writing)
        try:
            on_start(process.pid)
            yield process
        finally:
            process.kill()
            await process.wait()
    finally:
        transport.close()


async def _start(command: Command, output: int) -> asyncio.subprocess.Process:
    environment = door.operator_environment(also=command.inherited) | dict(command.environment)
    with command.descriptors() as (arguments, descriptors):
        try:
            return await door.start(
                door.vouch_for(arguments),
                env=environment,
                pass_fds=descriptors,
                stdout=output,
                stderr=output,
            )
        except door.BadArgumentError as error:
            raise ProgramError(f"cannot start {arguments[0]!r}: {error}") from None
        except OSError as error:
            raise ProgramError(
                f"cannot start {arguments[0]!r}: {error.strerror or error}"
            ) from None


def describe_exit(code: int) -> str:
    """Returns a description of an exit code: the code, or the name of the signal."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
