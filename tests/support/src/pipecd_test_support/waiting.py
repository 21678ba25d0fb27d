# SPDX-License-Identifier: Apache-2.0
"""Waits for what must happen, but not for ever."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol, TypeVar

T = TypeVar("T")

WAIT_LIMIT_SECONDS = 20.0
"""How long any one wait of a test may take, on the slowest machine."""


class Soon(Protocol):
    """Waits for a result; see `wait_soon`."""

    async def __call__(self, awaitable: Awaitable[T]) -> T: ...


async def wait_soon(awaitable: Awaitable[T]) -> T:
    """Returns the result of the awaitable. Raises TimeoutError when it takes too long."""
    async with asyncio.timeout(WAIT_LIMIT_SECONDS):
        return await awaitable
