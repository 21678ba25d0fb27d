# SPDX-License-Identifier: Apache-2.0
"""Follow a branch: at once for a repository on this machine, by polling for others.

A move of a branch on this machine is noticed by its files. A remote on another machine is polled at
each interval, and at once after `hint`; many hints are one look. A remote that cannot be reached is
retried with backoff.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from pipecd_piped.git.commit import Commit
from pipecd_piped.git.errors import GitError, NoBranchError
from pipecd_piped.git.refs import LocalBranch, LocalBranchWatch, Signature
from pipecd_piped.git.state import Reachability, RepositoryState
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger
from pipecd_runtime.signals import Signal

log = logger(__name__)

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""The backoff between two tries of a remote that cannot be reached."""

HINT_PAUSE_SECONDS: Final = 0.5
"""Seconds after a look within which hints wait: however many come, the remote is not flooded."""


class BranchWatch:
    """The head of a branch, and whether its remote can be reached."""

    def __init__(
        self,
        *,
        name: str,
        local: LocalBranch | None,
        interval_seconds: float,
        look: Callable[[bool], Awaitable[object]],
        known: Callable[[], Awaitable[Commit | None]],
    ) -> None:
        """`look` checks the remote and calls `set_head` with the head that it finds. It is told
        whether there was a hint: then the branch has probably moved.

        `known` returns the head in the mirror, without the remote.
        """
        self.head: Commit | None = None
        self.state = RepositoryState.now(Reachability.OPENING)
        self._name = name
        self._local = local
        self._local_watch = None if local is None else LocalBranchWatch(local)
        self._interval_seconds = interval_seconds
        self._look_at_remote = look
        self._known = known
        self._seen: Signature = ()
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._state_changed = Signal()
        self._due = 0.0
        self._looked_at = float("-inf")
        self._is_hinted = False
        self._backoff = Backoff(
            first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS
        )

    def set_head(self, head: Commit) -> None:
        """Set the head, and wake the watchers."""
        if self.head is None or self.head.hash != head.hash:
            log.info("git.moved", repository=self._name, commit=head.hash)
        self.head = head
        self._wake.set()

    def hint(self, commit_hash: str = "") -> None:
        """Check the remote now instead of at the next interval.

        Does nothing when the commit is the head already: then the hint is an old one. A hint within
        `HINT_PAUSE_SECONDS` after a look, or during one, is followed when they are over.
        """
        if commit_hash and self.head is not None and self.head.hash == commit_hash:
            return
        self._is_hinted = True
        self._due = min(self._due, self._looked_at + HINT_PAUSE_SECONDS)
        self._wake.set()

    def close(self) -> None:
        """Stop watching the files of a repository on this machine."""
        if self._local_watch is not None:
            self._local_watch.close()

    async def heads(self) -> AsyncGenerator[Commit, None]:
        """Yields the head, and again whenever it moves. Never raises because of git.

        Any number of tasks may watch: they share one check of the remote. A slow one gets only the
        newest head.
        """
        seen: str | None = None
        while True:
            async with self._turn:
                while self.head is None or self.head.hash == seen:
                    await self._look_when_due(seen)
            seen = self.head.hash
            yield self.head

    async def states(self) -> AsyncGenerator[RepositoryState, None]:
        """Yields the state, and again whenever it changes."""
        seen: RepositoryState | None = None
        while True:
            while self.state == seen:
                await self._state_changed.wait()
            seen = self.state
            yield seen

    async def _look_when_due(self, seen: str | None) -> None:
        """Wait until a check of the remote is due, then check; returns early on a new head."""
        loop = asyncio.get_running_loop()
        while loop.time() < self._due:
            if self.head is not None and self.head.hash != seen:
                return  # another task fetched
            if self._local is None or self._local_watch is None:
                await self._sleep(self._due - loop.time())
            elif self._local.signature() == self._seen:
                await self._local_watch.wait()
            else:
                break
        await self._look()

    async def _sleep(self, seconds: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _look(self) -> None:
        if self._local is not None:
            self._seen = self._local.signature()  # before looking: what moves now is seen next
        self._due = self._looked_at = float("inf")
        is_hinted, self._is_hinted = self._is_hinted, False
        pause = self._interval_seconds
        try:
            await self._look_at_remote(is_hinted)
        except NoBranchError as error:
            self._become(Reachability.NO_BRANCH, str(error))
            await self._use_known()
        except (GitError, OSError) as error:
            self._become(Reachability.UNREACHABLE, str(error))
            await self._use_known()
            pause = self._backoff.next_pause_seconds()
        except asyncio.CancelledError:
            self._due = self._looked_at = float("-inf")  # for whoever else watches
            raise
        else:
            self._backoff.reset()
            self._become(Reachability.REACHABLE)
        self._looked_at = asyncio.get_running_loop().time()
        if self._is_hinted:  # during the look, which may have been too early to see it
            pause = min(pause, HINT_PAUSE_SECONDS)
        self._due = self._looked_at + pause

    async def _use_known(self) -> None:
        """Use the head in the mirror, which can be deployed while the remote is away."""
        if self.head is not None:
            return
        try:
            self.head = await self._known()
        except (GitError, OSError) as error:
            log.debug("git.mirror_unreadable", repository=self._name, reason=str(error))

    def _become(self, reach: Reachability, reason: str = "") -> None:
        before, self.state = self.state, self.state.next_state(reach, reason)
        if self.state == before:
            return
        self._state_changed.send()
        if reach is before.reach:
            return
        if reach is Reachability.REACHABLE:
            log.info("git.reachable", repository=self._name)
        else:
            log.warning("git.unreachable", repository=self._name, reason=reason)
