# SPDX-License-Identifier: Apache-2.0
"""What is waited for, on stderr: a line that is rewritten on a terminal, else a line per change."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from pipecd_pipectl.output import echo, rewrite_line
from pipecd_pipectl.times import format_duration
from pipecd_runtime.tasks import UnwrappedTaskGroup

TICK_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 30.0
"""Where no terminal is, the same line is printed again after this long: a log shows life."""


class Progress:
    """Shows what is waited for, and for how long it has been so."""

    def __init__(self, *, rewrites: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._rewrites = rewrites
        self._clock = clock
        self._text = ""
        self._since = clock()
        self._printed_at = clock()

    def update(self, text: str) -> None:
        """Shows another text; its time begins now. The same text changes nothing."""
        if text == self._text:
            return
        self._text, self._since = text, self._clock()
        self._show(again=False)

    def tick(self) -> None:
        """Shows the text again where that helps: with its new time, or after a long silence."""
        if self._text and (self._rewrites or self._clock() - self._printed_at >= SILENT_SECONDS):
            self._show(again=True)

    def clear(self) -> None:
        """Removes the line that is rewritten, before something else is printed."""
        if self._rewrites and self._text:
            rewrite_line("")

    def _show(self, *, again: bool) -> None:
        self._printed_at = self._clock()
        passed = format_duration(self._clock() - self._since)
        if self._rewrites:
            rewrite_line(f"{self._text} ({passed})")
        else:
            echo(f"{self._text} (for {passed})" if again else self._text, err=True)


@asynccontextmanager
async def showing_progress() -> AsyncIterator[Progress]:
    """Yields a progress that keeps time by itself while the block runs."""
    progress = Progress(rewrites=_can_rewrite())
    async with UnwrappedTaskGroup() as tasks:
        ticking = tasks.create_task(_keep_ticking(progress))
        try:
            yield progress
        finally:
            ticking.cancel()
            progress.clear()


async def _keep_ticking(progress: Progress) -> None:
    while True:
        await asyncio.sleep(TICK_SECONDS)
        progress.tick()


def _can_rewrite() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
