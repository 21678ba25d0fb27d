# SPDX-License-Identifier: Apache-2.0
"""Notice that a branch of a repository on this machine has moved, without running git.

Git replaces the file of a ref, or the file of all packed refs, whenever a branch moves. The kernel
says when something changes in their folders; `signature` decides whether the branch has moved.
"""

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from asyncinotify import Inotify, Mask

from pipecd_runtime.logs import logger

log = logger(__name__)

WATCHED_PAUSE_SECONDS: Final = 1.0
"""Seconds between two checks of watched folders: some file systems do not report changes."""

UNWATCHED_PAUSE_SECONDS: Final = 0.1
"""Seconds between two checks of folders that the kernel does not watch for us."""

_CHANGES: Final = Mask.CREATE | Mask.MOVED_TO | Mask.MODIFY | Mask.DELETE | Mask.ONLYDIR

Signature = tuple[tuple[int, int, int] | None, ...]
"""A value that changes when a branch moves; only compared for equality."""

# `host:path` is a remote on another machine, unless a slash comes before the colon.
_ELSEWHERE: Final = re.compile(r"[^/]*:")


def local_path(remote: str) -> Path | None:
    """Returns the folder of a remote on this machine; None for one on another machine."""
    if remote.startswith("file://"):
        return Path(unquote(urlsplit(remote).path))
    if "://" in remote or (_ELSEWHERE.match(remote) and not Path(remote).exists()):
        return None
    return Path(remote).absolute()


class LocalBranch:
    """A branch of a repository on this machine. The repository may come and go."""

    def __init__(self, path: Path, branch: str) -> None:
        self._path = path
        self._branch = branch
        self._files: tuple[str, ...] = ()

    def signature(self) -> Signature:
        """Returns the current signature of the branch, from the metadata of its ref files."""
        if not self._files:
            self._files = self._find()
        found = tuple(_look(file) for file in self._files)
        if not any(found):
            self._files = ()  # gone, or not what it was: look for it again next time
        return found

    def folders(self) -> list[Path]:
        """Returns the folders in which something changes when the branch moves.

        The folder of a ref may not exist yet: then the next one above it does.
        """
        found: dict[Path, None] = {}
        for file in self._files:
            folder = Path(file).parent
            while not folder.exists() and folder != folder.parent:
                folder = folder.parent
            found[folder] = None
        return list(found)

    def _find(self) -> tuple[str, ...]:
        folder = common_folder(self._path)
        if folder is None:
            return ()
        if (tables := folder / "reftable" / "tables.list").exists():
            return (str(tables),)
        return (str(folder / "refs" / "heads" / self._branch), str(folder / "packed-refs"))


class LocalBranchWatch:
    """Waits for changes around the refs of a branch on this machine."""

    def __init__(
        self,
        branch: LocalBranch,
        *,
        pause_seconds: float = WATCHED_PAUSE_SECONDS,
        open_inotify: Callable[[], Inotify] = Inotify,
    ) -> None:
        self._branch = branch
        self._pause_seconds = pause_seconds
        self._open_inotify = open_inotify
        self._watched: list[tuple[Path, int]] = []
        self._inotify: Inotify | None = None
        self._is_refused = False

    async def wait(self) -> None:
        """Wait until the branch may have moved; returns after a pause in any case."""
        inotify = self._follow()
        if inotify is None:
            await asyncio.sleep(UNWATCHED_PAUSE_SECONDS)
            return
        try:
            async with asyncio.timeout(self._pause_seconds):
                await inotify.get()
        except TimeoutError:
            return
        # Events that were read together are returned without waiting: others have their turn.
        await asyncio.sleep(0)

    def close(self) -> None:
        """Stop watching."""
        if self._inotify is not None:
            self._inotify.close()
        self._inotify, self._watched = None, []

    def _follow(self) -> Inotify | None:
        """Watch the folders as they are now; returns None when they cannot be watched."""
        try:
            folders = [(each, each.stat().st_ino) for each in self._branch.folders()]
            if not folders:
                return None
            if self._inotify is None or folders != self._watched:
                self.close()
                self._inotify = self._open_inotify()
                for folder, _ in folders:
                    self._inotify.add_watch(folder, _CHANGES)
                self._watched = folders
        except OSError as error:  # gone again, or the kernel watches no more for this user
            self.close()
            if not self._is_refused:
                log.info("git.not_watched", reason=str(error))
            self._is_refused = True
            return None
        self._is_refused = False
        return self._inotify


def common_folder(path: Path) -> Path | None:
    """Returns the folder with a repository's refs: bare, with a worktree, or a linked worktree."""
    for candidate in (path / ".git", path, Path(f"{path}.git")):
        folder = _find_linked_folder(candidate) if candidate.is_file() else candidate
        if folder is None or not (folder / "HEAD").exists():
            continue
        try:
            shared = (folder / "commondir").read_text().strip()
        except OSError:
            return folder
        return (folder / shared).resolve()
    return None


def _find_linked_folder(file: Path) -> Path | None:
    """Returns the folder that a `.git` file points to; None when it points to none."""
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return None
    key, _, target = text.partition(":")
    return (file.parent / target.strip()).resolve() if key == "gitdir" else None


def _look(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116 - often, so without making a Path
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
