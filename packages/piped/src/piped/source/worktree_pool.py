# SPDX-License-Identifier: Apache-2.0
"""The worktrees of one repository that nobody uses, and those who wait for one.

A checkout in a worktree costs what changed, a new one what is there: with some in use, whoever
comes waits for one to come back, as long as some do come back. When none does, or it takes too
long, another one is made, so that no number of long users blocks the next one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from piped.source.worktree import Worktree

RETURN_SECONDS: Final = 0.5
"""Seconds in which a tree must have come back to somebody, else all are held by long users."""

LONGEST_WAIT_SECONDS: Final = 2.0
"""Seconds that anybody waits, however many come back."""

CLEANING_WAIT_SECONDS: Final = 10.0
"""Seconds to wait for a tree that is being cleaned: it comes."""


class WorktreePool:
    """Gives out trees in the order of asking, and takes them back."""

    def __init__(self, make: Callable[[], Worktree], *, keep: int) -> None:
        self._make = make
        self._keep = keep
        self._idle: list[Worktree] = []
        self._waiting: deque[asyncio.Future[Worktree]] = deque()
        self._made = 0
        self._returned = float("-inf")
        self.cleaning = 0
        """Trees that will be put back soon."""

    @property
    def is_waited_for(self) -> bool:
        """Is somebody waiting for a tree?"""
        return any(not each.done() for each in self._waiting)

    async def take(self, commit: str) -> Worktree:
        """A tree: one at the commit if there is one, any other, one that comes back, a new one."""
        if self._idle:
            return self._pick(commit)
        expected = self.cleaning > len(self._waiting)
        if self._made >= self._keep or expected:
            tree = await self._wait(CLEANING_WAIT_SECONDS if expected else LONGEST_WAIT_SECONDS)
            if tree is not None:
                return tree
        self._made += 1
        return self._make()

    def put(self, tree: Worktree) -> Worktree | None:
        """Take a tree back, for whoever waits longest; returns one too many, to be deleted."""
        self._hand_on(tree)
        if len(self._idle) <= self._keep:
            return None
        self._made -= 1
        return self._idle.pop(0)

    def forget(self) -> None:
        """A tree does not come back."""
        self._made -= 1

    def _hand_on(self, tree: Worktree) -> None:
        self._returned = asyncio.get_running_loop().time()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(tree)
                return
        self._idle.append(tree)

    def _pick(self, commit: str) -> Worktree:
        for number in reversed(range(len(self._idle))):
            if self._idle[number].commit == commit:
                return self._idle.pop(number)
        return self._idle.pop()

    async def _wait(self, longest: float) -> Worktree | None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Worktree] = loop.create_future()
        self._waiting.append(waiting)
        begin = loop.time()
        try:
            while not waiting.done() and self._is_worth_it(begin, longest):
                await asyncio.wait([waiting], timeout=RETURN_SECONDS)
        except asyncio.CancelledError:
            if waiting.done():
                self._hand_on(waiting.result())
            raise
        finally:
            if not waiting.done():
                self._waiting.remove(waiting)
        return waiting.result() if waiting.done() else None

    def _is_worth_it(self, begin: float, longest: float) -> bool:
        now = asyncio.get_running_loop().time()
        flows = now - max(begin, self._returned) < RETURN_SECONDS
        return now - begin < longest and (flows or self.cleaning > 0)
