# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH104, PTH108, PTH110, PTH120
"""What is kept of one attempt to run a script: a folder with a few files.

`intent`   the script's token, written by the plugin before it tells anybody of the script
`lock`     locked while the shim lives
`started`  made by the shim exactly once, before the first command: `<pid> <index>`. Or, as
           `stopped`, by whoever decides that the script shall not run: no shim starts it any more
`stopped`  the script shall not run, or not go on: nobody starts it, again or at all
`grace`    seconds that the script gets to end by itself
`script.sh`, `output`, `errors`   the script, all it wrote (see `frames`), what went wrong here
`exit`     how it ended: `<code> <was it asked to end>`
"""

import errno
import fcntl
import os
import time

from pipecd_plugin_scriptrun.shim import chaos

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
"""Seconds to get the lock: somebody may look at it just now, or lose it to an earlier shim."""


def take(folder: str, floor: int) -> int | None:
    """Make the start record; the value is the held lock, None when somebody else has made it."""
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
        # The folders above it are as new as the record itself.
        parent = os.path.dirname(folder)
        for each in (folder, parent, os.path.dirname(parent)):
            sync_folder(each)
    except OSError:
        # The disk does not take it: nothing was started, and that is what is left to be read.
        os.unlink(f"{folder}/{STARTED}")
        raise
    if not chaos.is_without("sync"):
        chaos.note_synced(f"{folder}/{STARTED}")
    return lock


def forbid(folder: str) -> bool:
    """Let no shim start the script from now on; False when one has started it before.

    Not synced: what a loss of power takes, it takes together with every shim. Raises OSError.
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
    """Keep how the script ended, whole or not at all."""
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
    """Wait until the disk has it. One that is lost before is an outcome that nobody knows."""
    number = os.open(f"{folder}/{EXIT}", os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
    sync_folder(folder)


def write_synced(number: int, path: str, text: str) -> None:
    """Write the whole text to a new file, and wait for the disk."""
    try:
        chaos.note_written(path)
        if os.write(number, text.encode()) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not chaos.is_without("sync"):
            os.fsync(number)
    finally:
        os.close(number)


def sync_folder(folder: str) -> None:
    """Wait until the disk knows the names in a folder."""
    if chaos.is_without("sync"):
        return
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def is_locked(folder: str) -> bool:
    """Tells whether the shim of this record lives."""
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
