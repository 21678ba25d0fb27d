# SPDX-License-Identifier: Apache-2.0
"""The data folder: locked by one process at a time, and not accessible to other users."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipecd_model.errors import StateError
from pipecd_runtime.folder_lock import FolderInUseError, FolderLock
from pipecd_runtime.private_folder import UnsafeFolderError

log = logging.getLogger(__name__)


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Locks the folder while the block runs; the kernel releases it when the process dies.

    Raises StateError when another process holds it, or it cannot be used.
    """
    try:
        lock = FolderLock(folder)
    except UnsafeFolderError as unsafe:
        raise StateError(str(unsafe), hint=unsafe.hint) from unsafe
    except FolderInUseError as used:
        raise StateError(
            f"the data folder {str(folder)!r} is in use by another pipecd"
            f" (process {used.owner or 'unknown'})",
            hint="stop that one, or name another folder with --data-dir",
        ) from None
    except OSError as error:
        raise StateError(
            f"cannot use the data folder {str(folder)!r}: {error.strerror}",
            hint="name a folder with free space that this user may write to with --data-dir",
        ) from error
    with lock:
        if lock.notice:
            log.warning(lock.notice)
        yield
