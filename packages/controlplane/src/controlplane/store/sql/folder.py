# SPDX-License-Identifier: Apache-2.0
"""The data folder: owned by one process at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipecd_model.errors import StateError

LOCK_FILE = "lock"


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Own the folder while the block runs; the kernel gives it up when the process dies."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise StateError(
                f"the data folder {str(folder)!r} is in use by another pipecd (process {owner})",
                hint="stop that one, or name another folder with --data-dir",
            ) from None
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise _unusable(folder, error) from error
        yield
    finally:
        os.close(descriptor)


def _unusable(folder: Path, error: OSError) -> StateError:
    return StateError(
        f"cannot use the data folder {str(folder)!r}: {error.strerror}",
        hint="name a folder with free space that this user may write to with --data-dir",
    )
