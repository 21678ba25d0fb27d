# SPDX-License-Identifier: Apache-2.0
"""How a driver runs units of work; see `database` for their contract."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from pipecd_controlplane.store.database import MAX_RUNS, ContentionError, StaleReadError

T = TypeVar("T")


def run_unit(work: Awaitable[T]) -> T:
    """Runs a unit to its end in this thread: the coroutines of its view never suspend.

    Raises RuntimeError for a unit that awaits anything else.
    """
    coroutine = cast("Coroutine[Any, Any, T]", work)
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    coroutine.close()
    raise RuntimeError("a unit of work awaited something other than its view")


def run_until_current(attempt: Callable[[], T]) -> T:
    """Retries an attempt while it raises StaleReadError. Raises ContentionError after MAX_RUNS."""
    for _ in range(MAX_RUNS):
        try:
            return attempt()
        except StaleReadError:
            continue
    raise ContentionError
