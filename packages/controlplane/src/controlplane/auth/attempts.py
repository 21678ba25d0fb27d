# SPDX-License-Identifier: Apache-2.0
"""How often somebody may try: a bucket of attempts that fills again with time.

Taken before a password or key is looked at, whether its account exists or not. Only this process
counts; replicas multiply the limit by their number.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pipecd_model.errors import PipecdError


class TooManyAttemptsError(PipecdError):
    """Somebody tries too often."""

    status = "RESOURCE_EXHAUSTED"


MOST: Final = 10_000
"""Buckets that are kept; a full one is the same as none."""


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Attempts:
    """At most `burst` attempts at once per key, and one more each `seconds`."""

    def __init__(
        self, burst: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = burst
        self._seconds = seconds
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, key: str) -> float:
        """Use one attempt: 0, or the seconds to wait until there is one."""
        now = self._clock()
        bucket = self._buckets.pop(key, None) or _Bucket(left=self._burst, at=now)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) / self._seconds)
        bucket.at = now
        self._buckets[key] = bucket
        if len(self._buckets) > MOST:
            self._buckets.popitem(last=False)
        if bucket.left < 1:
            return (1 - bucket.left) * self._seconds
        bucket.left -= 1
        return 0.0

    def forget(self, key: str) -> None:
        """A sign-in that succeeded: whoever it was knows the password."""
        self._buckets.pop(key, None)
