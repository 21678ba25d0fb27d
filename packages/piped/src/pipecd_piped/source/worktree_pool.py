# SPDX-License-Identifier: Apache-2.0
"""The pool of idle worktrees of one repository, and the callers that wait for some.

A checkout in an existing worktree costs only the difference, in a new one the whole commit. So a
caller waits for worktrees to be returned while others are being returned. When none is, or it
takes too long, new ones are made, so that long-running users never block the next one.

A caller gets all that it needs before the next one gets any: two that hold one each, and wait for
another, would wait for each other.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from pipecd_piped.source.worktree import Worktree

RETURN_SECONDS: Final = 0.5
"""Seconds in which a tree must have been returned, else all are taken to be in long use.

More when trees were lately used for longer: on a busy machine everything takes longer.
"""

LONGEST_WAIT_SECONDS: Final = 2.0
"""Seconds that a caller waits at most, however many trees are returned to others."""

EXCESS_SECONDS: Final = 30.0
"""Seconds for which no tree is deleted after one was made: there were too few, it may be again."""

CLEANING_WAIT_SECONDS: Final = 10.0
"""Seconds to wait for a tree that is being cleaned and so will be returned soon."""

CHECKOUTS_AT_ONCE: Final = 4
"""Concurrent checkouts of one repository: more of them only wait for the same disk."""

_LEARNED_FROM: Final = 8
"""About how many uses tell how long one usually takes."""


class WorktreePool:
    """Hands out worktrees in the order of requests, and takes them back."""

    def __init__(
        self,
        make: Callable[[], Worktree],
        *,
        keep: int,
        release_idle: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`release_idle` is called when a caller has to wait: what is kept may be returned."""
        self._make = make
        self._release_idle = release_idle
        self._clock = clock
        self._keep = keep
        self._idle: list[Worktree] = []
        self._waiting: deque[_WorktreeRequest] = deque()
        self._made = 0
        self._returned = float("-inf")
        self._grown = float("-inf")
        self._taken: dict[Worktree, float] = {}
        self._usual_seconds = 0.0
        """How long trees were lately in use."""
        self.cleaning = 0
        """Trees that will be put back soon."""
        self._opening = 0
        """Trees that were handed out and wait for their checkout, or are in it."""

    @property
    def is_waited_for(self) -> bool:
        """Whether a caller waits for a tree."""
        return bool(self._waiting)

    async def take(self, commit: str) -> Worktree:
        """Returns a worktree: an idle one, best at the commit, a returned one, or a new one."""
        (tree,) = await self.take_all([commit])
        return tree

    async def take_all(self, commits: Sequence[str]) -> list[Worktree]:
        """Returns a worktree for each commit, all of them before a later caller gets one."""
        request = _WorktreeRequest(commits)
        for commit in commits:
            if self._idle and (tree := self._find_at(commit)) is not None:
                request.give(tree)
        expected = self.cleaning > sum(len(each.missing) for each in self._waiting)
        while request.missing and self._idle:
            request.give(self._idle.pop())
        while request.missing and self._made < self._keep and not expected:
            self._give_new(request)
        if request.missing:
            await self._wait(request, CLEANING_WAIT_SECONDS if expected else LONGEST_WAIT_SECONDS)
        self._opening += len(commits)
        now = self._clock()
        self._taken |= dict.fromkeys(request.trees, now)
        return request.trees

    def note_opened(self) -> None:
        """Note that the checkout of a tree that was taken has ended, or that there is none."""
        self._opening -= 1
        if self._waiting:
            self._waiting[0].stirred.set()  # it may be its turn to get new ones

    def put(self, tree: Worktree) -> list[Worktree]:
        """Hand a tree to the first waiting caller or keep it; returns excess ones to delete."""
        self._learn(tree)
        self._hand_on(tree)
        excess = len(self._idle) - self._keep
        if excess <= 0 or self._clock() - self._grown < EXCESS_SECONDS:
            return []
        self._made -= excess
        deleted, self._idle = self._idle[:excess], self._idle[excess:]
        return deleted

    def keep(self, tree: Worktree) -> None:
        """Note that a tree that was taken is kept: it does not tell how long others are in use."""
        self._taken.pop(tree, None)

    def forget(self, tree: Worktree) -> None:
        """Note that a tree will not be returned."""
        self._taken.pop(tree, None)
        self._made -= 1

    def _learn(self, tree: Worktree) -> None:
        if tree not in self._taken:
            return
        used_seconds = min(self._clock() - self._taken.pop(tree), LONGEST_WAIT_SECONDS)
        self._usual_seconds += (used_seconds - self._usual_seconds) / _LEARNED_FROM

    def _give_new(self, request: "_WorktreeRequest") -> None:
        self._made += 1
        request.give(self._make())

    def _hand_on(self, tree: Worktree) -> None:
        self._returned = self._clock()
        if not self._waiting:
            self._idle.append(tree)
            return
        first = self._waiting[0]
        first.give(tree)
        if not first.missing:
            self._waiting.popleft()
            first.stirred.set()

    def _find_at(self, commit: str) -> Worktree | None:
        for number in reversed(range(len(self._idle))):
            if self._idle[number].commit == commit:
                return self._idle.pop(number)
        return None

    async def _wait(self, request: "_WorktreeRequest", longest: float) -> None:
        """Fill a request with returned trees; with new ones when that takes too long."""
        self._waiting.append(request)
        self._release_idle()
        begin = self._clock()
        try:
            while request.missing and self._is_worth_it(begin, longest):
                request.stirred.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETURN_SECONDS):
                        await request.stirred.wait()
        except asyncio.CancelledError:
            if request.missing:
                self._waiting.remove(request)
            for tree in request.held:
                self._hand_on(tree)
            raise
        if request.missing:
            self._waiting.remove(request)
            self._grown = self._clock()
        while request.missing:
            self._give_new(request)

    def _is_worth_it(self, begin: float, longest: float) -> bool:
        if self._opening >= CHECKOUTS_AT_ONCE:
            return True  # a new one would only wait for its checkout
        now = self._clock()
        expected_seconds = min(2 * self._usual_seconds, LONGEST_WAIT_SECONDS)
        flows = now - max(begin, self._returned) < max(RETURN_SECONDS, expected_seconds)
        return now - begin < longest and (flows or self.cleaning > 0)


class _WorktreeRequest:
    """The worktrees that one caller needs, and has so far."""

    def __init__(self, commits: Sequence[str]) -> None:
        self._commits = tuple(commits)
        self._trees: dict[int, Worktree] = {}
        self.missing = list(range(len(self._commits)))
        """The places of commits without a tree."""
        self.stirred = asyncio.Event()
        """Something has changed for the caller that waits."""

    @property
    def held(self) -> Sequence[Worktree]:
        """The trees that the caller has so far."""
        return tuple(self._trees.values())

    @property
    def trees(self) -> list[Worktree]:
        """The trees in the order of the commits."""
        return [self._trees[place] for place in range(len(self._commits))]

    def give(self, tree: Worktree) -> None:
        """Take a tree: for the commit that it is at, if that is missing."""
        wanted = (each for each in self.missing if self._commits[each] == tree.commit)
        place = next(wanted, self.missing[0])
        self.missing.remove(place)
        self._trees[place] = tree
