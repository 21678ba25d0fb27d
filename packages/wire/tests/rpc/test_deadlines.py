# SPDX-License-Identifier: Apache-2.0
"""Tests for `Deadlines`: many waits with one timer."""

import asyncio

import pytest

from pipecd_wire.rpc.deadlines import Deadlines

SOON = 0.01
NEVER = 3600.0


async def test_a_wait_that_takes_too_long_raises_timeout_error() -> None:
    deadlines = Deadlines(SOON)
    with pytest.raises(TimeoutError):
        await deadlines.wait(asyncio.Event().wait())


async def test_a_wait_that_ends_in_time_is_left_alone() -> None:
    deadlines = Deadlines(NEVER)
    assert await deadlines.wait(asyncio.sleep(0, "done")) == "done"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_without_a_limit_nothing_is_timed() -> None:
    expired: list[str] = []
    deadlines = Deadlines(None)
    deadlines.start("wait", lambda: expired.append("wait"))
    await deadlines.wait(asyncio.sleep(SOON))
    assert expired == []


async def test_each_wait_expires_at_its_own_time_and_only_once() -> None:
    expired: asyncio.Queue[str] = asyncio.Queue()
    deadlines = Deadlines(SOON)
    deadlines.start("first", lambda: expired.put_nowait("first"))
    deadlines.start("stopped", lambda: expired.put_nowait("stopped"))
    deadlines.stop("stopped")
    assert await expired.get() == "first"
    deadlines.start("later", lambda: expired.put_nowait("later"))
    assert await expired.get() == "later"
    deadlines.stop("later")
    assert expired.empty()


async def test_the_timer_goes_on_for_a_wait_that_started_after_it_was_set() -> None:
    deadlines = Deadlines(SOON)
    expired: asyncio.Queue[str] = asyncio.Queue()
    deadlines.start("first", lambda: expired.put_nowait("first"))
    await asyncio.sleep(SOON / 2)
    deadlines.start("second", lambda: expired.put_nowait("second"))
    deadlines.stop("first")
    assert await expired.get() == "second"


async def test_what_one_wait_does_when_it_expires_may_stop_the_next() -> None:
    deadlines = Deadlines(SOON)
    expired: list[str] = []
    all_done = asyncio.Event()

    def expire_first() -> None:
        expired.append("first")
        deadlines.stop("second")
        asyncio.get_running_loop().call_later(SOON * 2, all_done.set)

    deadlines.start("first", expire_first)
    deadlines.start("second", lambda: expired.append("second"))
    await all_done.wait()
    assert expired == ["first"]


async def test_a_cancellation_from_outside_stays_one() -> None:
    deadlines = Deadlines(NEVER)
    entered = asyncio.Event()

    async def wait_for_ever() -> None:
        entered.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(deadlines.wait(wait_for_ever()))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_beside_an_expired_deadline_is_not_lost() -> None:
    deadlines = Deadlines(SOON)
    entered = asyncio.Event()

    async def wait_for_ever() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            task.cancel()

    task = asyncio.create_task(deadlines.wait(wait_for_ever()))
    await entered.wait()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_work_that_ends_although_it_was_late_keeps_its_result() -> None:
    deadlines = Deadlines(SOON)

    async def finish_late() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        raise AssertionError("it was not cancelled")

    assert await deadlines.wait(finish_late()) == "late"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_an_error_of_the_work_passes() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await Deadlines(NEVER).wait(fail())
