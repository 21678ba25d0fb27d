# SPDX-License-Identifier: Apache-2.0
"""The pool of idle worktrees of one repository, and the callers that wait for one.

A checkout in an existing worktree costs only the difference, in a new one the whole commit. So a
caller waits for a worktree to be returned while others are being returned. When none is, or it
takes too long, a new one is made, so that long-running users never block the next one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from piped.source.worktree import Worktree

RETURN_SECONDS: Final = 0.5
"""Seconds in which a tree must have been returned, else all are taken to be in long use."""

LONGEST_WAIT_SECONDS: Final = 2.0
"""Seconds that a caller waits at most, however many trees are returned to others."""

CLEANING_WAIT_SECONDS: Final = 10.0
"""Seconds to wait for a tree that is being cleaned and so will be returned soon."""


class WorktreePool:
    """Hands out worktrees in the order of requests, and takes them back."""

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
        """Whether a caller waits in `take`."""
        return any(not each.done() for each in self._waiting)

    async def take(self, commit: str) -> Worktree:
        """Returns a worktree: an idle one, best at the commit, a returned one, or a new one."""
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
        """Hand a tree to the first waiting caller or keep it; returns an excess one to delete."""
        self._hand_on(tree)
        if len(self._idle) <= self._keep:
            return None
        self._made -= 1
        return self._idle.pop(0)

    def forget(self) -> None:
        """Note that a tree will not be returned."""
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
