# SPDX-License-Identifier: Apache-2.0
"""The data folder: owned by one process at a time, and closed to other users."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipecd_model.errors import StateError
from pipecd_runtime.private_folder import UnsafeFolderError, close_folder

LOCK_FILE = "lock"

log = logging.getLogger(__name__)


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Own the folder while the block runs; the kernel gives it up when the process dies."""
    try:
        if changed := close_folder(folder):
            log.warning(changed)
        descriptor = os.open(
            folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
    except UnsafeFolderError as unsafe:
        raise StateError(str(unsafe), hint=unsafe.hint) from unsafe
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
