# SPDX-License-Identifier: Apache-2.0
"""Reads and copies folders, file by file.

Nothing is followed out of a folder: a link is deployed as a link, and one that leads out, or
anything that is neither file, folder nor link, is refused.
"""

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Final

from pipecd_plugin_files.entry import EXECUTABLE, PLAIN, Entry, format_path, to_deployed_mode

BLOCK: Final = 1024 * 1024
SMALL_BLOCK: Final = 64 * 1024
"""The first read of a file that is smaller: a buffer of a whole block costs three system calls."""

Excluded = Callable[[str], bool]
"""Is a path, relative to the folder, left out?"""


class TreeError(Exception):
    """A folder that cannot be deployed; the message says which file, and why."""


class StoppedError(Exception):
    """The copy was stopped because its stop event is set."""


class Digests:
    """SHA-256 of files, remembered while nothing about a file has changed.

    A look at a large directory once a minute must not read all of it once a minute.
    """

    MOST: Final = 200_000

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int, int], str] = {}
        self._lock = threading.Lock()

    def compute(self, path: str, seen: os.stat_result) -> str:
        key = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
        if (known := self._known.get(key)) is not None:
            return known
        with open(path, "rb", opener=_no_follow) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        with self._lock:
            if len(self._known) >= self.MOST:
                self._known.clear()
            self._known[key] = found
        return found


def _no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def read_desired(root: str, excluded: Excluded, digests: Digests) -> dict[str, Entry]:
    """Returns the files of a repository's folder as they would be deployed. Raises TreeError."""
    found: dict[str, Entry] = {}
    real_root = os.path.realpath(root)
    for path, entry in _walk(root, excluded):
        if entry.is_symlink():
            found[path] = _link(entry.path, path, real_root)
        else:
            seen = entry.stat(follow_symlinks=False)
            _must_be_file(seen, path)
            mode = to_deployed_mode(seen.st_mode)
            found[path] = Entry("file", mode, seen.st_size, digests.compute(entry.path, seen))
    return found


def present(root: str, digests: Digests) -> dict[str, Entry]:
    """Returns what is in a directory; refuses nothing, leaves out files that vanish meanwhile."""
    found: dict[str, Entry] = {}
    for path, entry in _walk(root, lambda _: False):
        try:
            seen = entry.stat(follow_symlinks=False)
            mode = stat.S_IMODE(seen.st_mode)
            if stat.S_ISLNK(seen.st_mode):
                found[path] = Entry("link", 0, 0, os.readlink(entry.path))  # noqa: PTH115
            elif stat.S_ISREG(seen.st_mode):
                found[path] = Entry("file", mode, seen.st_size, digests.compute(entry.path, seen))
            else:
                found[path] = Entry("other", mode, 0, f"{stat.S_IFMT(seen.st_mode):o}")
        except FileNotFoundError:
            continue
        except PermissionError:
            found[path] = Entry("other", 0, 0, "unreadable")
    return found


def copy(
    root: str, to: str, excluded: Excluded, stop: threading.Event | None = None
) -> dict[str, Entry]:
    """Copies a folder into an empty directory; returns what was written. Raises TreeError.

    One loop without helpers for files: it runs once for each of many thousand.
    """
    found: dict[str, Entry] = {}
    real_root = os.path.realpath(root)
    buffer_flags = os.O_RDONLY | os.O_NOFOLLOW
    new_flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    masked = _umask() & EXECUTABLE
    sha256 = hashlib.sha256
    made = {""}
    for path, entry in _walk(root, excluded):
        if stop is not None and stop.is_set():
            raise StoppedError
        folder = path.rpartition("/")[0]
        if folder not in made:
            _make_folders(to, folder, made)
        if entry.is_symlink():
            found[path] = link = _link(entry.path, path, real_root)
            os.symlink(link.digest, f"{to}/{path}")  # noqa: PTH211
            continue
        try:
            source = os.open(entry.path, buffer_flags | os.O_NONBLOCK)
        except OSError as error:
            raise TreeError(f"{format_path(path)!r} cannot be read: {error.strerror}") from None
        try:
            seen = os.fstat(source)
            _must_be_file(seen, path)
            mode = EXECUTABLE if seen.st_mode & 0o111 else PLAIN
            target = os.open(f"{to}/{path}", new_flags, mode)
            try:
                block = SMALL_BLOCK if seen.st_size < SMALL_BLOCK else BLOCK
                data = os.read(source, block)
                digest = sha256(data)
                size = len(data)
                _write(target, data)
                while len(data) == block or size < seen.st_size:
                    if not (data := os.read(source, block)):
                        break
                    digest.update(data)
                    size += len(data)
                    _write(target, data)
                if masked:
                    os.fchmod(target, mode)
            finally:
                os.close(target)
        finally:
            os.close(source)
        found[path] = Entry("file", mode, size, digest.hexdigest())
    return found


def _write(target: int, data: bytes) -> None:
    written = os.write(target, data)
    while written < len(data):
        written += os.write(target, data[written:])


def _make_folders(to: str, folder: str, made: set[str]) -> None:
    parts = folder.split("/")
    for count in range(1, len(parts) + 1):
        each = "/".join(parts[:count])
        if each not in made:
            os.mkdir(f"{to}/{each}")  # noqa: PTH102
            os.chmod(f"{to}/{each}", EXECUTABLE)  # noqa: PTH101 - whatever the umask says
            made.add(each)


def _walk(root: str, excluded: Excluded) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Yields all entries below a folder but folders, with their paths; each folder in order."""
    waiting = [("", root)]
    while waiting:
        prefix, folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise TreeError(
                f"{format_path(prefix) or '.'!r} cannot be read: {error.strerror}"
            ) from None
        below = []
        for entry in listed:
            path = prefix + entry.name
            if excluded(path):
                continue
            if entry.is_dir(follow_symlinks=False):
                below.append((f"{path}/", entry.path))
            else:
                yield path, entry
        waiting += reversed(below)


def _link(place: str, path: str, real_root: str) -> Entry:
    to = os.readlink(place)  # noqa: PTH115
    # Resolved and not only read: `a/../..` leads elsewhere when `a` is a link itself.
    real = os.path.realpath(place)
    if to.startswith("/") or (real != real_root and not real.startswith(f"{real_root}/")):
        raise TreeError(
            f"the link {format_path(path)!r} leads out of the folder: {format_path(to)!r}"
        )
    return Entry("link", 0, 0, to)


def _must_be_file(seen: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(seen.st_mode):
        raise TreeError(f"{format_path(path)!r} is neither file, folder nor link")


def _umask() -> int:
    # The only way to ask is to set it; other threads that create files in between are ours alone.
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:  # noqa: PTH123
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o777
