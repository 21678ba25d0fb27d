# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there at all, also when the machine fails."""

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes, *, mode: int = 0o666, replace: bool = True) -> None:
    """Writes `data` to a new file beside `path`, syncs it, then renames it to `path`.

    `mode` is the mode of the new file, less the process's umask. Without `replace` an existing file
    stays, and FileExistsError is raised. Raises OSError when the file cannot be written.
    """
    fresh = path.with_name(f"{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(fresh, flags, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if replace:
        fresh.replace(path)
        return
    try:
        path.hardlink_to(fresh)
    finally:
        fresh.unlink()


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on its disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
