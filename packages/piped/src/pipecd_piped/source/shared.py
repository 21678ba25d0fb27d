# SPDX-License-Identifier: Apache-2.0
"""Worktrees that are shared: readers of one commit look at the same checkout, one after the other.

The live states of many applications are read every minute, mostly at a few commits. To take, check
and clean a worktree for each costs more than all else that piped does for them. Here it is kept for
some seconds after its last reader, and never for long: a plugin may have written into it. Whoever
waits for a worktree gets one that nobody reads at once.

An application with secrets or attachments in its files has a worktree of its own: what is opened
for one is not shown to the plugins of another.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Final

from pipecd_piped.source.provider import SourceProvider
from pipecd_piped.source.worktree import Worktree
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource

IDLE_SECONDS: Final = 5.0
"""Seconds for which a worktree is kept without a reader."""

LONGEST_SECONDS: Final = 30.0
"""Seconds after which readers get another worktree, however many there are."""

MOST_IDLE: Final = 3
"""Worktrees of one repository that are kept without a reader: each is on the disk."""

MOST_REMEMBERED: Final = 1000
"""Applications that are known to need a worktree of their own; then all are forgotten."""


class SharedSources:
    """Sources for readers, in worktrees that they share."""

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
        self._kept: dict[tuple[str, str], _KeptWorktree] = {}
        """Those of which the last reader ended later stand behind others."""
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
        """Opens the DeploymentSource of a worktree, to be read only: others may read it as well."""
        return self._open(git_path, commit, config_filename)

    def release_idle(self, repository_id: str, *, keep: int = 0) -> None:
        """Give back the worktrees of a repository that nobody reads now, but for the last few."""
        idle = [each for each in self._kept.values() if each.is_idle_of(repository_id)]
        for kept in idle[: len(idle) - keep]:
            self._retire(kept)

    @asynccontextmanager
    async def _open(
        self, git_path: ApplicationGitPath, commit: str, config_filename: str
    ) -> AsyncIterator[DeploymentSource]:
        repository_id, folder = git_path.repo.id, git_path.path
        place = (repository_id, commit, folder, git_path.config_filename, config_filename)
        if place not in self._with_own:
            with self._reading(repository_id, commit) as kept:
                source = await self._find(kept, git_path, config_filename)
                if source is not None:
                    yield source
                    return
            if len(self._with_own) >= MOST_REMEMBERED:
                self._with_own.clear()
            self._with_own.add(place)
        async with self._sources.open(git_path, commit, config_filename=config_filename) as own:
            yield own

    @contextmanager
    def _reading(self, repository_id: str, commit: str) -> "Iterator[_KeptWorktree]":
        key = (repository_id, commit)
        kept = self._kept.get(key)
        now = asyncio.get_running_loop().time()
        if kept is None or now - kept.since > self._longest_seconds:
            if kept is not None:
                self._retire(kept)
            kept = self._kept[key] = _KeptWorktree(key, now)
        kept.readers += 1
        kept.stop_timer()
        try:
            yield kept
        finally:
            kept.readers -= 1
            if not kept.readers:
                self._end_reading(kept)

    def _end_reading(self, kept: "_KeptWorktree") -> None:
        if kept.tree is None or self._kept.get(kept.key) is not kept:
            self._retire(kept)
            return
        self._kept[kept.key] = self._kept.pop(kept.key)
        self.release_idle(kept.key[0], keep=MOST_IDLE)
        loop = asyncio.get_running_loop()
        kept.timer = loop.call_later(self._idle_seconds, self._retire, kept)

    def _retire(self, kept: "_KeptWorktree") -> None:
        """Let nobody read a worktree any more, and give it back when nobody reads it now."""
        if self._kept.get(kept.key) is kept:
            del self._kept[kept.key]
        kept.stop_timer()
        if not kept.readers and kept.tree is not None:
            tree, kept.tree = kept.tree, None
            self._sources.give_back(tree)

    async def _find(
        self, kept: "_KeptWorktree", git_path: ApplicationGitPath, config_filename: str
    ) -> DeploymentSource | None:
        """Returns an application in a worktree; None when it needs one of its own."""
        async with kept.lock:
            if kept.tree is None:
                kept.tree = await self._sources.take_worktree(*kept.key)
                self._sources.keep_worktree(kept.tree)
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


class _KeptWorktree:
    """A worktree with its readers, from before its checkout until it is given back."""

    def __init__(self, key: tuple[str, str], since: float) -> None:
        self.key = key
        self.since = since
        self.readers = 0
        self.tree: Worktree | None = None
        self.lock = asyncio.Lock()
        """Held while the worktree is checked out."""
        self.sources: dict[tuple[str, str, str], DeploymentSource] = {}
        """The applications that were found in it."""
        self.timer: asyncio.TimerHandle | None = None

    def is_idle_of(self, repository_id: str) -> bool:
        return self.key[0] == repository_id and not self.readers

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
