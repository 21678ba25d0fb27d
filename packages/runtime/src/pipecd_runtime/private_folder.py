# SPDX-License-Identifier: Apache-2.0
"""A folder that only its user may write to: data folders hold keys, records and worktrees.

A user who can write there controls what runs, so a folder that others could write to is closed
before it is used, and refused when something of theirs is in it.
"""

import os
import stat
from pathlib import Path
from typing import Final

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class UnsafeFolderError(Exception):
    """A folder that other users of the machine control; the hint says what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def close_folder(folder: Path) -> str:
    """Makes a folder, or closes an existing one to other users; its group may still read it.

    Returns a sentence when an existing folder was changed, else "". Raises UnsafeFolderError when
    it belongs to another user, or others could write to it and an entry is not ours; OSError when
    it cannot be made or read.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise UnsafeFolderError(
            f"the folder {str(folder)!r} belongs to the user {found.st_uid}, not to this one"
            f" ({os.geteuid()})",
            hint=f"change its owner, or name one inside of it, such as {str(folder / 'data')!r}",
        )
    mode = stat.S_IMODE(found.st_mode)
    wanted = mode & ~(_WRITABLE_BY_OTHERS | stat.S_IRWXO)
    if mode == wanted:
        return ""
    if mode & _WRITABLE_BY_OTHERS:
        _refuse_foreign_entries(folder)
    folder.chmod(wanted)
    return f"closed the folder {str(folder)!r} to other users (mode {mode:04o}, now {wanted:04o})"


def _refuse_foreign_entries(folder: Path) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            owner = entry.stat(follow_symlinks=False).st_uid
            if owner != os.geteuid():
                raise UnsafeFolderError(
                    f"other users can write to the folder {str(folder)!r}, and {entry.name!r} in it"
                    f" belongs to the user {owner}",
                    hint="see who put it there; then remove it, and `chmod go-w` the folder",
                )
