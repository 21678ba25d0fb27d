# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH108
"""The one place where tests of the failure model reach into plugin and shim.

`PIPECD_CHAOS_KILL_AT=<boundary>` ends the process there as `kill -9` does; with
`PIPECD_CHAOS_ONCE=<file>` only the first that gets there, which leaves the file behind. With
`PIPECD_CHAOS_POWER=1` the death is a loss of power: what was not synced is lost with it.
`PIPECD_CHAOS_WITHOUT=exclusive|sync` takes one promise out, so that a test can show that it is
missed. Without these variables nothing of this does anything.
"""

import os

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


def reached(boundary: str) -> None:
    """Die here if a test wants it."""
    if os.environ.get(f"{PREFIX}KILL_AT") == boundary and _is_first():
        if os.environ.get(f"{PREFIX}POWER"):
            for path in _unsynced:
                os.unlink(path)
        os.kill(os.getpid(), 9)


def is_without(promise: str) -> bool:
    """Shall this promise be broken?"""
    return os.environ.get(f"{PREFIX}WITHOUT") == promise


def wrote(path: str) -> None:
    """A file that a loss of power would take."""
    _unsynced.add(path)


def synced(path: str) -> None:
    """It would not take this one any more."""
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
