# SPDX-License-Identifier: Apache-2.0
"""Write a small file whole or not at all, whenever the process or the machine dies."""

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes, *, mode: int = 0o666, replace: bool = True) -> None:
    """Put `data` on disk beside `path`, then let it take the place of what is there.

    `mode` is for a new file and loses what the process's mask takes away. Without `replace` an
    existing file stays, and FileExistsError is raised. Raises OSError when the disk refuses.
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
