# SPDX-License-Identifier: Apache-2.0
"""UnwrappedTaskGroup: the block's own error comes as it is, after all tasks have ended."""

import asyncio
from collections.abc import Callable

import pytest

from pipecd_runtime.tasks import UnwrappedTaskGroup


async def _run_for_ever(on_end: Callable[[], None] = lambda: None) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        on_end()


async def test_an_error_of_the_block_is_not_wrapped_and_ends_the_tasks() -> None:
    ended: list[bool] = []

    async def work() -> None:
        async with UnwrappedTaskGroup() as tasks:
            tasks.create_task(_run_for_ever(lambda: ended.append(True)))
            await asyncio.sleep(0)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await work()

    assert ended == [True]


async def test_an_error_of_a_task_ends_the_block_and_comes_as_a_group() -> None:
    async def fail() -> None:
        raise ValueError("theirs")

    async def work() -> None:
        async with UnwrappedTaskGroup() as tasks:
            tasks.create_task(fail())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await work()

    assert [str(each) for each in caught.value.exceptions] == ["theirs"]


async def test_a_cancelled_block_cancels_its_tasks_and_stays_cancelled() -> None:
    ended: list[bool] = []
    inside = asyncio.Event()

    async def work() -> None:
        async with UnwrappedTaskGroup() as tasks:
            tasks.create_task(_run_for_ever(lambda: ended.append(True)))
            await asyncio.sleep(0)
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


async def test_the_end_of_the_block_waits_for_the_tasks() -> None:
    done: list[int] = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(1)

    async with UnwrappedTaskGroup() as tasks:
        task = tasks.create_task(work(), name="named")

    assert done == [1]
    assert task.get_name() == "named"
