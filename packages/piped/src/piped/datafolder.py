# SPDX-License-Identifier: Apache-2.0
"""The data folder: what one piped keeps on disk, and the lock that keeps a second one out.

Two pipeds on one folder would check out trees over each other and run one script twice; another
user who can write there would choose what runs.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipecd_model.errors import ConfigError, StateError
from pipecd_model.ids import new_id
from pipecd_runtime.private_folder import UnsafeFolderError, close_folder

log = logging.getLogger(__name__)


@contextmanager
def locked(folder: Path) -> Iterator[str]:
    """Own the folder while the block runs; the value is the folder's id, made once and kept."""
    try:
        if changed := close_folder(folder):
            log.warning(changed)
        lock = os.open(
            folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
    except UnsafeFolderError as unsafe:
        raise StateError(str(unsafe), hint=unsafe.hint) from unsafe
    except OSError as error:
        raise ConfigError(
            f"cannot use the data folder {str(folder)!r}: {error.strerror}",
            hint="name another one with --data-dir",
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            raise StateError(
                f"the data folder {str(folder)!r} is used by another piped"
                + (f", process {holder}" if holder else ""),
                hint="stop it, or name another folder with --data-dir",
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield _folder_id(folder)
    finally:
        os.close(lock)


def _folder_id(folder: Path) -> str:
    file = folder / "id"
    if file.is_file() and (known := file.read_text().strip()):
        return known
    made = new_id()
    scratch = folder / "id.new"
    scratch.write_text(made + "\n")
    scratch.replace(file)
    return made
