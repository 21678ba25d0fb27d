# SPDX-License-Identifier: Apache-2.0
"""An answer that costs something, kept for a while: for longer each time that it was the same.

For live states and drift, which piped asks for every minute, of platforms that do not tell when
something has changed. A failure is an answer as well: whoever is throttled asks less.

Example:
    known = Reread[list[str]](first=timedelta(minutes=1), longest=timedelta(minutes=5))
    names = await known.get(source.commit_hash, read_names, clock=ctx.clock)
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

from pipecd_sdk.clock import Clock
from pipecd_sdk.kit.retries import Backoff
from pipecd_sdk.results import StageFailedError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

__all__ = ["MOST_KEPT", "Conclusion", "Conclusions", "Reread", "make_room"]

MOST_KEPT: Final = 2000
"""How many pairs of an application and a deploy target something is kept for."""

JITTER: Final = 0.2
"""The share of a pause that is random, so that a hundred answers are not read in one moment."""


class Reread(Generic[T]):
    """The last answer to one question."""

    __slots__ = ("_answer", "_failure", "_kept", "_key", "_lock", "_pauses", "_turns")

    def __init__(self, *, first: timedelta, longest: timedelta, jitter: float = JITTER) -> None:
        """`first`: how long an answer is kept at most; doubled up to `longest` when it recurs.

        `jitter`: the share of a pause that is random.
        """
        self._pauses = Backoff(
            first_seconds=first.total_seconds(),
            longest_seconds=max(first, longest).total_seconds(),
            jitter=jitter,
        )
        self._lock = asyncio.Lock()
        self._key: Hashable = None
        self._answer: T | None = None
        self._failure: StageFailedError | None = None
        self._kept: tuple[datetime, datetime] | None = None
        """Since when and until when; a clock that was set back is no reason to wait for hours."""
        self._turns = 0
        """How often it was forgotten."""

    async def get(
        self,
        key: Hashable,
        read: Callable[[], Awaitable[T]],
        *,
        clock: Clock,
        is_fresh: bool = False,
    ) -> T:
        """Returns the answer, read again when it is due or `key` is another one.

        `is_fresh`: read it now, because a person asks. Raises StageFailedError, the kept one too.
        """
        async with self._lock:
            if is_fresh or key != self._key or not self._is_kept(clock.now()):
                await self._read(key, read, clock)
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            return self._answer  # type: ignore[return-value]  # there is one without a failure

    def forget(self) -> None:
        """Lets the next question be answered anew, e.g. because a stage has changed something.

        An answer that is being read may be older than that: it is not kept either.
        """
        self._kept = None
        self._turns += 1
        self._pauses.reset()

    def _is_kept(self, now: datetime) -> bool:
        return self._kept is not None and self._kept[0] <= now < self._kept[1]

    async def _read(self, key: Hashable, read: Callable[[], Awaitable[T]], clock: Clock) -> None:
        answer: T | None = None
        failure: StageFailedError | None = None
        began, turn = clock.now(), self._turns
        try:
            answer = await read()
        except StageFailedError as error:
            failure = error
        except asyncio.CancelledError:
            # Whoever asked waits no longer: to try again at once would be cut off again.
            now = clock.now()
            waited = round((now - began).total_seconds())
            cut = StageFailedError(f"there was no answer within {waited} seconds")
            self._keep(key, None, cut, since=began, until=now, turn=turn)
            raise
        self._keep(key, answer, failure, since=began, until=clock.now(), turn=turn)

    def _keep(
        self,
        key: Hashable,
        answer: T | None,
        failure: StageFailedError | None,
        *,
        since: datetime,
        until: datetime,
        turn: int,
    ) -> None:
        is_same = answer == self._answer and str(failure) == str(self._failure)
        if self._kept is None or key != self._key or not is_same:
            self._pauses.reset()
        pause = timedelta(seconds=self._pauses.next_pause_seconds())
        self._key, self._answer, self._failure = key, answer, failure
        self._kept = (since, until + pause) if turn == self._turns else None


class Conclusion(Generic[T]):
    """What follows from some objects, kept until one of them is another object.

    Example:
        known = Conclusion[SyncState]()
        state = await known.draw((seen, manifest), lambda: compare(seen, manifest))
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: tuple[tuple[object, ...], T] | None = None

    async def draw(self, of: tuple[object, ...], conclude: Callable[[], Awaitable[T]]) -> T:
        """Returns what follows from these objects, which nobody may change afterwards.

        What `conclude` raises is not kept.
        """
        kept = self._kept
        if kept is not None and list(map(id, kept[0])) == list(map(id, of)):
            return kept[1]
        conclusion = await conclude()
        self._kept = (of, conclusion)
        return conclusion


class Conclusions(Generic[K, T]):
    """Conclusions by key, of a bounded number.

    Example:
        known = Conclusions[str, SyncState]()
        state = await known.draw(name, (seen, manifest), lambda: compare(seen, manifest))
    """

    __slots__ = ("_kept", "_most")

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._kept: dict[K, Conclusion[T]] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._kept)

    async def draw(
        self,
        key: K,
        of: tuple[object, ...],
        conclude: Callable[[], Awaitable[T]],
        *,
        is_secret: bool = False,
    ) -> T:
        """Returns what follows from these objects; kept for the key, as a `Conclusion` keeps it.

        `is_secret`: neither the objects nor what follows from them is kept.
        """
        if is_secret:
            self._kept.pop(key, None)
            return await conclude()
        if key not in self._kept:
            make_room(self._kept, self._most)
        return await self._kept.setdefault(key, Conclusion()).draw(of, conclude)


def make_room(kept: dict[K, T], most: int) -> None:
    """Removes entries of a cache, by chance, until one more fits.

    By chance, because applications are asked for in turn: where there are more of them than fit,
    the oldest entry is always the one that is asked for next.

    Example:
        >>> kept = {"a": 1, "b": 2}
        >>> make_room(kept, 2)
        >>> len(kept)
        1
    """
    while kept and len(kept) >= most:
        del kept[random.choice(list(kept))]  # noqa: S311 - no secret
