# SPDX-License-Identifier: Apache-2.0
"""Time as a stage sees it. Tests put `pipecd_sdk.testing.FakeClock` in its place."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

LONGEST_NAP_SECONDS: Final = 60.0
"""Seconds between two looks at the wall clock: it may be set, and machines are suspended."""


class Clock:
    """The machine's own clock.

    Example:
        await ctx.clock.sleep_until(ctx.clock.now() + timedelta(minutes=5))
    """

    def now(self) -> datetime:
        """Returns the current time, aware, in UTC."""
        return datetime.now(UTC)

    async def sleep(self, length: timedelta) -> None:
        """Waits for this length of time."""
        await asyncio.sleep(length.total_seconds())

    async def sleep_until(self, moment: datetime) -> None:
        """Waits until the clock shows `moment`; returns at once when it has passed."""
        while (left := (moment - self.now()).total_seconds()) > 0:  # noqa: ASYNC110 - no event
            await asyncio.sleep(min(left, LONGEST_NAP_SECONDS))
