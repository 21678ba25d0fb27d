# SPDX-License-Identifier: Apache-2.0
"""Delete folders, including those whose permissions a script has taken away."""

import os
import shutil
from pathlib import Path


def remove(path: Path) -> None:
    """Delete a file or folder with all that is in it, also where permissions are missing.

    Links are deleted, never followed.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        make_writable(path)
        shutil.rmtree(path)


def make_writable(folder: Path) -> None:
    """Restore our read, write and search permission on a folder and all folders below it."""
    waiting = [str(folder)]
    while waiting:
        each = waiting.pop()
        mode = os.stat(each, follow_symlinks=False).st_mode  # noqa: PTH116 - thousands of them
        if mode & 0o700 != 0o700:
            os.chmod(each, mode | 0o700)  # noqa: PTH101 - as above
        with os.scandir(each) as entries:
            waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
