# SPDX-License-Identifier: Apache-2.0
"""What a run of the tests leaves behind: processes, and entries of its temporary folder.

The run gets a temporary folder of its own, which its programs inherit. A process is the run's when
its environment has the run's mark, or when it works in, names or was given a path of the run. With
several workers the one that started them looks, once they have ended.
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARK_VARIABLE: Final = "TEST_RUN_OF_PIPECD"
"""Not one that begins as ours do: those are not inherited by scripts and plugins."""

CURRENT_TEST: Final = b"PYTEST_CURRENT_TEST="
GRACE_SECONDS: Final = 5.0
"""How long what was asked to end may take; a process needs a moment to go."""

LOOK_SECONDS: Final = 0.1
PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A process that a test has left running."""

    pid: int
    command: str
    test: str

    def __str__(self) -> str:
        return f"process {self.pid}: {self.command}" + (f", of {self.test}" if self.test else "")


class TestRun:
    """A run of the tests: its temporary folder, and what it leaves."""

    __test__ = False  # not a class of tests

    def __init__(self, base_folder: Path) -> None:
        """`base_folder` is where pytest makes the folders of tests."""
        self.folder = Path(tempfile.mkdtemp(prefix="pt-"))
        self._base_folder = base_folder
        self._before = {
            name: os.environ.get(name) for name in ("TMPDIR", MARK_VARIABLE) if name in os.environ
        }
        os.environ["TMPDIR"] = str(self.folder)
        os.environ[MARK_VARIABLE] = self.folder.name
        tempfile.tempdir = None

    def find_processes(self) -> list[Leftover]:
        """Return what still runs, after a moment to end."""
        over = time.monotonic() + GRACE_SECONDS
        while (found := list(self._living())) and time.monotonic() < over:
            time.sleep(LOOK_SECONDS)
        return found

    def find_entries(self) -> list[str]:
        """Return what is left in the temporary folder, but for what pytest itself keeps there.

        A test that runs pytest leaves the folders of the last runs, as pytest does everywhere.
        """
        names = sorted(entry.name for entry in self.folder.iterdir())
        return [name for name in names if not name.startswith("pytest-of-")]

    def close(self) -> None:
        """End and remove what is left."""
        for leftover in self._living():
            try:
                os.kill(leftover.pid, signal.SIGKILL)
            except OSError:
                continue  # it has ended
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("TMPDIR", MARK_VARIABLE):
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in self._before.items() if value})
        tempfile.tempdir = None

    def _living(self) -> Iterator[Leftover]:
        ours = _ancestors()
        for entry in PROC.iterdir():
            if entry.name.isdecimal() and int(entry.name) not in ours:
                try:
                    found = self._look(entry)
                except OSError:
                    continue  # it has ended, or is another user's
                if found is not None:
                    yield found

    def _look(self, entry: Path) -> Leftover | None:
        if entry.stat().st_uid != os.geteuid():
            return None
        command = (entry / "cmdline").read_bytes()
        if not command:  # a zombie, or a thread of the kernel
            return None
        environment = (entry / "environ").read_bytes().split(b"\0")
        if not self._is_ours(environment, command, str((entry / "cwd").readlink())):
            return None
        tests = [each for each in environment if each.startswith(CURRENT_TEST)]
        return Leftover(
            pid=int(entry.name),
            command=command.replace(b"\0", b" ").decode(errors="replace").strip()[:200],
            test=tests[0].removeprefix(CURRENT_TEST).decode(errors="replace") if tests else "",
        )

    def _is_ours(self, environment: list[bytes], command: bytes, cwd: str) -> bool:
        if f"{MARK_VARIABLE}={self.folder.name}".encode() in environment:
            return True
        places = [f"{folder}/".encode() for folder in (self.folder, self._base_folder)]
        text = b"\0".join((command, f"{cwd}/".encode(), *environment))
        return any(place in text for place in places)


def _ancestors() -> set[int]:
    """Return this process and those that it comes from."""
    found: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            pid = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found
