# SPDX-License-Identifier: Apache-2.0
"""The records of scripts as the plugin sees them: found, begun, read, and swept away.

`<scripts>/<deployment>/<stage>-<retry>.<attempt>/`, see `shim.record` for what is in them. Scripts
outlive plugin and piped; these folders are how the next ones find them.
"""

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from pipecd_runtime.script_records import (
    find_deployment_folder,
    format_record_prefix,
    to_folder_name,
)
from pipecd_runtime.shim import record as files
from pipecd_wire.headers import SCRIPTS_VARIABLE

HEADER_ROOM: Final = 1_000_000
"""Indexes for the lines before the script's own output."""
KEEP_RECORDS_SECONDS: Final = 7 * 24 * 3600.0
"""Seconds after which records are removed that were not removed at the deployment's end."""
INDEXES_PER_BYTE: Final = 16
"""Room for our own sentences between two lines of a script."""


class StartRecord(NamedTuple):
    """What the shim left before the first command."""

    pid: int
    first_index: int
    """Of the first line of the stage log."""


class EndRecord(NamedTuple):
    """How a script ended."""

    code: int
    """Negative for a signal."""
    asked: bool
    """Was it asked to end?"""


class ScriptRecord(NamedTuple):
    """One attempt to run a script."""

    folder: Path

    def token(self) -> str | None:
        """Returns the script's token, None when it was never begun on this machine."""
        return _read(self.folder / files.INTENT) or None

    def begin(self, token: str) -> str:
        """Records that the script is about to be run; returns its token, which stays the first.

        Not synced: when a power loss takes it, the mark in the metadata shows that it was lost.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.folder / f"{files.INTENT}.{token}"
        new.touch(mode=0o600)
        new.write_text(token)
        with suppress(FileExistsError):
            (self.folder / files.INTENT).hardlink_to(new)
        new.unlink()
        return self.token() or token

    def is_locked(self) -> bool:
        """Returns whether its shim is alive."""
        return files.is_locked(str(self.folder))

    def is_started(self) -> bool:
        """Returns whether the start record exists; its content may not be written yet."""
        return (self.folder / files.STARTED).exists()

    def forbid(self) -> None:
        """Prevents every start of the script from now on, in any process. Raises OSError."""
        if self.folder.is_dir():
            files.forbid(str(self.folder))

    def is_forbidden(self) -> bool:
        """Returns whether a process has forbidden the script to start or to continue."""
        return (self.folder / files.STOPPED).exists()

    def read_started(self) -> StartRecord | None:
        """Returns the start record, None while it is not completely written."""
        words = _read(self.folder / files.STARTED).split()
        return (
            StartRecord(pid=int(words[0]), first_index=int(words[1])) if len(words) == 2 else None
        )

    def read_ended(self) -> EndRecord | None:
        """Returns how it ended, None while that is not known."""
        words = _read(self.folder / files.EXIT).split()
        return EndRecord(code=int(words[0]), asked=words[1] == "1") if len(words) == 2 else None

    def errors(self) -> str:
        """Returns the shim's own error messages."""
        return _read(self.folder / files.ERRORS).strip()

    @property
    def output(self) -> Path:
        return self.folder / files.OUTPUT

    def index_at(self, started: StartRecord, position: int) -> int:
        """Returns the log index of the line that begins at a position of the output file."""
        return started.first_index + HEADER_ROOM + INDEXES_PER_BYTE * position

    def index_after(self) -> int:
        """Returns an index above all log lines of this attempt, 0 when it did not start."""
        started = self.read_started()
        if started is None:
            return 0
        size = self.output.stat().st_size if self.output.exists() else 0
        return self.index_at(started, size) + HEADER_ROOM


class ScriptAttempts:
    """All attempts to run one script."""

    def __init__(self, scripts: Path, *, deployment: str, stage: str, retry: int) -> None:
        self._folder = find_deployment_folder(scripts, deployment)
        self._prefix = format_record_prefix(stage, retry)

    def __getitem__(self, number: int) -> ScriptRecord:
        return ScriptRecord(folder=self._folder / f"{self._prefix}{number}")

    def last(self) -> int | None:
        """Returns the number of the latest attempt that was begun, None when there was none."""
        number = None
        while self[0 if number is None else number + 1].token() is not None:
            number = 0 if number is None else number + 1
        return number

    def others(self) -> list[ScriptRecord]:
        """Returns the records of the deployment's other scripts."""
        try:
            folders = sorted(each for each in self._folder.iterdir() if each.is_dir())
        except FileNotFoundError:
            return []
        return [ScriptRecord(folder=each) for each in folders if not self._is_mine(each.name)]

    def _is_mine(self, name: str) -> bool:
        return name.startswith(self._prefix) and name.removeprefix(self._prefix).isdecimal()


def find_scripts_folder(environment: Mapping[str, str]) -> Path:
    """Returns the folder of the records; under a Go agent, which names none, that in its own."""
    given = environment.get(SCRIPTS_VARIABLE)
    return Path(given) if given else Path.home() / ".piped" / "scripts"


def sweep(scripts: Path, *, older_than: float, keep: Collection[str] = ()) -> list[str]:
    """Removes the records of deployments that were not written to for `older_than` seconds.

    Those whose script still runs stay, and those in `keep`. Returns the names of removed folders.
    """
    if not scripts.is_dir():
        return []
    from shutil import rmtree  # noqa: PLC0415 - loads much, and is needed when piped sweeps only

    kept = {to_folder_name(each) for each in keep}
    limit = time.time() - older_than
    gone = []
    for folder in scripts.iterdir():
        with suppress(FileNotFoundError, NotADirectoryError):  # another process sweeps, too
            if folder.name not in kept and _is_left(folder, limit):
                rmtree(folder, ignore_errors=True)
                gone.append(folder.name)
    return gone


def _is_left(folder: Path, limit: float) -> bool:
    """Returns whether nothing in it was written since `limit`, and no shim of it is alive."""
    records = list(folder.iterdir())
    inner = [each for record in records if record.is_dir() for each in record.iterdir()]
    newest = max(each.stat().st_mtime for each in [folder, *records, *inner])
    return newest <= limit and not any(files.is_locked(str(each)) for each in records)


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except FileNotFoundError:
        return ""
