# SPDX-License-Identifier: Apache-2.0
"""A task group whose block fails with its own error, not with a group of errors around it."""

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class UnwrappedTaskGroup(asyncio.TaskGroup):
    """Raises an error of its block as it is, once all tasks have ended.

    As in any task group the tasks are cancelled then. Errors of tasks come as an ExceptionGroup.
    """

    def __init__(self) -> None:
        super().__init__()
        self._started: set[asyncio.Task[Any]] = set()

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Starts a task of the group."""
        task = super().create_task(coro, name=name, context=context)
        self._started.add(task)
        task.add_done_callback(self._started.discard)
        return task

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception):
            await super().__aexit__(kind, error, trace)
            return
        for task in tuple(self._started):
            task.cancel()
        await super().__aexit__(None, None, None)
