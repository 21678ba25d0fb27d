# SPDX-License-Identifier: Apache-2.0
"""A block that can be stopped with a reason, and the reasons: cancel, newer, timeout, shutdown.

It works like `asyncio.timeout`: `stop(reason)` cancels the task inside the block, and when the
block is left, the scope distinguishes its own cancellation from one that came from outside.
"""

import asyncio
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """A user has cancelled it."""

    by: str
    force_rollback: bool
    force_no_rollback: bool

    def __str__(self) -> str:
        return f"cancelled by {self.by}" if self.by else "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """A newer deployment takes its place."""

    by: str
    """The id of that one."""
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """It may never begin, for example because its chain has ended."""

    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """It took longer than its timeout."""

    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminated:
    """piped stops: nothing has failed, and the next piped process continues."""

    def __str__(self) -> str:
        return "piped is stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver(Terminated):
    """Another instance of this piped has got the lease and continues."""

    def __str__(self) -> str:
        return "another instance of this piped goes on"


StopReason = Cancelled | Superseded | Refused | TimedOut | Terminated


class StopRequestedError(Exception):
    """A block was stopped, for the given reason."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class StopScope:
    """A block that can be stopped from outside, even before it starts. The first reason counts."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    def stop(self, reason: StopReason) -> None:
        """Cancel the block, which ends with `StopRequestedError(reason)`; also before it starts."""
        if self.reason is None:
            self.reason = reason
            if self._task is not None:
                self._task.cancel()

    async def __aenter__(self) -> None:
        if self.reason is not None:
            raise StopRequestedError(self.reason)
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self.reason is None or task is None:
            return
        ours_alone = task.uncancel() <= self._cancelling
        if ours_alone and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise StopRequestedError(self.reason) from error
