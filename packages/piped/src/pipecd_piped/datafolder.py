# SPDX-License-Identifier: Apache-2.0
"""The data folder of piped, and the lock that keeps a second process out.

Two processes on one folder would overwrite each other's worktrees and run a script twice. Another
user with write access to it could choose what runs.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from pipecd_model.errors import StateError
from pipecd_model.ids import new_id
from pipecd_runtime.files import write_atomically
from pipecd_runtime.folder_lock import FolderInUseError, FolderLock
from pipecd_runtime.private_folder import UnsafeFolderError

log = logging.getLogger(__name__)


@contextmanager
def locked(folder: Path) -> Iterator[str]:
    """Hold the folder's lock while the block runs; yields the folder's persistent id."""
    try:
        lock = FolderLock(folder)
    except UnsafeFolderError as unsafe:
        raise StateError(str(unsafe), hint=unsafe.hint) from unsafe
    except FolderInUseError as used:
        raise StateError(
            f"the data folder {str(folder)!r} is used by another piped"
            + (f", process {used.owner}" if used.owner else ""),
            hint="stop it, or name another folder with --data-dir",
        ) from used
    except OSError as error:
        raise _refusal(folder, error) from error
    with lock:
        if lock.notice:
            log.warning(lock.notice)
        try:
            _check_writable(folder)
            folder_id = _folder_id(folder)
        except OSError as error:
            raise _refusal(folder, error) from error
        yield folder_id


def _check_writable(folder: Path) -> None:
    """Make and remove a file: a lock that is there already says nothing of the folder."""
    with NamedTemporaryFile(dir=folder, prefix=".writable-"):
        pass


def _refusal(folder: Path, error: OSError) -> StateError:
    file = f" ({error.filename})" if error.filename not in (None, str(folder)) else ""
    return StateError(
        f"cannot use the data folder {str(folder)!r}: {error.strerror}{file}",
        hint="name a folder with free space that this user may write to with --data-dir",
    )


def _folder_id(folder: Path) -> str:
    file = folder / "id"
    if file.is_file() and (known := file.read_text().strip()):
        return known
    made = new_id()
    write_atomically(file, f"{made}\n".encode())
    return made
