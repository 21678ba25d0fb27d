# SPDX-License-Identifier: Apache-2.0
"""The disk of a quickstart: enough space to begin, and a sentence when it is full or read-only."""

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipecd_model.errors import PipecdError, StateError

NEEDED_BYTES: Final = 16 * 1024 * 1024
"""What a first deployment writes, and as much again: databases, mirrors, worktrees, logs."""

FULL_BYTES: Final = 1024 * 1024
"""A disk with less has no space for what a database writes at once."""

LOOK_SECONDS: Final = 1.0

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_UNUSABLE: Final = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO),
        *(errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG),
    }
)


def free_bytes(folder: Path) -> int:
    """Returns the space that a user may fill, on the disk that holds the folder."""
    while not folder.is_dir():
        folder = folder.parent
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def check_space(folder: Path) -> None:
    """Raises StateError when there is too little space to begin."""
    free = free_bytes(folder)
    if free < NEEDED_BYTES:
        raise StateError(
            f"only {free / 1e6:.0f} MB are free on the disk of {str(folder)!r}, and a quickstart"
            f" needs {NEEDED_BYTES / 1e6:.0f} MB",
            hint="free some space, or choose another folder with --data-dir",
        )


async def watch_space(folder: Path) -> None:
    """Waits until the disk is full. Raises StateError then."""
    while True:
        if free_bytes(folder) < FULL_BYTES:
            raise _full(folder)
        await asyncio.sleep(LOOK_SECONDS)


@contextmanager
def explaining_disk(folder: Path) -> Iterator[None]:
    """Turns what the system says of the folder's disk into a sentence, inside of groups too."""
    try:
        yield
    except OSError as error:
        raise _explain(error, folder) from error
    except PipecdError as error:
        raise _explain(error, folder) from error
    except ExceptionGroup as group:
        raise _explain_group(group, folder) from group


def _explain_group(group: ExceptionGroup[Exception], folder: Path) -> Exception:
    """Returns the error of a group that a person can do something about; else the group."""
    found = [_explain(error, folder) for error in _flatten(group)]
    ours = [error for error in found if isinstance(error, PipecdError)]
    ours.sort(key=lambda error: not isinstance(error, StateError))  # the others follow from it
    return ours[0] if ours else group


def _flatten(group: ExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, ExceptionGroup):
            yield from _flatten(error)
        else:
            yield error


def _explain(error: Exception, folder: Path) -> Exception:
    """Returns a sentence for what the disk caused; other errors as they are."""
    if isinstance(error, PipecdError):
        # What our programs say when they cannot write is not the cause.
        is_cause = isinstance(error, StateError) or free_bytes(folder) >= FULL_BYTES
        return error if is_cause else _full(folder)
    if not isinstance(error, OSError):
        return error
    if error.errno in _FULL:
        return _full(folder)
    if error.errno not in _UNUSABLE:
        return error
    where = error.filename if isinstance(error.filename, str) else str(folder)
    return StateError(
        f"cannot use the folder {str(folder)!r}: {error.strerror}"
        + (f": {where!r}" if where != str(folder) else ""),
        hint="choose another with --data-dir",
    )


def _full(folder: Path) -> StateError:
    return StateError(
        f"the disk of {str(folder)!r} is full",
        hint="free some space and start again: everything goes on from here",
    )
