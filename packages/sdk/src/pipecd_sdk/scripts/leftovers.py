# SPDX-License-Identifier: Apache-2.0
"""Ends the orphans of a script whose shim is gone: every process with its token."""

import asyncio
import time

from pipecd_runtime.backoff import Backoff
from pipecd_runtime.shim.processes import INT, KILL, TERM, ScriptProcesses
from pipecd_runtime.shim.runner import (
    FIRST_LOOK_SECONDS,
    KILL_LIMIT_SECONDS,
    LONGEST_LOOK_SECONDS,
    SHORT_GRACE_SECONDS,
)
from pipecd_sdk import StageContext


async def end_leftovers(
    ctx: StageContext, token: str, grace_seconds: float, *, is_interrupted: bool = False
) -> int:
    """Sends SIGTERM to all, then SIGKILL after the grace period; returns how many there were.

    `is_interrupted`: SIGINT instead, and the grace period is never shortened. The
    signal is sent once: a process that starts later belongs to a script's own cleanup.
    """
    processes = ScriptProcesses(token)
    over = time.monotonic() + grace_seconds
    asked = processes.signal(INT if is_interrupted else TERM)
    pauses = Backoff(
        first_seconds=FIRST_LOOK_SECONDS, longest_seconds=LONGEST_LOOK_SECONDS, jitter=0
    )
    while alive := processes.find():
        if ctx.is_ending() and not is_interrupted:
            over = min(over, time.monotonic() + SHORT_GRACE_SECONDS)
        if time.monotonic() >= over:
            ctx.log.error("Killing %d processes that did not end in time", len(alive))
            await _kill(ctx, processes)
            break
        await asyncio.sleep(pauses.next_pause_seconds())
    return len(asked)


async def _kill(ctx: StageContext, processes: ScriptProcesses) -> None:
    over = time.monotonic() + KILL_LIMIT_SECONDS
    while alive := processes.signal(KILL):
        if time.monotonic() >= over:
            pids = ", ".join(str(pid) for pid in sorted(alive))
            ctx.log.error("These processes cannot be killed: %s", pids)
            return
        await asyncio.sleep(FIRST_LOOK_SECONDS)
