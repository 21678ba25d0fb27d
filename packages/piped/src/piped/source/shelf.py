# SPDX-License-Identifier: Apache-2.0
"""The trees of one repository that nobody uses, and those who wait for one.

To switch a tree costs what changed, to make one costs what is there: with some in use, whoever
comes waits for one to come back, as long as some do come back. When none does, or it takes too
long, another one is made, so that no number of long users blocks the next one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from piped.source.tree import Tree

PATIENCE: Final = 0.5
"""Seconds in which a tree must have come back to somebody, else all are held by long users."""

LONGEST: Final = 2.0
"""Seconds that anybody waits, however many come back."""

CLEANING: Final = 10.0
"""Seconds to wait for a tree that is being cleaned: it comes."""


class Shelf:
    """Gives out trees in the order of asking, and takes them back."""

    def __init__(self, make: Callable[[], Tree], *, keep: int) -> None:
        self._make = make
        self._keep = keep
        self._idle: list[Tree] = []
        self._waiting: deque[asyncio.Future[Tree]] = deque()
        self._made = 0
        self._returned = float("-inf")
        self.cleaning = 0
        """Trees that will be put back soon."""

    @property
    def is_waited_for(self) -> bool:
        """Is somebody waiting for a tree?"""
        return any(not each.done() for each in self._waiting)

    async def take(self, commit: str) -> Tree:
        """A tree: one at the commit if there is one, any other, one that comes back, a new one."""
        if self._idle:
            return self._pick(commit)
        expected = self.cleaning > len(self._waiting)
        if self._made >= self._keep or expected:
            tree = await self._wait(CLEANING if expected else LONGEST)
            if tree is not None:
                return tree
        self._made += 1
        return self._make()

    def put(self, tree: Tree) -> Tree | None:
        """Take a tree back, for whoever waits longest; answers one too many, to be deleted."""
        self._hand_on(tree)
        if len(self._idle) <= self._keep:
            return None
        self._made -= 1
        return self._idle.pop(0)

    def forget(self) -> None:
        """A tree does not come back."""
        self._made -= 1

    def _hand_on(self, tree: Tree) -> None:
        self._returned = asyncio.get_running_loop().time()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(tree)
                return
        self._idle.append(tree)

    def _pick(self, commit: str) -> Tree:
        for number in reversed(range(len(self._idle))):
            if self._idle[number].commit == commit:
                return self._idle.pop(number)
        return self._idle.pop()

    async def _wait(self, longest: float) -> Tree | None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Tree] = loop.create_future()
        self._waiting.append(waiting)
        begin = loop.time()
        try:
            while not waiting.done() and self._is_worth_it(begin, longest):
                await asyncio.wait([waiting], timeout=PATIENCE)
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
        flows = now - max(begin, self._returned) < PATIENCE
        return now - begin < longest and (flows or self.cleaning > 0)
