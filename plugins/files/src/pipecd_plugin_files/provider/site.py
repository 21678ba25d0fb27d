# SPDX-License-Identifier: Apache-2.0
"""One directory that is deployed to: its releases, the link to the current one, and their records.

    <directory>/current            -> releases/<id>, switched by a rename
    <directory>/releases/<id>/     a release, whole as soon as it has this name
    <directory>/releases/<id>.json what is in it and where it came from, written before that
    <directory>/releases/.*        unfinished work; removed by the next process that takes the lock

A process may be killed between any two steps. What has its final name is complete, the link leads
to the old release or to the new one, and everything else is swept.
"""

import ctypes
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pipecd_plugin_files.entry import Entry

LOCK_LIMIT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
FORMAT: Final = 1


class SiteError(Exception):
    """A directory that cannot be deployed to; the message says why, the hint what to do."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRelease:
    """What is known of a release."""

    id: str
    application: str
    deployment: str
    commit: str
    created_at: float
    previous: str = ""
    """The release that the link led to before; empty for the first."""
    rollback: bool = False
    """Whether it is a new release that was made to undo `deployment`."""
    files: dict[str, Entry] = field(default_factory=dict, repr=False)


class ReleaseSite:
    """A directory with releases. All of it blocks: for threads."""

    def __init__(self, root: Path, *, flush: bool = True) -> None:
        self.root = root
        self.releases = root / "releases"
        self.link = root / "current"
        self._flush = flush

    def folder(self, release_id: str) -> Path:
        return self.releases / release_id

    def current_id(self) -> str | None:
        """Returns the id of the release that the link leads to, None when there is no link yet."""
        try:
            to = os.readlink(self.link)  # noqa: PTH115 - the text, and not a path made of it
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise SiteError(f"{str(self.root)!r} is not a directory") from None
        except OSError:
            raise SiteError(
                f"{str(self.link)!r} is not a link",
                hint="move it away; the plugin keeps a link there",
            ) from None
        head, _, tail = to.rpartition("/")
        if head != "releases" or not tail:
            raise SiteError(
                f"{str(self.link)!r} leads to {to!r}, which is no release",
                hint="remove the link, or deploy to another directory",
            )
        return tail

    def read(self, release_id: str) -> SiteRelease | None:
        """The record of a complete release, None when it is not there or not complete."""
        if not self.folder(release_id).is_dir():
            return None
        try:
            raw = json.loads(self._record(release_id).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return _release(raw) if raw.get("format") == FORMAT else None

    def current(self) -> SiteRelease | None:
        """The release that the link leads to, None when there is none or it is not ours."""
        release_id = self.current_id()
        return None if release_id is None else self.read(release_id)

    def ids(self) -> list[str]:
        """All complete releases, the oldest first: their names begin with a time."""
        try:
            names = {path.name for path in self.releases.iterdir()}
        except FileNotFoundError:
            return []
        return sorted(
            name
            for name in names
            if not name.startswith(".") and not name.endswith(".json") and f"{name}.json" in names
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the directory's lock; first removes the unfinished work of a killed process.

        Raises SiteError when another deployment holds the lock for too long.
        """
        try:
            self.releases.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.releases / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SiteError(
                f"{str(self.root)!r} cannot be written to: {error.strerror}",
                hint="does the user of piped own it?",
            ) from None
        try:
            _take(lock, self.root)
            self._sweep()
            try:
                yield
            except BaseException:
                self._sweep()  # the next run may be far off, and half a release takes room
                raise
        finally:
            os.close(lock)

    def work_folder(self, release_id: str) -> Path:
        """Creates the empty folder that a release is made in, and returns it."""
        folder = self.releases / f".new-{release_id}"
        folder.mkdir()
        folder.chmod(0o755)
        return folder

    def complete(self, release: SiteRelease) -> None:
        """Writes the record of a finished release and renames its work folder to its final name."""
        record = {"format": FORMAT, **asdict(release)}
        record["files"] = {
            path: [each.kind, each.mode, each.size, each.digest]
            for path, each in release.files.items()
        }
        draft = self.releases / f".record-{release.id}"
        draft.write_text(json.dumps(record))
        draft.replace(self._record(release.id))
        if self._flush:
            _flush(self.releases)
        (self.releases / f".new-{release.id}").rename(self.folder(release.id))
        self._flush_folder(self.releases)

    def switch(self, release_id: str) -> None:
        """Switches the link to a release atomically."""
        draft = self.releases / ".current"
        with suppress(FileNotFoundError):
            draft.unlink()
        draft.symlink_to(f"releases/{release_id}")
        draft.rename(self.link)
        self._flush_folder(self.root)

    def unlink(self) -> None:
        """Removes the link: there is no current release, as before the first one."""
        with suppress(FileNotFoundError):
            self.link.unlink()
        self._flush_folder(self.root)

    def prune(self, keep: int) -> list[str]:
        """Remove old releases but the last ones, the current one and the one before it."""
        current = self.current()
        needed = {current.id, current.previous} if current else set()
        ids = self.ids()
        room = max(keep - len(needed & set(ids)), 0)
        others = [each for each in ids if each not in needed]
        gone = others[: max(len(others) - room, 0)]
        for each in gone:
            # First out of sight: half a release must never look like one.
            self.folder(each).rename(self.releases / f".old-{each}")
            self._record(each).unlink()
            _remove_folder(self.releases / f".old-{each}")
        return gone

    def _record(self, release_id: str) -> Path:
        return self.releases / f"{release_id}.json"

    def _sweep(self) -> None:
        names = {path.name for path in self.releases.iterdir()}
        for name in names:
            path = self.releases / name
            if name == ".lock":
                continue
            is_folder = path.is_dir() and not path.is_symlink()
            if name.startswith("."):
                _remove_folder(path) if is_folder else path.unlink()
            elif name.endswith(".json") and name.removesuffix(".json") not in names:
                path.unlink()

    def _flush_folder(self, folder: Path) -> None:
        if not self._flush:
            return
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _take(lock: int, root: Path) -> None:
    over = time.monotonic() + LOCK_LIMIT_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > over:
                raise SiteError(f"another deployment is at work in {str(root)!r}") from None
            time.sleep(POLL_SECONDS)
        else:
            return


def _flush(folder: Path) -> None:
    """Write the file system of a folder to disk: one call instead of one for each file."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(number) != 0:
            raise OSError(ctypes.get_errno(), "syncfs failed")
    finally:
        os.close(number)


def _release(raw: dict[str, Any]) -> SiteRelease:
    files = {path: Entry(*each) for path, each in raw["files"].items()}
    names = SiteRelease.__dataclass_fields__.keys() - {"files"}
    return SiteRelease(**{name: raw[name] for name in names}, files=files)


def _remove_folder(path: Path) -> None:
    import shutil  # noqa: PLC0415 - brings all archive formats, and most processes remove nothing

    shutil.rmtree(path)
