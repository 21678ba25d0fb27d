# SPDX-License-Identifier: Apache-2.0
"""A shell in a pseudo-terminal of 80 columns, typed into line by line as a person does."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

COLUMNS: Final = 80
ROWS: Final = 40
LIMIT_SECONDS: Final = 60.0
"""Seconds for one command."""

READY: Final = re.compile(rb"\x1e(\d+)\x1f$")
MORE: Final = b"\x1d"
PROMPTS: Final = {"PS1": r"\036$?\037", "PS2": r"\035"}
ERASE: Final = "\x1b[K"
JOBS: Final = re.compile(r"^\[\d+\][+-]?\s+(\d+|(Done|Terminated|Exit \d+)\b.*)$")


def strip_test_run(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without what runs the tests: a person's terminal has none of it.

    pytest's workers set the width of a terminal, and `make test` its own variables.
    """
    return {
        name: value
        for name, value in environment.items()
        if name not in {"COLUMNS", "LINES", "ARGS"} and not name.startswith("MAKE")
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedCommand:
    """What was typed up to the next prompt, what the terminal showed, and the exit code."""

    command: str
    screen: str
    code: int


class TypedTerminal:
    """Bash on a terminal; it answers each line with a prompt, or asks for more."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        settings = termios.tcgetattr(theirs)
        settings[3] &= ~termios.ECHO  # what is typed is known
        termios.tcsetattr(theirs, termios.TCSANOW, settings)
        self._shell = subprocess.Popen(
            # The terminal is the session's own, so that programs in it are interrupted as usual.
            ["setsid", "--ctty", "--wait", "bash", "--noprofile", "--norc", "--noediting", "-i"],
            cwd=folder,
            env={**strip_test_run(environment), **PROMPTS, "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._wait_prompt("the shell's start")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._ours)
        self._shell.wait(timeout=LIMIT_SECONDS)

    def type_block(self, text: str) -> list[TypedCommand]:
        """Types lines one after the other; returns the commands that they were."""
        done: list[TypedCommand] = []
        typed: list[str] = []
        shown = b""
        for line in text.splitlines():
            if not line.strip() and not typed:
                continue
            typed.append(line)
            os.write(self._ours, line.encode() + b"\n")
            output, code = self._wait_prompt(line)
            shown += output
            if code is not None:
                screen = _screen(shown)
                done.append(TypedCommand(command="\n".join(typed), screen=screen, code=code))
                typed, shown = [], b""
        assert not typed, f"the shell wants more after {typed[-1]!r}"
        return done

    def _wait_prompt(self, line: str) -> tuple[bytes, int | None]:
        """Returns what was shown before the prompt; the code is None when the shell wants more."""
        seen = b""
        limit = time.monotonic() + LIMIT_SECONDS
        while True:
            if found := READY.search(seen):
                return seen[: found.start()], int(found[1])
            if seen.endswith(MORE):
                return seen[: -len(MORE)], None
            readable, _, _ = select.select([self._ours], [], [], 1)
            if readable:
                try:
                    seen += os.read(self._ours, 65536)
                except OSError:  # the shell has ended, and its terminal with it
                    raise AssertionError(f"the shell ended at {line!r}:\n{_screen(seen)}") from None
            assert time.monotonic() < limit, f"{line!r} does not end:\n{_screen(seen)}"


def _screen(seen: bytes) -> str:
    """Returns what a reader sees: without what the shell says of its jobs."""
    lines = seen.decode(errors="replace").replace("\r\n", "\n").split("\n")
    left = [_rewritten(line) for line in lines]
    return "\n".join(line for line in left if not JOBS.match(line)).removesuffix("\n")


def _rewritten(line: str) -> str:
    """Returns what is left of a line that was written over, as progress is."""
    return line.rpartition("\r")[2].replace(ERASE, "")
