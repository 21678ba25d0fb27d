# SPDX-License-Identifier: Apache-2.0
"""One attempt to run a script: begun or found, followed to its end, ended when cancelled."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from pipecd_runtime.shim import chaos
from pipecd_runtime.shim.runner import NOT_STARTED
from pipecd_sdk import Severity, StageContext, StageFailedError
from pipecd_sdk.scripts.death_notice import wait_death_notice
from pipecd_sdk.scripts.ending import ending_limit_seconds
from pipecd_sdk.scripts.leftovers import end_leftovers
from pipecd_sdk.scripts.output import OutputBlock, OutputFile
from pipecd_sdk.scripts.prefork import SHIMS
from pipecd_sdk.scripts.records import EndRecord, ScriptRecord, StartRecord
from pipecd_sdk.scripts.shim_client import Script, Shim

NOTICE_AFTER_SECONDS: Final = 3.0
"""Seconds of waiting for a background process before the log says so."""
MOST_STARTS: Final = 3
"""How often a shim is started that ends before it has done anything."""

Mark = Callable[[], Awaitable[None]]
"""Marks the start of a script at the control plane; returns when that cannot be lost."""


class LogText(NamedTuple):
    """What the log shows of a line of output; an empty text is not shown."""

    text: str
    severity: Severity = Severity.INFO


Translate = Callable[[str], LogText]
"""Makes the log's line of one of the output. Pure: each process gets the same from a line."""


def as_written(line: str) -> LogText:
    """Returns the line as it is."""
    return LogText(line)


