# SPDX-License-Identifier: Apache-2.0
"""What the server does from time to time, beside answering.

A job that fails is logged and comes again at its next turn; it holds up no other.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pipecd_controlplane.usecases.shared_state import JobLeader
from pipecd_model.errors import PipecdError
from pipecd_runtime.logs import logger
from pipecd_runtime.tasks import UnwrappedTaskGroup

log = logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Something to do every so many seconds."""

    name: str
    every: float
    run: Callable[[], Awaitable[object]]
    at_end: bool = False
    """Is it done once more when the server stops?"""
    rest: float = 0.0
    """Seconds after the start in which it is not done: others come first then."""
    in_each_process: bool = False
    """Is it about what this process alone has? Else one replica does it for all."""


@asynccontextmanager
async def running(jobs: Sequence[Job], leader: JobLeader) -> AsyncIterator[None]:
    """Run the jobs while the block runs. Its own errors go through as they are."""
    try:
        async with UnwrappedTaskGroup() as tasks:
            loops = [tasks.create_task(_loop(job, leader), name=f"job.{job.name}") for job in jobs]
            try:
                yield
            finally:
                for loop in loops:
                    loop.cancel()
    except Exception:
        await _run_last(jobs, leader)
        raise
    await _run_last(jobs, leader)


async def _run_last(jobs: Sequence[Job], leader: JobLeader) -> None:
    for job in jobs:
        if job.at_end:
            await _run_once(job, leader)


async def _loop(job: Job, leader: JobLeader) -> None:
    # Not all at the same moment after each start.
    spread = random.uniform(0, min(job.every, 10))  # noqa: S311 - spreads load only
    await asyncio.sleep(job.rest + spread)
    while True:
        await _run_once(job, leader)
        await asyncio.sleep(job.every)


async def _run_once(job: Job, leader: JobLeader) -> None:
    try:
        if job.in_each_process:
            await job.run()
        else:
            async with leader.claim(job.name) as granted:
                if granted:
                    await job.run()
    except PipecdError as error:
        log.warning("job.failed", job=job.name, error=str(error))
    except Exception:  # noqa: BLE001 - a bug in one job must not end the server
        log.bug("job.bug", job=job.name)
