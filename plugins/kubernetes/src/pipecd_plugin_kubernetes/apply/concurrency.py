# SPDX-License-Identifier: Apache-2.0
"""Several things at once, told about in the order in which they were given."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pipecd_sdk import StageFailedError

T = TypeVar("T")
R = TypeVar("R")


async def run_in_order(
    items: Sequence[T],
    work: Callable[[T], Awaitable[R]],
    *,
    most_at_once: int,
    on_done: Callable[[T, R], None] = lambda item, result: None,
    on_failed: Callable[[T, StageFailedError], None] = lambda item, error: None,
) -> list[R]:
    """Returns the results of all items, in their order.

    `on_done` is called in their order too, whichever is ready first. After a failure no further
    item is begun, and those that run are waited for. The first failure in order is raised, the
    others are given to `on_failed`.
    """
    results: dict[int, R] = {}
    failures: dict[int, StageFailedError] = {}
    waiting = iter(range(len(items)))
    told = 0

    def tell(until: int) -> None:
        nonlocal told
        while told < until and (told in results or told in failures):
            if told in results:
                on_done(items[told], results[told])
            told += 1

    async def work_off() -> None:
        for index in waiting:
            try:
                results[index] = await work(items[index])
            except StageFailedError as error:
                failures[index] = error
            tell(len(items))
            if failures:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(min(most_at_once, len(items))):
            group.create_task(work_off())
    for index in range(told, len(items)):
        if index in results:
            on_done(items[index], results[index])
    if failures:
        first = min(failures)
        for index in sorted(failures.keys() - {first}):
            on_failed(items[index], failures[index])
        raise failures[first]
    return [results[index] for index in range(len(items))]
