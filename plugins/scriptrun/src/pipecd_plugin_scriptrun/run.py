# SPDX-License-Identifier: Apache-2.0
"""One script as a process: started, read, waited for; ended with all it started when cancelled."""

import asyncio
import os
import secrets
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from pipecd_plugin_scriptrun.output import relay
from pipecd_plugin_scriptrun.processes import ScriptProcesses
from pipecd_sdk import StageContext, StageFailedError

SHELL: Final = ("/bin/sh", "-l")
FIRST_LOOK: Final = 0.01
"""Seconds until it is looked at whether signalled processes are gone; doubled each time."""
LONGEST_LOOK: Final = 0.2
SHORT_GRACE: Final = 1.0
"""Seconds that are left to a script when the plugin itself must end."""
KILL_LIMIT: Final = 5.0
OUTPUT_LIMIT: Final = 1.0
"""Seconds to read what ended processes have written last."""
NOTICE_AFTER: Final = 3.0
"""Seconds of waiting for a background process before the log says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What to run."""

    text: str
    directory: Path
    environment: Mapping[str, str]
    script_id: str
    kill_grace: timedelta


def new_script_id() -> str:
    """A token that no other script has."""
    return secrets.token_hex(16)


async def run_script(ctx: StageContext, script: Script) -> int:
    """Run a script to the end of its output; the value is its exit code, negative for a signal.

    After a cancellation or a failure nothing that it started runs any more. A background process of
    a script that succeeded may live on, if it gave up the script's output.
    """
    tree = ProcessTree(ctx, script.script_id, script.kill_grace)
    with _script_file(script.text) as file:
        async with _pipe() as (reader, writer):
            process = await tree.start(script, file, writer)
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(relay(reader, ctx.log))
                try:
                    code = await process.wait()
                    if code == 0:
                        await _end_of_output(ctx, reading)
                except asyncio.CancelledError:
                    ctx.log.info("Cancelled: ending the script and all it started")
                    await tree.end()
                    await asyncio.wait([reading], timeout=OUTPUT_LIMIT)
                    raise
                if code != 0:
                    await tree.end()
                    await asyncio.wait([reading], timeout=OUTPUT_LIMIT)
                    reading.cancel()
    return code


async def _end_of_output(ctx: StageContext, reading: asyncio.Task[None]) -> None:
    """A script is over when nobody can write to its log any more, as in a shell's pipeline."""
    done, _ = await asyncio.wait([reading], timeout=NOTICE_AFTER)
    if not done:
        ctx.log.info("The script has ended; waiting for background processes that hold its output")
        await asyncio.wait([reading])


class ProcessTree:
    """A script's shell and everything that comes from it."""

    def __init__(self, ctx: StageContext, script_id: str, kill_grace: timedelta) -> None:
        self._ctx = ctx
        self._kill_grace = kill_grace.total_seconds()
        self._processes = ScriptProcesses(script_id)
        self._shell: asyncio.subprocess.Process | None = None

    async def start(self, script: Script, file: Path, output: int) -> asyncio.subprocess.Process:
        """Start the shell in a session of its own, with both outputs in one pipe."""
        try:
            self._shell = await asyncio.create_subprocess_exec(
                *SHELL,
                str(file),
                cwd=script.directory,
                env=script.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise StageFailedError(f"the script could not be started: {error}") from error
        except asyncio.CancelledError:
            await self.end()  # it may have been started all the same
            raise
        finally:
            os.close(output)  # or the end of the output would never come
        return self._shell

    async def end(self) -> int:
        """Ask all to end, and kill what has not after the grace period; how many there were.

        They are asked once: what is started after that belongs to somebody's cleaning up.
        """
        over = time.monotonic() + self._kill_grace
        asked = self._processes.signal(signal.SIGTERM, session=self._session())
        pause = FIRST_LOOK
        while alive := self._processes.find(session=self._session()):
            if self._ctx.is_ending():
                over = min(over, time.monotonic() + SHORT_GRACE)
            if time.monotonic() >= over:
                self._ctx.log.error("Killing %d processes that did not end in time", len(alive))
                await self._kill()
                break
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_LOOK)
        return len(asked)

    async def _kill(self) -> None:
        over = time.monotonic() + KILL_LIMIT
        while alive := self._processes.signal(signal.SIGKILL, session=self._session()):
            if time.monotonic() >= over:
                pids = ", ".join(str(pid) for pid in sorted(alive))
                self._ctx.log.error("These processes cannot be killed: %s", pids)
                return
            await asyncio.sleep(FIRST_LOOK)

    def _session(self) -> int | None:
        """The shell's session, as long as nobody else can have its number."""
        shell = self._shell
        return shell.pid if shell is not None and shell.returncode is None else None


@contextmanager
def _script_file(text: str) -> Iterator[Path]:
    """A file that only this user can read: arguments are shown to everybody on the machine."""
    number, name = tempfile.mkstemp(prefix="pipecd-script-", suffix=".sh")
    file = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as written:
            written.write(text)
        yield file
    finally:
        file.unlink(missing_ok=True)


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """A pipe to read from here, and its other end for a child.

    Not asyncio's own: with that a process that has ended is not seen while others hold its pipe.
    """
    source, sink = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb", buffering=0)
    )
    try:
        yield reader, sink
    finally:
        with suppress(OSError):
            transport.close()
