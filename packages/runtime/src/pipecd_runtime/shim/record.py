# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH104, PTH108, PTH110, PTH120
"""The record of one attempt to run a script: a folder with a few files.

`intent`   the script's token, written by the plugin before it marks the start in the metadata
`lock`     locked while the shim is alive
`started`  made by the shim exactly once, before the first command: `<pid> <index>`. Or made, with
           `stopped` in it, by a process that forbids the script: no shim starts it any more
`stopped`  the script is forbidden to start or to continue: no process starts it, or starts it again
`grace`    seconds between SIGTERM and SIGKILL for the script
`script.sh`, `output`, `errors`   the script, all it wrote (see `frames`), the shim's own errors
`exit`     how it ended: `<code> <was it asked to end>`
"""

import errno
import fcntl
import os
import time

from pipecd_runtime.shim import chaos

INTENT = "intent"
LOCK = "lock"
STARTED = "started"
STOPPED = "stopped"
GRACE = "grace"
SCRIPT = "script.sh"
OUTPUT = "output"
ERRORS = "errors"
EXIT = "exit"

LOCK_LIMIT_SECONDS = 5.0
"""Seconds to get the lock: another process may be probing it, or an earlier shim may hold it."""


def take(folder: str, floor: int) -> int | None:
    """Makes the start record; returns the held lock, None when another process made the record.

    Also None when the lock cannot be had in time. Raises OSError when the record cannot be kept.
    The folders above it must be durable already, see `sync_parents`.
    """
    lock = os.open(f"{folder}/{LOCK}", os.O_CREAT | os.O_RDWR, 0o600)
    over = time.monotonic() + LOCK_LIMIT_SECONDS
    while True:
        if os.path.exists(f"{folder}/{STARTED}") and not chaos.is_without("exclusive"):
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if chaos.is_without("exclusive"):
                break
            if time.monotonic() > over:
                return None
            time.sleep(0.01)
    flags = os.O_CREAT | os.O_WRONLY | (0 if chaos.is_without("exclusive") else os.O_EXCL)
    try:
        started = os.open(f"{folder}/{STARTED}", flags, 0o600)
    except FileExistsError:
        return None
    # Microseconds: the indexes of log lines go up with the time, also across attempts.
    index = max(floor, time.time_ns() // 1000)
    try:
        write_synced(started, f"{folder}/{STARTED}", f"{os.getpid()} {index}\n")
        sync_folder(folder)
    except OSError:
        # The disk does not take it: nothing was started, and that is what is left to be read.
        os.unlink(f"{folder}/{STARTED}")
        raise
    if not chaos.is_without("sync"):
        chaos.note_synced(f"{folder}/{STARTED}")
    return lock


def sync_parents(folder: str) -> None:
    """Waits until the folder of a record is durable: those above it may be as new as itself."""
    parent = os.path.dirname(folder)
    for each in (parent, os.path.dirname(parent)):
        sync_folder(each)


def forbid(folder: str) -> bool:
    """Prevents every shim from starting the script; returns False if its start record exists.

    Not synced: a loss of power that takes this file also ends every shim. Raises OSError.
    """
    _touch(f"{folder}/{STOPPED}")
    try:
        number = os.open(f"{folder}/{STARTED}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return False
    try:
        os.write(number, f"{STOPPED}\n".encode())
    except OSError:
        return True  # that it is there is what counts
    finally:
        os.close(number)
    return True


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))


def put_exit(folder: str, code: int, *, asked: bool) -> None:
    """Writes the exit record atomically. Raises OSError."""
    new = f"{folder}/{EXIT}.new"
    text = f"{code} {int(asked)}\n".encode()
    number = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    try:
        if os.write(number, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(number)
    os.rename(new, f"{folder}/{EXIT}")


def sync_exit(folder: str) -> None:
    """Waits until the exit record is durable. If it is lost before, the outcome is unknown."""
    number = os.open(f"{folder}/{EXIT}", os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
    sync_folder(folder)


def write_synced(number: int, path: str, text: str) -> None:
    """Writes the whole text to a new file and waits until it is durable. Raises OSError."""
    try:
        chaos.note_written(path)
        if os.write(number, text.encode()) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not chaos.is_without("sync"):
            os.fsync(number)
    finally:
        os.close(number)


def sync_folder(folder: str) -> None:
    """Waits until the names in a folder are durable."""
    if chaos.is_without("sync"):
        return
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def is_locked(folder: str) -> bool:
    """Returns whether the shim of this record is alive."""
    try:
        lock = os.open(f"{folder}/{LOCK}", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
