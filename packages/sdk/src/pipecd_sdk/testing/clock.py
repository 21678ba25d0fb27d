# SPDX-License-Identifier: Apache-2.0
"""A clock that shows what a test wants."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

from pipecd_sdk.clock import Clock

NOON: Final = datetime(2024, 1, 2, 12, 0, tzinfo=UTC)


class FakeClock(Clock):
    """Sleeping takes no time and moves the clock; frozen, it sleeps until `advance` is called.

    Example:
        harness = StageHarness(Wait(), clock=FakeClock(NOON))
    """

    def __init__(self, now: datetime = NOON, *, frozen: bool = False) -> None:
        self._now = now
        self._frozen = frozen
        self._moved = asyncio.Condition()

    def now(self) -> datetime:
        return self._now

    async def sleep(self, length: timedelta) -> None:
        await self.sleep_until(self._now + length)

    async def sleep_until(self, moment: datetime) -> None:
        if self._frozen:
            async with self._moved:
                await self._moved.wait_for(lambda: self._now >= moment)
        else:
            await asyncio.sleep(0)
            self._now = max(self._now, moment)

    async def advance(self, length: timedelta) -> None:
        """Moves the clock and wakes the sleepers whose time has come."""
        async with self._moved:
            self._now += length
            self._moved.notify_all()
