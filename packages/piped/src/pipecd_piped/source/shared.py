# SPDX-License-Identifier: Apache-2.0
"""Worktrees that readers of one commit use one after the other, without a checkout for each.

The live states of many applications are read every minute, mostly at a few commits. To take, check
and clean a worktree for each costs more than all else that piped does for them. Here it is kept for
some seconds after its last reader, and never for long: a plugin may have written into it.

Two readers never have the same worktree at once: tools write beside what they read, such as the
workspace that Terraform has selected or the charts that helm fetches, and would meet there.
Whoever waits for a worktree gets one that nobody reads.
A reader that fails, or whose plugin does, leaves its block by an error: its worktree is given back.

An application with secrets or attachments in its files has a worktree of its own: what is opened
for one is not shown to the plugins of another.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from pipecd_piped.source.provider import SourceProvider
from pipecd_piped.source.worktree import Worktree
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource

IDLE_SECONDS: Final = 5.0
"""Seconds for which a worktree is kept without a reader."""

LONGEST_SECONDS: Final = 30.0
"""Seconds after which a worktree is given back, however many read it one after the other."""

MOST_IDLE: Final = 4
"""Worktrees of one repository that are kept without a reader: each is on the disk."""

MOST_REMEMBERED: Final = 1000
"""Applications that are known to need a worktree of their own; then all are forgotten."""


class SharedSources:
    """Sources for readers, in worktrees that they use one after the other."""

    def __init__(
        self,
        sources: SourceProvider,
        *,
        idle_seconds: float = IDLE_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._sources = sources
        self._idle_seconds = idle_seconds
        self._longest_seconds = longest_seconds
        self._idle: list[_KeptWorktree] = []
        """Those that nobody reads; the one that was read last is the last."""
        self._with_own: set[tuple[str, str, str, str, str]] = set()
        sources.add_keeper(self.release_idle)

    async def read(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str = ""
    ) -> DeploymentSource:
        """Returns an application of a commit, without a checkout."""
        return await self._sources.read(git_path, commit, config_filename=config_filename)

    def open(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str = ""
    ) -> AbstractAsyncContextManager[DeploymentSource]:
        """Opens the DeploymentSource of a worktree that others have read before, and will read."""
        return self._open(git_path, commit, config_filename)

    def release_idle(self, repository_id: str, *, keep: int = 0) -> None:
        """Give back the worktrees of a repository that nobody reads now, but for the last few."""
        idle = [each for each in self._idle if each.tree.repository.id == repository_id]
        for kept in idle[: max(0, len(idle) - keep)]:
            self._give_back_idle(kept)

    @asynccontextmanager
    async def _open(
        self, git_path: ApplicationGitPath, commit: str, config_filename: str
    ) -> AsyncIterator[DeploymentSource]:
        repository_id, folder = git_path.repo.id, git_path.path
        place = (repository_id, commit, folder, git_path.config_filename, config_filename)
        if place not in self._with_own:
            async with self._reading(repository_id, commit) as kept:
                source = await self._find(kept, git_path, config_filename)
                if source is not None:
                    yield source
                    return
            if len(self._with_own) >= MOST_REMEMBERED:
                self._with_own.clear()
            self._with_own.add(place)
        async with self._sources.open(git_path, commit, config_filename=config_filename) as own:
            yield own

    @asynccontextmanager
    async def _reading(self, repository_id: str, commit: str) -> "AsyncIterator[_KeptWorktree]":
        kept = self._take_idle(repository_id, commit)
        if kept is None:
            tree = await self._sources.take_worktree(repository_id, commit)
            self._sources.keep_worktree(tree)
            kept = _KeptWorktree(tree, self._now())
        try:
            yield kept
        except BaseException:
            # A tool of the reader may still work in it, which is seen when it is taken back.
            self._sources.give_back(kept.tree)
            raise
        self._end_reading(kept)

    def _take_idle(self, repository_id: str, commit: str) -> "_KeptWorktree | None":
        for kept in reversed(self._idle):
            if (kept.tree.repository.id, kept.tree.commit) == (repository_id, commit):
                self._remove_idle(kept)
                if not self._is_old(kept):
                    return kept
                self._sources.give_back(kept.tree)
        return None

    def _end_reading(self, kept: "_KeptWorktree") -> None:
        repository_id = kept.tree.repository.id
        if self._is_old(kept) or self._sources.is_waited_for(repository_id):
            self._sources.give_back(kept.tree)
            return
        self._idle.append(kept)
        loop = asyncio.get_running_loop()
        kept.timer = loop.call_later(self._idle_seconds, self._give_back_idle, kept)
        self.release_idle(repository_id, keep=MOST_IDLE)

    def _give_back_idle(self, kept: "_KeptWorktree") -> None:
        self._remove_idle(kept)
        self._sources.give_back(kept.tree)

    def _remove_idle(self, kept: "_KeptWorktree") -> None:
        self._idle.remove(kept)
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer = None

    async def _find(
        self, kept: "_KeptWorktree", git_path: ApplicationGitPath, config_filename: str
    ) -> DeploymentSource | None:
        """Returns an application in a worktree; None when it needs one of its own."""
        place = (git_path.path, git_path.config_filename, config_filename)
        source = kept.sources.get(place)
        if source is None:
            found = await self._sources.find_source(kept.tree, git_path, config_filename)
            if found.rendered is not None:
                return None
            source = kept.sources[place] = found.source
        copy = DeploymentSource()
        copy.CopyFrom(source)
        return copy

    def _is_old(self, kept: "_KeptWorktree") -> bool:
        return self._now() - kept.since > self._longest_seconds

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class _KeptWorktree:
    """A worktree with its readers, from its checkout until it is given back."""

    def __init__(self, tree: Worktree, since: float) -> None:
        self.tree = tree
        self.since = since
        self.sources: dict[tuple[str, str, str], DeploymentSource] = {}
        """The applications that were found in it."""
        self.timer: asyncio.TimerHandle | None = None
