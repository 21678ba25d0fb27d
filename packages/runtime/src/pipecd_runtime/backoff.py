# SPDX-License-Identifier: Apache-2.0
"""Exponential backoff with jitter: how long to wait before a retry."""

import random
from typing import Final

_MOST_DOUBLINGS: Final = 32
"""More would only make a number too large for a float; the longest pause is reached long before."""


class Backoff:
    """Pauses that double with each failure in a row, up to the longest one."""

    __slots__ = ("_first_seconds", "_jitter", "_longest_seconds", "failures")

    def __init__(
        self, *, first_seconds: float, longest_seconds: float, jitter: float = 0.5
    ) -> None:
        """`jitter` is the share of a pause that is random.

        0 gives the same pauses each time, 0.5 the upper half of each, 1 anything up to it.
        """
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._jitter = jitter
        self.failures = 0
        """Failures in a row since the last `reset`."""

    def reset(self) -> None:
        """Starts again with the first pause, after a success."""
        self.failures = 0

    def next_pause_seconds(self) -> float:
        """Counts one more failure and returns the pause after it."""
        self.failures += 1
        return self.pause_seconds_after(self.failures)

    def pause_seconds_after(self, failures: int) -> float:
        """Returns the pause after this number of failures in a row (from 1); counts nothing."""
        doublings = min(max(failures - 1, 0), _MOST_DOUBLINGS)
        longest = min(self._longest_seconds, self._first_seconds * 2**doublings)
        shortest = longest * (1 - self._jitter)
        return random.uniform(shortest, longest)  # noqa: S311 - spreads load, protects nothing
