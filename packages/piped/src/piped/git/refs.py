# SPDX-License-Identifier: Apache-2.0
"""Notice that a branch of a repository on this machine has moved, without running git.

Git replaces the file of a ref, or the file of all packed refs, whenever a branch moves; looking at
two files ten times a second costs next to nothing.
"""

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

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

    def _find(self) -> tuple[str, ...]:
        folder = common_folder(self._path)
        if folder is None:
            return ()
        if (tables := folder / "reftable" / "tables.list").exists():
            return (str(tables),)
        return (str(folder / "refs" / "heads" / self._branch), str(folder / "packed-refs"))


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
        found = os.stat(file)  # noqa: PTH116 - ten times a second, so without making a Path
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