class Attempt:
    """An attempt, and what this process has said about it so far."""

    def __init__(
        self,
        ctx: StageContext,
        record: ScriptRecord,
        script: Script,
        *,
        heading: Sequence[str],
        floor: int,
        mark: Mark | None = None,
        what: str = "the script",
        translate: Translate = as_written,
    ) -> None:
        """`mark` is called before the script is started, while its shim makes everything ready."""
        self._ctx = ctx
        self._record = record
        self._script = script
        self._heading = heading
        self._floor = floor
        self._mark = mark
        self._what = what
        self._translate = translate
        self._shim = Shim(record)
        self._output = OutputFile(record.output)
        self._starts = 0
        self._is_headed = False
        self._shell_ended_at: float | None = None
        self._is_ending = False

    async def run_to_end(self) -> EndRecord | None:
        """Returns how the script ended; None when that is unknown and none of its processes runs.

        A cancellation ends the script and all it started before it is raised further, unless the
        next process continues the stage. So does any other error. A script whose stage was stopped
        while no process followed it is ended as well.
        """
        try:
            ended = await (self._end() if self._record.is_forbidden() else self._follow())
        except asyncio.CancelledError:
            if self._ctx.is_handed_over():
                raise
            # When piped dies, this is cancelled, too, a moment before the kernel ends this process.
            # That must not end the script.
            await wait_death_notice()
            self._ctx.log.info("Cancelled: ending %s and all it started", self._what)
            await self._end()
            raise
        except Exception:
            await wait_death_notice()  # piped's death may be what went wrong
            await self._end()
            raise
        finally:
            self._shim.leave()
            self._output.close()
        if ended is None:
            count = await self._end_leftovers()
            self._ctx.log.info(
                "Processes of the interrupted script that had to be ended: %d", count
            )
        chaos.hit("plugin.exit-read")
        return ended

    async def _follow(self) -> EndRecord | None:
        """Copies the output to the stage log until the script is over; starts it if needed.

        An earlier process may have started it. Returns None when it is unknown how it ended.
        """
        while True:
            # In this order: a shim holds its lock before it starts, and until its exit is known.
            is_started = self._record.is_started()
            locked = self._record.is_locked()
            if not locked and not is_started:
                if self._shim.is_own:
                    await self._shim.wait()
                    continue
                if self._is_ending:
                    return None
                await self._start()
                continue
            ended = self._record.read_ended()
            started = self._record.read_started()
            if started is not None:
                await self._pass_on(started)
            if ended is not None:
                await self._pass_on_rest(started)
                return ended
            if not locked:
                await self._pass_on_rest(started)
                return None
            self._notice_background()
            await self._shim.wait()
            if self._is_ending and self._ctx.is_ending():
                self._shim.signal(signal.SIGUSR1)

    async def _start(self) -> None:
        code = self._shim.exit_code
        if code == NOT_STARTED:
            why = self._record.errors() or "there is no room on the disk"
            raise StageFailedError(f"{self._what} could not be started: {why}")
        if self._starts == MOST_STARTS:
            how = "was killed" if code is None else f"ended with {code}"
            raise StageFailedError(f"{self._what} could not be started: its shim {how} each time")
        self._starts += 1
        try:
            await self._shim.prepare(self._script, floor=self._floor)
        except OSError as error:
            raise StageFailedError(f"{self._what} could not be started: {error}") from error
        if self._mark is not None:
            try:
                await self._mark()
            except BaseException:
                self._shim.leave()  # it ends: what is not marked is not started
                raise
            self._mark = None
        chaos.hit("plugin.marked")
        self._shim.release()
        chaos.hit("plugin.shim-started")

    async def _pass_on(self, started: StartRecord) -> None:
        if not self._is_headed:
            self._is_headed = True
            SHIMS.prepare()  # the next script of the pipeline may follow soon
            self._ctx.log.set_next_index(started.first_index)
            for line in self._heading:
                self._ctx.log.info("%s", line)
        while (blocks := self._output.read()) is not None:
            self._shim.has_news()
            await self._show(started, blocks)

    async def _pass_on_rest(self, started: StartRecord | None) -> None:
        if started is None:
            return
        await self._show(started, self._output.rest())
        self._ctx.log.set_next_index(self._record.index_at(started, self._output.position))

    async def _show(self, started: StartRecord, blocks: Sequence[OutputBlock]) -> None:
        for block in blocks:
            self._ctx.log.set_next_index(
                self._record.index_at(started, block.position), at=block.at
            )
            if block.is_note:
                self._ctx.log.error("%s", block.text)
            else:
                await self._write(self._translate(block.text))
            chaos.hit("plugin.output")

    async def _write(self, shown: LogText) -> None:
        if shown.severity is Severity.ERROR:
            self._ctx.log.error("%s", shown.text)
        elif shown.severity is Severity.SUCCESS:
            self._ctx.log.success("%s", shown.text)
        elif shown.text or self._translate is as_written:
            await self._ctx.log.write(shown.text)

    def _notice_background(self) -> None:
        """Logs once that background processes keep an ended script waiting.

        A script is over when no process holds its output any more, as in a shell's pipeline.
        """
        if not self._output.shell_has_ended or self._is_ending:
            return
        now = time.monotonic()
        if self._shell_ended_at is None:
            self._shell_ended_at = now
        elif now >= self._shell_ended_at + NOTICE_AFTER_SECONDS:
            self._shell_ended_at = float("inf")
            self._ctx.log.info(
                "The script has ended; waiting for background processes that hold its output"
            )

    async def _end(self) -> EndRecord | None:
        """Has the shim end the script, or ends its orphans here; returns how the script ended.

        First every start is prevented: a shim of an earlier process may be about to start it.
        When this process is ending, the start is not prevented: the next process continues it.
        """
        self._is_ending = True
        if not self._ctx.is_ending():
            with suppress(OSError):  # a disk that takes no record takes none from a shim
                self._record.forbid()
        ended = None
        try:
            async with asyncio.timeout(ending_limit_seconds(self._script.kill_grace_seconds)):
                while not self._shim.signal(signal.SIGTERM) and self._record.is_locked():
                    await self._shim.wait()
                ended = await self._follow()
        except TimeoutError:
            self._ctx.log.error("The script's shim does not answer")  # noqa: TRY400 - for people
            self._shim.signal(signal.SIGKILL)
        if ended is None:
            await self._end_leftovers()
        return ended

    async def _end_leftovers(self) -> int:
        script = self._script
        return await end_leftovers(
            self._ctx, script.token, script.kill_grace_seconds, is_interrupted=script.is_interrupted
        )
