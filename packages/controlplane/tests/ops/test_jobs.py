# SPDX-License-Identifier: Apache-2.0
"""Timed jobs: each in its turn, none in the way of another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pipecd_controlplane.ops.jobs import Job, running
from pipecd_controlplane.usecases.in_process import InProcessJobLeader
from pipecd_model.errors import UnavailableError
from pipecd_test_support.waiting import Soon


async def test_a_job_that_fails_comes_again_and_holds_up_no_other(soon: Soon) -> None:
    good, tries = asyncio.Event(), 0
    again = asyncio.Event()

    async def bad() -> None:
        nonlocal tries
        tries += 1
        if tries > 2:
            again.set()
        raise UnavailableError("not now") if tries % 2 else ValueError("a bug")

    async def fine() -> None:
        good.set()

    jobs = [Job(name="bad", every=0.01, run=bad), Job(name="fine", every=0.01, run=fine)]
    async with running(jobs, InProcessJobLeader()):
        await soon(good.wait())
        await soon(again.wait())


async def test_a_job_may_be_done_once_more_at_the_end() -> None:
    done = []

    async def keep() -> None:
        done.append("kept")

    async with running([Job(name="keep", every=3600, run=keep, at_end=True)], InProcessJobLeader()):
        before = len(done)

    assert len(done) == before + 1


async def test_an_error_of_the_block_goes_through_as_it_is() -> None:
    with pytest.raises(ValueError, match="mine"):
        async with running([], InProcessJobLeader()):
            raise ValueError("mine")


class RefusingLeader:
    """Another replica runs everything; remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[str] = asyncio.Queue()

    @asynccontextmanager
    async def claim(self, job: str) -> AsyncIterator[bool]:
        self.asked.put_nowait(job)
        yield False


async def test_a_job_that_another_replica_runs_is_not_run_here(soon: Soon) -> None:
    leader, own, done = RefusingLeader(), asyncio.Event(), []

    async def run_for_all() -> None:
        done.append("for all")

    async def run_own() -> None:
        own.set()

    jobs = [
        Job(name="for-all", every=0.01, run=run_for_all, at_end=True),
        Job(name="own", every=0.01, run=run_own, in_each_process=True),
    ]
    async with running(jobs, leader):
        asked = [await soon(leader.asked.get()) for _ in range(2)]
        await soon(own.wait())

    assert asked == ["for-all", "for-all"]
    assert done == []
