# SPDX-License-Identifier: Apache-2.0
"""The machine's clock and the test's."""

import asyncio
from datetime import UTC, datetime, timedelta

from pipecd_sdk import Clock
from pipecd_sdk.testing import NOON, FakeClock

MOMENT = timedelta(milliseconds=50)


async def test_the_clock_shows_utc() -> None:
    assert Clock().now().utcoffset() == timedelta()
    assert abs(Clock().now() - datetime.now(UTC)) < timedelta(minutes=1)


async def test_sleeping_until_a_time_ends_when_the_clock_shows_it() -> None:
    clock = Clock()
    moment = clock.now() + MOMENT

    await clock.sleep_until(moment)

    assert clock.now() >= moment


async def test_a_time_that_has_passed_is_not_waited_for() -> None:
    async with asyncio.timeout(10):
        await Clock().sleep_until(datetime.now(UTC) - timedelta(days=1))


async def test_a_fake_clock_takes_no_time_and_moves() -> None:
    clock = FakeClock(NOON)

    await clock.sleep(timedelta(days=1))
    await clock.sleep_until(NOON)

    assert clock.now() == NOON + timedelta(days=1)


async def test_a_frozen_clock_moves_when_it_is_told_to() -> None:
    clock = FakeClock(NOON, frozen=True)
    async with asyncio.TaskGroup() as tasks:
        sleeping = tasks.create_task(clock.sleep_until(NOON + timedelta(minutes=5)))
        await clock.advance(timedelta(minutes=4))
        assert not sleeping.done()

        await clock.advance(timedelta(minutes=1))
