# SPDX-License-Identifier: Apache-2.0
"""A folder that only its user may write to: keys, records and trees lie in data folders.

Whoever can write there decides what runs, so a folder that others could write to is closed before
it is used, and refused where they may have left something in it.
"""

import os
import stat
from pathlib import Path
from typing import Final

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class UnsafeFolderError(Exception):
    """A folder that other users of the machine decide over; the hint says what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def close_folder(folder: Path) -> str:
    """Make a folder, or close an existing one to other users; its group may go on reading.

    Returns a sentence when an existing folder was changed, else "". Raises UnsafeFolderError when
    it belongs to somebody else, or when others could have put something into it; OSError when it
    cannot be made or read.
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
