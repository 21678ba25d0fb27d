# SPDX-License-Identifier: Apache-2.0
"""A terminal of 80 columns, with a program in it: a test types, and reads what is shown."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pipecd_test_support.typed_terminal import COLUMNS, ROWS, strip_test_run

LIMIT_SECONDS = 100.0

_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class ProgramTerminal:
    """A program in a terminal of its own while the block runs; interrupted twice at the end."""

    def __init__(
        self, command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *map(str, command)],
            cwd=cwd,
            env={**strip_test_run(os.environ), **(env or {}), "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self._raw = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def shown(self) -> str:
        """All that was shown, without colours."""
        return _CONTROLS.sub("", self._raw.decode(errors="replace"))

    def wait_for(self, text: str, *, times: int = 1) -> None:
        """Wait until a text was shown so many times."""
        limit = time.monotonic() + LIMIT_SECONDS
        while self.shown.count(text) < times:
            assert self._process.poll() is None, f"it ended early:\n{self.shown}"
            assert time.monotonic() < limit, f"never showed {text!r}:\n{self.shown}"
            time.sleep(0.05)  # between looks at another process's output

    def enter(self, text: str) -> None:
        """Type a text as it is; a line ends with a line feed."""
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        self.enter("\x03")

    def ended(self) -> int:
        """Wait for the end of the program; its exit code."""
        code = self._process.wait(LIMIT_SECONDS)
        self._reader.join(LIMIT_SECONDS)
        return code

    def close(self) -> None:
        """End the program, as a person does who closes the window in the end."""
        for _ in range(2):
            if self._process.poll() is None:
                self.interrupt()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        os.close(self._ours)

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._ours, 65536)
            except OSError:  # nobody has the other end open any more
                return
            if not part:
                return
            self._raw += part

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
