# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH104, PTH108, PTH110
"""The one place where tests of the failure model reach into plugin and shim.

`PIPECD_CHAOS_KILL_AT=<boundary>` ends the process there as `kill -9` does; with
`PIPECD_CHAOS_ONCE=<file>` only the first that gets there, which leaves the file behind. With
`PIPECD_CHAOS_POWER=1` the death is a loss of power: what was not synced is lost with it.
`PIPECD_CHAOS_WITHOUT=exclusive|sync` takes one promise out, so that a test can show that it is
missed. Without these variables nothing of this does anything.

`PIPECD_CHAOS_ARMED=<folder>` is for long runs, in which the place changes while programs live: the
first process that gets to a boundary with the name of a file there takes the file away and does
what it says: `kill`, `power`, or `hold <seconds>`, which waits until the file that it leaves, with
its pid in it, is gone.
"""

import os
import time

PREFIX = "PIPECD_CHAOS_"

BOUNDARIES = (
    "plugin.begin",
    "plugin.intent",
    "plugin.marked",
    "plugin.shim-started",
    "plugin.output",
    "plugin.exit-read",
    "shim.before-record",
    "shim.after-record",
    "shim.running",
    "shim.output",
    "shim.script-ended",
    "shim.exit-record",
)
"""Where a process may be lost, in the order of a script's life: all that can be told apart."""

_unsynced: set[str] = set()


def hit(boundary: str) -> None:
    """Ends the process here if a test wants it."""
    if os.environ.get(f"{PREFIX}KILL_AT") == boundary and _is_first():
        _die(power=bool(os.environ.get(f"{PREFIX}POWER")))
    if folder := os.environ.get(f"{PREFIX}ARMED"):
        _do(*_take(f"{folder}/{boundary}"))


def _die(*, power: bool) -> None:
    if power:
        for path in _unsynced:
            os.unlink(path)
    os.kill(os.getpid(), 9)


def _take(armed: str) -> tuple[str, list[str]]:
    """Returns the file and words of an armed boundary.

    No words when it is not armed, or when another process took it first.
    """
    mine = f"{armed}.reached"
    try:
        os.rename(armed, mine)
    except FileNotFoundError:
        return mine, []
    number = os.open(mine, os.O_RDWR)
    try:
        words = os.read(number, 100).decode().split()
        os.pwrite(number, f"{os.getpid():<20}".encode(), 0)
    finally:
        os.close(number)
    return mine, words


def _do(file: str, words: list[str]) -> None:
    if words[:1] == ["hold"]:
        over = time.monotonic() + float(words[1])
        while os.path.exists(file) and time.monotonic() < over:
            time.sleep(0.005)
    elif words:
        _die(power=words[0] == "power")


def is_without(promise: str) -> bool:
    """Returns whether a test wants this promise broken."""
    return os.environ.get(f"{PREFIX}WITHOUT") == promise


def note_written(path: str) -> None:
    """Records that a file is not synced yet: a simulated loss of power removes it."""
    _unsynced.add(path)


def note_synced(path: str) -> None:
    """Records that a file is synced: a simulated loss of power no longer removes it."""
    _unsynced.discard(path)


def _is_first() -> bool:
    once = os.environ.get(f"{PREFIX}ONCE")
    if not once:
        return True
    try:
        os.close(os.open(once, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True
