# SPDX-License-Identifier: Apache-2.0
"""Waits that end with what they depend on."""

import asyncio

import pytest

from pipecd_piped.plugins.running import RunningStages
from pipecd_piped.programs.cancel_group import CancelGroup, GroupEndedError


async def wait_in(group: CancelGroup, done: list[str]) -> None:
    try:
        async with group.scope():
            await asyncio.sleep(3600)
    except GroupEndedError:
        done.append("over")
    except asyncio.CancelledError:
        done.append("cancelled")
        raise


async def test_all_waits_end_when_the_life_does() -> None:
    group, done = CancelGroup(), list[str]()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(wait_in(group, done))
        await asyncio.sleep(0)
        assert group.is_busy

        group.end()
        group.end()

    assert done == ["over"] * 3
    assert not group.is_busy


async def test_a_wait_after_the_end_ends_at_once() -> None:
    group, done = CancelGroup(), list[str]()
    group.end()

    async with asyncio.timeout(10):
        await wait_in(group, done)

    assert done == ["over"]


async def test_a_foreign_cancel_stays_a_cancel() -> None:
    group, done = CancelGroup(), list[str]()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(wait_in(group, done))
        await asyncio.sleep(0)
        task.cancel()

    assert done == ["cancelled"]
    assert not group.is_busy


async def test_a_timeout_inside_is_not_the_end_of_the_life() -> None:
    group = CancelGroup()

    with pytest.raises(TimeoutError):
        async with group.scope():
            raise TimeoutError

    assert not group.ended


async def test_a_stage_that_runs_twice_runs_until_both_have_ended() -> None:
    """A second ExecuteStage may begin before the first call is seen to be lost."""
    running = RunningStages()

    with running.enter("d1", "s1"):
        with running.enter("d1", "s1"):
            pass
        assert running.cancel_group("d1", "s1") is not None
        assert running.has_deployment("d1")

    assert running.cancel_group("d1", "s1") is None
    assert not running.has_deployment("d1")
