# SPDX-License-Identifier: Apache-2.0
"""Rate limit of sign-in attempts: a bucket per key that refills with time.

An attempt is taken before a password or key is checked, whether its account exists or not. Only
the attempts of this process are counted.
"""

import hashlib
import heapq
import time
from collections.abc import Callable
from typing import Final

from pipecd_model.errors import PipecdError


class TooManyAttemptsError(PipecdError):
    """The caller has made too many attempts."""

    status = "RESOURCE_EXHAUSTED"


MOST: Final = 10_000
"""Buckets that are kept; a full one is the same as none."""

Clock = Callable[[], float]


class InProcessAttemptLimiter:
    """At most `burst` attempts at once per key, and one more each `seconds`.

    All buckets refill at the same rate, so a bucket is stored as the time when it is full again:
    the later, the more it was used. At the limit of buckets the least used one is evicted. An empty
    bucket is never evicted: a caller who makes up keys cannot reset a limit this way and is refused
    instead.
    """

    def __init__(
        self, burst: int, seconds: float, clock: Clock = time.monotonic, *, most: int = MOST
    ) -> None:
        self._seconds = seconds
        self._span = (burst - 1) * seconds
        self._clock = clock
        self._most = most
        self._full_at: dict[bytes, float] = {}
        # A heap of the same by time. An entry whose time differs from the dict's is stale: skipped.
        self._by_time: list[tuple[float, bytes]] = []

    async def take(self, key: str) -> float:
        """Takes one attempt. Returns 0, or the seconds to wait until one is available."""
        name, now = hash_key(key), self._clock()
        full_at = max(self._full_at.get(name, now), now)
        if full_at - now > self._span:
            return full_at - now - self._span
        if name not in self._full_at and (wait := self._make_room(now)):
            return wait
        self._keep(name, full_at + self._seconds)
        return 0.0

    async def give_back(self, key: str) -> None:
        """Undoes one `take`, because the attempt succeeded."""
        name = hash_key(key)
        if name in self._full_at:
            self._keep(name, self._full_at[name] - self._seconds)

    async def forget(self, key: str) -> None:
        """Resets the bucket after a successful sign-in: the caller knows the password."""
        self._full_at.pop(hash_key(key), None)

    def _keep(self, name: bytes, full_at: float) -> None:
        self._full_at[name] = full_at
        heapq.heappush(self._by_time, (full_at, name))
        if len(self._by_time) > 4 * self._most:
            self._by_time = [(moment, each) for each, moment in self._full_at.items()]
            heapq.heapify(self._by_time)

    def _make_room(self, now: float) -> float:
        """Evicts the least used bucket when there is no room.

        Returns 0 when there is room, or the seconds until a bucket may be evicted.
        """
        while len(self._full_at) >= self._most:
            full_at, name = self._by_time[0]
            if self._full_at.get(name) == full_at:
                if full_at - now > self._span:
                    return full_at - now - self._span
                del self._full_at[name]
            heapq.heappop(self._by_time)
        return 0.0


def hash_key(key: str) -> bytes:
    """Returns a hash of the key: of fixed length, however long a key the caller sends."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
