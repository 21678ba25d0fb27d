# SPDX-License-Identifier: Apache-2.0
"""How often somebody may try: a bucket of attempts that fills again with time.

Taken before a password or key is looked at, whether its account exists or not. Only this process
counts.
"""

import hashlib
import heapq
import time
from collections.abc import Callable
from typing import Final

from pipecd_model.errors import PipecdError


class TooManyAttemptsError(PipecdError):
    """Somebody tries too often."""

    status = "RESOURCE_EXHAUSTED"


MOST: Final = 10_000
"""Buckets that are kept; a full one is the same as none."""

Clock = Callable[[], float]


class InProcessAttemptLimiter:
    """At most `burst` attempts at once per key, and one more each `seconds`.

    All buckets fill at the same pace, so a bucket is kept as the moment when it is full again: the
    later, the more it was used. When there is no room, the least used one goes. One that is empty
    never does: whoever makes up names cannot have it forgotten, and is refused rather.
    """

    def __init__(
        self, burst: int, seconds: float, clock: Clock = time.monotonic, *, most: int = MOST
    ) -> None:
        self._seconds = seconds
        self._span = (burst - 1) * seconds
        self._clock = clock
        self._most = most
        self._full_at: dict[bytes, float] = {}
        # Beside it, by that moment. What is there with an older moment than above is passed over.
        self._by_time: list[tuple[float, bytes]] = []

    async def take(self, key: str) -> float:
        """Use one attempt: 0, or the seconds to wait until there is one."""
        name, now = _name(key), self._clock()
        full_at = max(self._full_at.get(name, now), now)
        if full_at - now > self._span:
            return full_at - now - self._span
        if name not in self._full_at and (wait := self._make_room(now)):
            return wait
        self._keep(name, full_at + self._seconds)
        return 0.0

    async def give_back(self, key: str) -> None:
        """Undo one `take`: the attempt was a good one."""
        name = _name(key)
        if name in self._full_at:
            self._keep(name, self._full_at[name] - self._seconds)

    async def forget(self, key: str) -> None:
        """A sign-in that succeeded: whoever it was knows the password."""
        self._full_at.pop(_name(key), None)

    def _keep(self, name: bytes, full_at: float) -> None:
        self._full_at[name] = full_at
        heapq.heappush(self._by_time, (full_at, name))
        if len(self._by_time) > 4 * self._most:
            self._by_time = [(moment, each) for each, moment in self._full_at.items()]
            heapq.heapify(self._by_time)

    def _make_room(self, now: float) -> float:
        """Forget the least used bucket if there is no room; else the seconds until it may go."""
        while len(self._full_at) >= self._most:
            full_at, name = self._by_time[0]
            if self._full_at.get(name) == full_at:
                if full_at - now > self._span:
                    return full_at - now - self._span
                del self._full_at[name]
            heapq.heappop(self._by_time)
        return 0.0


def _name(key: str) -> bytes:
    """Of one length, whatever somebody sends."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
