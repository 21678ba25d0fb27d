# SPDX-License-Identifier: Apache-2.0
"""Deadlines of many short waits, each with the same limit, behind one timer.

A timer for each wait would cost more than most of these waits take.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

T = TypeVar("T")


class Deadlines:
    """Calls a function for each wait that takes longer than the limit; None is no limit."""

    def __init__(self, limit_seconds: float | None) -> None:
        self.limit_seconds = limit_seconds
        # All have the same limit: the first one in is the first one due.
        self._due: dict[Hashable, tuple[float, Callable[[], object]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self, key: Hashable, expire: Callable[[], object]) -> None:
        """Starts a wait: `expire` is called when it takes too long, unless `stop` is before it."""
        if self.limit_seconds is None:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + self.limit_seconds
        self._due[key] = (due, expire)
        if self._timer is None:
            self._timer = loop.call_at(due, self._expire, loop)

    def stop(self, key: Hashable) -> None:
        """Ends a wait; one that has expired or was never started is ignored."""
        self._due.pop(key, None)

    async def wait(self, work: Awaitable[T]) -> T:
        """Returns what `work` results in. Raises TimeoutError, and cancels it, when it is late."""
        if self.limit_seconds is None:
            return await work
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can wait")
        cancelled_before = task.cancelling()
        self.start(task, task.cancel)
        try:
            result = await work
        except BaseException as error:
            is_timeout = self._has_expired(task) and task.uncancel() <= cancelled_before
            if is_timeout and isinstance(error, asyncio.CancelledError):
                raise TimeoutError from error
            raise
        if self._has_expired(task):
            task.uncancel()
        return result

    def _has_expired(self, key: Hashable) -> bool:
        """Ends a wait that was started; returns whether it has expired before."""
        return self._due.pop(key, None) is None

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        while self._due:
            key = next(iter(self._due))
            due, expire = self._due[key]
            if due > now:
                self._timer = loop.call_at(due, self._expire, loop)
                return
            del self._due[key]
            expire()
