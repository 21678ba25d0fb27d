# SPDX-License-Identifier: Apache-2.0
"""How a driver runs units of work; see `database` for what they keep to."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from pipecd_controlplane.store.database import MAX_RUNS, ContentionError, StaleReadError

T = TypeVar("T")


def run_unit(work: Awaitable[T]) -> T:
    """Run a unit to its end in this thread: the coroutines of its view never suspend."""
    coroutine = cast("Coroutine[Any, Any, T]", work)
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    coroutine.close()
    raise RuntimeError("a unit of work awaited something other than its view")


def run_until_current(attempt: Callable[[], T]) -> T:
    """Run an attempt again while it raises StaleReadError. Raises ContentionError in the end."""
    for _ in range(MAX_RUNS):
        try:
            return attempt()
        except StaleReadError:
            continue
    raise ContentionError
