# SPDX-License-Identifier: Apache-2.0
"""A lock on a data folder for one process; the kernel releases it when the process dies."""

import fcntl
import os
from pathlib import Path
from typing import Final, Self

from pipecd_runtime.private_folder import close_folder

LOCK_FILE: Final = "lock"


class FolderInUseError(Exception):
    """Another process owns the folder."""

    def __init__(self, owner: str) -> None:
        super().__init__(f"another process ({owner or 'unknown'}) owns the folder")
        self.owner = owner
        """The pid of the owner, empty when it has not written it yet."""


class FolderLock:
    """The lock on a folder, held until it is closed."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder where it is missing, closes it to other users, and locks it.

        Raises UnsafeFolderError when other users control it, FolderInUseError when another
        process owns it, OSError when it cannot be made or written.
        """
        self.notice = close_folder(folder)
        """A sentence when an existing folder had to be closed, else empty."""
        self._descriptor = os.open(
            folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            self._acquire()
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the lock."""
        os.close(self._descriptor)

    def _acquire(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            raise FolderInUseError(owner) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
