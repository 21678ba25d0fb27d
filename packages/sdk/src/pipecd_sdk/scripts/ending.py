# SPDX-License-Identifier: Apache-2.0
"""Ends a script that this process does not follow, with all it started, and prevents its start.

What runs after a script, its rollback above all, must not run beside it. A shim that another
process has started may be about to make its start record; so the script is forbidden first, which
makes that record in its place.
"""

import asyncio
import os
import signal
import time
from contextlib import suppress
from typing import Final

from pipecd_runtime.backoff import Backoff
from pipecd_runtime.shim.runner import (
    FIRST_LOOK_SECONDS,
    KILL_LIMIT_SECONDS,
    LONGEST_LOOK_SECONDS,
    OUTPUT_LIMIT_SECONDS,
)
from pipecd_sdk import StageContext
from pipecd_sdk.scripts.leftovers import end_leftovers
from pipecd_sdk.scripts.records import ScriptRecord

ENDING_RESERVE_SECONDS: Final = 5.0
"""Extra seconds, beyond all limits, for a shim to end after SIGTERM."""


def ending_limit_seconds(grace_seconds: float) -> float:
    """Returns the seconds in which a shim must have ended its script after SIGTERM."""
    return grace_seconds + KILL_LIMIT_SECONDS + OUTPUT_LIMIT_SECONDS + ENDING_RESERVE_SECONDS


async def end_script(
    ctx: StageContext, record: ScriptRecord, grace_seconds: float, *, is_interrupted: bool = False
) -> bool:
    """Ends all processes of a script and prevents its start; returns whether its shim was alive.

    When this process is ending, the start is not prevented: the next process continues the stage.
    Raises OSError when its record cannot be written.
    """
    if record.token() is None:
        return False  # it was never begun here
    is_asked = had_shim = False
    over = time.monotonic() + ending_limit_seconds(grace_seconds)
    pauses = Backoff(
        first_seconds=FIRST_LOOK_SECONDS, longest_seconds=LONGEST_LOOK_SECONDS, jitter=0
    )
    while record.read_ended() is None and record.folder.is_dir():
        is_started = record.is_started()
        is_locked = record.is_locked()
        if not is_locked and (is_started or ctx.is_ending()):
            break  # no shim is alive; the next process continues what was not started
        if not ctx.is_ending():
            record.forbid()
        if not is_locked:
            continue
        had_shim = True
        if (started := record.read_started()) is not None:
            is_late = time.monotonic() >= over
            if is_late or not is_asked:
                _signal(started.pid, signal.SIGKILL if is_late else signal.SIGTERM)
                is_asked = True
            if ctx.is_ending():
                _signal(started.pid, signal.SIGUSR1)
        await asyncio.sleep(pauses.next_pause_seconds())
    if record.read_ended() is None and (token := record.token()) is not None:
        await end_leftovers(ctx, token, grace_seconds, is_interrupted=is_interrupted)
    return had_shim


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        if number == signal.SIGTERM:
            os.kill(pid, signal.SIGCONT)  # a stopped one would not notice
