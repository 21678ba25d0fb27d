# SPDX-License-Identifier: Apache-2.0
"""The timed jobs of the server.

A job that fails is logged and runs again at its next time; it does not delay other jobs.
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
    """A function that the server calls every `every` seconds."""

    name: str
    every: float
    run: Callable[[], Awaitable[object]]
    at_end: bool = False
    """Whether it runs once more when the server stops."""
    rest: float = 0.0
    """Seconds after the start of the server before it runs first: others have precedence."""
    in_each_process: bool = False
    """Whether each replica runs it, for state of its own. Else one replica runs it for all."""


@asynccontextmanager
async def running(jobs: Sequence[Job], leader: JobLeader) -> AsyncIterator[None]:
    """Runs the jobs while the block runs. Raises the errors of the block unwrapped."""
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
