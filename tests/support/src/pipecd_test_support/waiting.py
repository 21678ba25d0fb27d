# SPDX-License-Identifier: Apache-2.0
"""Waits for what must happen, but not for ever."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

WAIT_LIMIT_SECONDS = 20.0
"""How long any one wait of a test may take, on the slowest machine."""

PROCESS_LIMIT_SECONDS = 60.0
"""How long other processes may take for something, on the slowest machine."""


class Soon(Protocol):
    """Waits for a result; see `wait_soon`."""

    async def __call__(self, awaitable: Awaitable[T]) -> T: ...


async def wait_soon(awaitable: Awaitable[T]) -> T:
    """Returns the result of the awaitable. Raises TimeoutError when it takes too long."""
    async with asyncio.timeout(WAIT_LIMIT_SECONDS):
        return await awaitable


async def wait_answer(ask: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """Ask another process until its answer is as it should be; returns the answer."""
    async with asyncio.timeout(PROCESS_LIMIT_SECONDS):
        while True:
            answer = await ask()
            if holds(answer):
                return answer
            await asyncio.sleep(0.02)  # between looks at another process
