# SPDX-License-Identifier: Apache-2.0
"""What a plugin's process says: the last lines are kept, all go to piped's log, within reason.

A plugin may say anything, as fast as it can, for ever: what is kept of it has a limit, of a flood
only the end is looked at, and nothing of it can move a terminal's cursor.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from pipecd_runtime.logs import logger

log = logger(__name__)

KEPT: Final = 50
LONGEST_LINE: Final = 4096
CHUNK: Final = 64 * 1024
LINES_A_SECOND: Final = 100
"""A plugin that says more is heard, but not written down: it would fill the disk of the log."""

OWN_QUESTION: Final = "DeploymentService/FetchDefinedStages"
"""What piped asks all the time to see whether a plugin serves. One that tells each call would fill
log and last words with it."""
TROUBLE: Final = re.compile("error|fail|panic|fatal", re.IGNORECASE)

COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
CONTROLS: Final = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x09}


class Output:
    """The output of one plugin, over all its processes."""

    def __init__(self, plugin: str, shown: Callable[[str], str] = str) -> None:
        """`shown` takes secrets out of a line."""
        self._plugin = plugin
        self._shown = shown
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._second = 0.0
        self._written = 0
        self._unwritten = 0

    def last(self) -> tuple[str, ...]:
        """The last lines, the oldest first."""
        return tuple(self._lines)

    async def follow(self, reader: asyncio.StreamReader) -> None:
        """Read until everybody who could write is gone."""
        rest, is_cut = b"", False
        while chunk := await reader.read(CHUNK):
            if is_cut:  # the beginning of this line was taken, the rest of it is not
                _, newline, chunk = chunk.partition(b"\n")
                is_cut = not newline
            *lines, rest = (rest + chunk).rsplit(b"\n", LINES_A_SECOND + 1)
            if len(lines) > LINES_A_SECOND:
                self._unwritten += lines.pop(0).count(b"\n") + 1
            if len(rest) > LONGEST_LINE:
                lines.append(rest)
                rest, is_cut = b"", True
            self._take(lines)
        self._take([rest] if rest else [])
        self._tell_unwritten()

    def _take(self, lines: list[bytes]) -> None:
        for line in lines:
            text = line[:LONGEST_LINE].decode(errors="replace").rstrip("\r")
            text = COLOURS.sub("", text).translate(CONTROLS)
            if text:
                text = self._shown(text)
                if OWN_QUESTION in text and not TROUBLE.search(text):
                    log.debug("plugin.output", plugin=self._plugin, line=text)
                    continue
                self._lines.append(text)
                self._write(text)

    def _write(self, text: str) -> None:
        now = time.monotonic()
        if now - self._second >= 1:
            self._tell_unwritten()
            self._second, self._written = now, 0
        self._written += 1
        if self._written <= LINES_A_SECOND:
            log.info("plugin.output", plugin=self._plugin, line=text)
        else:
            self._unwritten += 1

    def _tell_unwritten(self) -> None:
        if self._unwritten:
            log.warning("plugin.output_dropped", plugin=self._plugin, lines=self._unwritten)
            self._unwritten = 0
