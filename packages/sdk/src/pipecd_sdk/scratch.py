# SPDX-License-Identifier: Apache-2.0
"""Temporary folders that do not stay when the plugin is killed: the next one removes them.

Who uses a folder holds a lock on it, which ends with the process. A folder whose lock is free, and
that is not just being made, is nobody's any more.
"""

import fcntl
import os
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

_NEW_SECONDS: Final = 60.0
"""Between the making of a folder and its lock there is never this long."""


class Scratch:
    """A temporary folder that only we can read, until it is closed."""

    prefix: ClassVar[str] = "pipecd-plugin-"
    """How the names of these folders begin; a plugin has its own."""
    _swept: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        import tempfile  # noqa: PLC0415 - a plugin that waits needs none of it

        if self.prefix not in self._swept:
            self._swept.add(self.prefix)
            sweep(Path(tempfile.gettempdir()), self.prefix, now=time.time())
        self.path = Path(tempfile.mkdtemp(prefix=self.prefix))
        lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._finalizer = weakref.finalize(self, _remove, self.path, lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Removes the folder; a second time does nothing. The end of the process does it too."""
        self._finalizer()


def _remove(path: Path, lock: int) -> None:
    _delete(path)
    os.close(lock)


def _delete(path: Path) -> None:
    import shutil  # noqa: PLC0415 - a plugin that waits needs none of it

    shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path, prefix: str, *, now: float) -> None:
    """Removes what killed processes of this user have left in a folder of temporary files."""
    for path in folder.glob(f"{prefix}*"):
        try:
            found = path.lstat()
            if path.is_symlink() or found.st_uid != os.getuid():
                continue
            if now - found.st_mtime < _NEW_SECONDS:
                continue
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # somebody else's, or gone by now
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _delete(path)
        except OSError:
            continue  # in use
        finally:
            os.close(handle)
