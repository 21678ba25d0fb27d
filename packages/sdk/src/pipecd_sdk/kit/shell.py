# SPDX-License-Identifier: Apache-2.0
"""Programs run for a stage: their output to its log, their whole process group ended with it."""

import asyncio
import codecs
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from pipecd_runtime import process as door
from pipecd_runtime.orphans import MARK_VARIABLE
from pipecd_runtime.process import Argument, Process
from pipecd_sdk.results import StageFailedError
from pipecd_sdk.stage_log import StageLog

__all__ = ["CommandFailedError", "CompletedCommand", "run"]

GRACE: Final = timedelta(seconds=10)
MOST_KEPT: Final = 16 * 1024 * 1024
"""Bytes of output that are kept; what comes after them only goes to the log."""
CHUNK: Final = 64 * 1024
LAST_OUTPUT_SECONDS: Final = 1.0
"""Seconds that what a program left running may keep its output open before it is ended too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedCommand:
    """How a program ended, and what it printed.

    Example:
        >>> CompletedCommand(exit_code=0, output="1.33\\n", errors="").output.strip()
        '1.33'
    """

    exit_code: int
    """Negative: the number of the signal that ended it."""
    output: str
    errors: str
    is_cut: bool = False
    """Whether there was more output than is kept."""


class CommandFailedError(StageFailedError):
    """A program did not end with exit code 0; `completed` has what it printed.

    Example:
        try:
            await run(["kubectl", "apply", "-f", "-"], input=manifests)
        except CommandFailedError as error:
            ctx.log.error("%s", error.completed.errors)
    """

    def __init__(self, message: str, *, completed: CompletedCommand) -> None:
        super().__init__(message)
        self.completed = completed


async def run(
    command: str | Sequence[str | Path | Argument],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    inherit_env: bool = True,
    input: bytes = b"",
    log: StageLog | None = None,
    limit: timedelta | None = None,
    grace: timedelta = GRACE,
    check: bool = True,
) -> CompletedCommand:
    """Runs a program to its end and returns what it printed.

    A text is run by `/bin/sh`, a list without a shell.

    `env` is added to the environment of the plugin, without what PipeCD itself has in it; without
    `inherit_env` it is all that the program gets. A word that comes from outside goes into the list
    as `word(text)` of `pipecd_sdk.kit.process`: it is never read as an option. With `log` both
    outputs are passed on line by line as they come. When the call is cancelled, or `limit` has
    passed, the whole process group gets SIGTERM, and SIGKILL after `grace`; a limit raises
    CommandFailedError, as any exit code but 0 does unless `check` is off.

    Example:
        >>> asyncio.run(run("echo $GREETING", env={"GREETING": "hello"})).output
        'hello\\n'
        >>> asyncio.run(run(["false"], check=False)).exit_code
        1
    """
    words = _words(command)
    is_script = isinstance(command, str)
    name = "the script" if is_script else repr(os.path.basename(words[0].text))  # noqa: PTH119
    environment = _choose_environment(env, inherit_env=inherit_env)
    output, errors = _Output(log), _Output(log)
    async with AsyncExitStack() as opened:
        try:
            process = await _start(
                words, output, errors, opened, cwd=cwd, env=environment, input=input
            )
        except (OSError, door.BadArgumentError) as error:
            raise _refuse(name, error) from error
        try:
            async with asyncio.timeout(limit.total_seconds() if limit else None):
                await _follow(process, output, errors)
        except TimeoutError:
            completed = _complete(-signal.SIGKILL, output, errors)
            message = f"{name} did not end within {limit}"
            raise CommandFailedError(message, completed=completed) from None
        finally:
            await _end(process, grace.total_seconds())
    assert process.returncode is not None, "it has ended"  # noqa: S101
    completed = _complete(process.returncode, output, errors)
    if check and completed.exit_code != 0:
        raise CommandFailedError(_reason(name, completed), completed=completed)
    return completed


async def _start(
    words: tuple[Argument, ...],
    output: "_Output",
    errors: "_Output",
    opened: AsyncExitStack,
    *,
    cwd: Path | None,
    env: Mapping[str, str],
    input: bytes,
) -> door.Process:
    import tempfile  # noqa: PLC0415 - a plugin that waits needs none of it

    try:
        stdout, stderr = await output.open(opened), await errors.open(opened)
        with tempfile.TemporaryFile() as given:
            given.write(input)
            given.seek(0)
            return await door.start(
                words,
                cwd=cwd,
                env=env,
                stdin=given,
                stdout=stdout,
                stderr=stderr,
            )
    finally:
        output.close_writer()
        errors.close_writer()


def _refuse(name: str, error: OSError | door.BadArgumentError) -> CommandFailedError:
    completed = CompletedCommand(exit_code=127, output="", errors=str(error))
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return CommandFailedError(f"{name} could not be started: {reason}", completed=completed)


def _complete(exit_code: int, output: "_Output", errors: "_Output") -> CompletedCommand:
    return CompletedCommand(
        exit_code=exit_code,
        output=output.text,
        errors=errors.text,
        is_cut=output.is_cut or errors.is_cut,
    )


def _choose_environment(env: Mapping[str, str] | None, *, inherit_env: bool) -> dict[str, str]:
    # The mark finds what a program has left behind; it says nothing to anybody else.
    marked = (MARK_VARIABLE,)
    base = (
        door.operator_environment(also=marked) if inherit_env else door.choose_environment(marked)
    )
    return base | dict(env or {})


def _words(command: str | Sequence[str | Path | Argument]) -> tuple[Argument, ...]:
    if isinstance(command, str):
        return (*door.own("/bin/sh", "-c", "--"), door.word(command))
    # A plain text is the author's own: the name of a program, an option.
    return tuple(
        each if isinstance(each, Argument) else door.vouch_for([str(each)])[0] for each in command
    )


def _reason(name: str, completed: CompletedCommand) -> str:
    if completed.exit_code < 0:
        ended = f"was ended by signal {-completed.exit_code}"
    else:
        ended = f"ended with exit code {completed.exit_code}"
    last = completed.errors.strip().rpartition("\n")[2] if completed.errors.strip() else ""
    return f"{name} {ended}: {last}" if last else f"{name} {ended}"


async def _follow(process: Process, output: "_Output", errors: "_Output") -> None:
    async with asyncio.TaskGroup() as tasks:
        reading = [tasks.create_task(each.read()) for each in (output, errors)]
        await process.wait()
        left = set(reading)
        try:
            _, left = await asyncio.wait(reading, timeout=LAST_OUTPUT_SECONDS)
        finally:
            if left:
                # What is in the background and has the output belongs to this run, and ends.
                _signal(process, signal.SIGKILL)
        _, left = await asyncio.wait(reading, timeout=LAST_OUTPUT_SECONDS)
        for task in left:  # it left the process group as well, and is not waited for
            task.cancel()
    output.finish()
    errors.finish()


async def _end(process: Process, grace_seconds: float) -> None:
    if process.returncode is not None:
        return
    _signal(process, signal.SIGTERM)
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_seconds):
            await process.wait()
    _signal(process, signal.SIGKILL)  # also for children that outlived their parent's end
    await process.wait()


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


class _Output:
    """One output of a program: kept, and passed on in whole lines."""

    def __init__(self, log: StageLog | None) -> None:
        self._log = log
        self._kept: list[str] = []
        self._size = 0
        self.is_cut = False
        self._line = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stream = asyncio.StreamReader()
        self._writer = -1

    async def open(self, opened: AsyncExitStack) -> int:
        """Makes a pipe; returns its write end, for the program.

        Not asyncio's own pipe: there `wait` returns only when all holders of the output have ended.
        """
        reader, self._writer = os.pipe()
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(self._stream)
        pipe = os.fdopen(reader, "rb", 0)
        transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)
        opened.callback(transport.close)
        return self._writer

    def close_writer(self) -> None:
        """Closes our copy of the write end: only the program holds it then."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    @property
    def text(self) -> str:
        return "".join(self._kept)

    async def read(self) -> None:
        while data := await self._stream.read(CHUNK):
            text = self._decoder.decode(data)
            if self._size < MOST_KEPT:
                self._kept.append(text)
                self._size += len(data)
            else:
                self.is_cut = True
            if self._log is not None:
                whole, newline, self._line = (self._line + text).rpartition("\n")
                if newline:
                    await self._log.write(whole)
                elif len(self._line) > CHUNK:
                    await self._log.write(self._line)
                    self._line = ""

    def finish(self) -> None:
        """Logs the output after the last newline."""
        if rest := self._decoder.decode(b"", final=True):
            self._kept.append(rest)
        if self._log is not None and (self._line + rest):
            self._log.info("%s", self._line + rest)
