# SPDX-License-Identifier: Apache-2.0
"""The output of a program: the last lines are kept, all go to piped's log, within reason.

A program may write anything, as fast as it can, for ever: what is kept of it has a limit, of a
flood only the end is looked at, and nothing of it can move a terminal's cursor.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from pipecd_runtime.logs import logger

log = logger(__name__)

KEPT_LINES: Final = 50
LONGEST_LINE: Final = 4096
CHUNK: Final = 64 * 1024
LINES_A_SECOND: Final = 100
"""More than that is read, but not logged: it would fill the disk of the log."""

COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
CONTROLS: Final = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x09}


def _is_never_noise(_line: str) -> bool:
    return False


class Output:
    """The output of one program, over all its processes."""

    def __init__(
        self,
        name: str,
        mask: Callable[[str], str] = str,
        is_noise: Callable[[str], bool] = _is_never_noise,
    ) -> None:
        """`mask` takes secrets out of a line; a line that `is_noise` is not kept, only debugged."""
        self._name = name
        self._mask = mask
        self._is_noise = is_noise
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._second = 0.0
        self._written = 0
        self._dropped = 0

    def last(self) -> tuple[str, ...]:
        """The last lines, the oldest first."""
        return tuple(self._lines)

    async def follow(self, reader: asyncio.StreamReader) -> None:
        """Read until every process that could write has ended."""
        rest, is_cut = b"", False
        while chunk := await reader.read(CHUNK):
            if is_cut:  # the beginning of this line was taken, the rest of it is not
                _, newline, chunk = chunk.partition(b"\n")
                is_cut = not newline
            *lines, rest = (rest + chunk).rsplit(b"\n", LINES_A_SECOND + 1)
            if len(lines) > LINES_A_SECOND:
                self._dropped += lines.pop(0).count(b"\n") + 1
            if len(rest) > LONGEST_LINE:
                lines.append(rest)
                rest, is_cut = b"", True
            self._take(lines)
        self._take([rest] if rest else [])
        self._log_dropped()

    def _take(self, lines: list[bytes]) -> None:
        for line in lines:
            text = line[:LONGEST_LINE].decode(errors="replace").rstrip("\r")
            text = COLOURS.sub("", text).translate(CONTROLS)
            if text:
                text = self._mask(text)
                if self._is_noise(text):
                    log.debug("plugin.output", plugin=self._name, line=text)
                    continue
                self._lines.append(text)
                self._write(text)

    def _write(self, text: str) -> None:
        now = time.monotonic()
        if now - self._second >= 1:
            self._log_dropped()
            self._second, self._written = now, 0
        self._written += 1
        if self._written <= LINES_A_SECOND:
            log.info("plugin.output", plugin=self._name, line=text)
        else:
            self._dropped += 1

    def _log_dropped(self) -> None:
        if self._dropped:
            log.warning("plugin.output_dropped", plugin=self._name, lines=self._dropped)
            self._dropped = 0
