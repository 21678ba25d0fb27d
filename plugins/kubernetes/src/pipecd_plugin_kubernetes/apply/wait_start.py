# SPDX-License-Identifier: Apache-2.0
"""When a stage began to wait: a stage that goes on after a kill does not begin to wait anew."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pipecd_sdk import Metadata, PipedError


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True, kw_only=True)
class WaitStart:
    """The time under one key of a stage's metadata."""

    metadata: Metadata
    key: str
    now: Callable[[], datetime] = _now
    is_kept: bool = False

    async def read_waited_seconds(self) -> float:
        """Returns for how long the stage has waited before this process; 0 when it has not.

        Raises StageFailedError when what was kept is no time.
        """
        if await self.metadata.get(self.key) is None:
            return 0.0
        self.is_kept = True
        begun = await self.metadata.get_or_set_time(self.key, self.now)
        return max(0.0, (self.now() - begun).total_seconds())

    async def keep(self, begun: datetime) -> None:
        """Keeps when the wait began, unless that is kept already.

        While piped cannot be asked nothing is kept, and the wait goes on: call it again later.
        """
        if self.is_kept:
            return
        with contextlib.suppress(PipedError):
            await self.metadata.get_or_set_time(self.key, lambda: begun)
            self.is_kept = True
