# SPDX-License-Identifier: Apache-2.0
"""Bring a mirror from an earlier run back to what we put there: one ref, and our own settings.

Whatever else lies in it can change what a commit means: a replace ref or a graft shows other files
under an honest hash, a setting names a program to run. No git is needed for this, and none could be
trusted with it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipecd_model.gitnames import BranchName
from pipecd_piped.git.folder import remove
from pipecd_runtime.files import write_atomically

_OURS: Final = frozenset({"HEAD", "config", "objects", "packed-refs", "refs"})
_ALTERNATES: Final = ("alternates", "http-alternates")
_HASH: Final = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?\n?")
_LOCK: Final = ".lock"
"""Left alone: a git process may hold it; a stale one is removed by `mirror` once it is old."""

_SHA1_SETTINGS: Final = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
_SHA256_SETTINGS: Final = (
    "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true\n"
    "[extensions]\n\tobjectformat = sha256\n"
)


def write_settings(folder: Path, *, object_format: str) -> None:
    """Write the settings of a mirror, replacing what git put there."""
    text = _SHA256_SETTINGS if object_format == "sha256" else _SHA1_SETTINGS
    write_atomically(folder / "config", text.encode())


def clean_mirror(folder: Path, branch: BranchName) -> list[str]:
    """Remove all but our branch from a mirror; returns what was removed or rewritten."""
    if not folder.is_dir():
        return []
    cleaned = []
    for path in _foreign(folder, branch):
        remove(path)
        cleaned.append(str(path.relative_to(folder)))
    if _pack_only(folder / "packed-refs", branch.ref.encode()):
        cleaned.append("packed-refs")
    if _restore_settings(folder / "config"):
        cleaned.append("config")
    head = folder / "HEAD"
    wanted = f"ref: {branch.ref}\n".encode()
    if head.is_file() and head.read_bytes() != wanted:
        write_atomically(head, wanted)
    return cleaned


def _foreign(folder: Path, branch: BranchName) -> Iterator[Path]:
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        known = entry.name in _OURS or entry.name.endswith(_LOCK)
        if not known or entry.is_symlink():
            yield Path(entry.path)
    for name in _ALTERNATES:
        if os.path.lexists(folder / "objects" / "info" / name):
            yield folder / "objects" / "info" / name
    if (folder / "refs").is_dir():
        yield from _foreign_refs(folder / "refs", folder / branch.ref)


def _foreign_refs(folder: Path, ours: Path) -> Iterator[Path]:
    for path in list(folder.iterdir()):
        if path.name.endswith(_LOCK) and path.is_file() and not path.is_symlink():
            continue
        if path == ours:
            # A ref that names another one would be followed.
            if path.is_symlink() or not path.is_file() or not _HASH.fullmatch(path.read_bytes()):
                yield path
        elif path.is_dir() and not path.is_symlink() and (path in ours.parents or _is_plain(path)):
            yield from _foreign_refs(path, ours)
        else:
            yield path


def _is_plain(path: Path) -> bool:
    """Returns whether a folder is `refs/heads` or `refs/tags`, which git requires."""
    return path.parent.name == "refs" and path.name in {"heads", "tags"}


def _pack_only(file: Path, ref: bytes) -> bool:
    """Keep our ref alone in the file of packed refs; returns whether there was another one."""
    try:
        lines = file.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return False
    kept = [line for line in lines if line.startswith(b"#") or line.rstrip().endswith(b" " + ref)]
    if len(kept) == len(lines):
        return False
    write_atomically(file, b"".join(kept))
    return True


def _restore_settings(file: Path) -> bool:
    if not file.is_file():
        return False
    found = file.read_bytes()
    if found in {_SHA1_SETTINGS.encode(), _SHA256_SETTINGS.encode()}:
        return False
    is_sha256 = re.search(rb"(?im)^\s*objectformat\s*=\s*\"?sha256\"?\s*$", found)
    write_settings(file.parent, object_format="sha256" if is_sha256 else "sha1")
    return True
