# SPDX-License-Identifier: Apache-2.0
"""The output of a program: keeps the last lines, and copies lines to piped's log at a limited rate.

A program may write anything, as fast as it can, for ever. So the kept output is limited, of a flood
only the last lines are read, and control characters are replaced, because they could change the
terminal of a reader.
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
"""Further lines are counted, but not logged: they would fill the disk."""

COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
CONTROLS: Final = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x09}


def _is_never_noise(_line: str) -> bool:
    return False


class Output:
    """The output of one program, across all its processes."""

    def __init__(
        self,
        name: str,
        mask: Callable[[str], str] = str,
        is_noise: Callable[[str], bool] = _is_never_noise,
    ) -> None:
        """`mask` masks secrets in a line; a line that `is_noise` is only logged at debug level."""
        self._name = name
        self._mask = mask
        self._is_noise = is_noise
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._second = 0.0
        self._written = 0
        self._dropped = 0

    def last(self) -> tuple[str, ...]:
        """Returns the last lines, the oldest first."""
        return tuple(self._lines)

    async def follow(self, reader: asyncio.StreamReader) -> None:
        """Read the output to its end, which is when every process that can write has ended."""
        rest, is_cut = b"", False
        while chunk := await reader.read(CHUNK):
            if is_cut:  # the beginning of this line was kept, the rest is dropped
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
