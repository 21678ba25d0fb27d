# SPDX-License-Identifier: Apache-2.0
"""Sources whose repositories are there: a piped that goes on with deployments does not wait for
its watches to have looked at every remote, and does not fail because they have not yet.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from piped.git import Repository
from piped.source import Sources


class OpenedSources:
    """Opens a repository before the first use of it."""

    def __init__(self, sources: Sources, repositories: Mapping[str, Repository]) -> None:
        self._sources = sources
        self._repositories = repositories
        self._opened: set[str] = set()
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @asynccontextmanager
    async def open(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str
    ) -> AsyncIterator[DeploymentSource]:
        """A tree of its own while the block runs; raises SourceError."""
        await self._open(git_path.repo.id)
        async with self._sources.open(git_path, commit, config_filename=config_filename) as source:
            yield source

    async def changed_paths(self, git_path: ApplicationGitPath, old: str, new: str) -> list[str]:
        """The files that differ between two commits, from the repository's root."""
        await self._open(git_path.repo.id)
        return await self._sources.changed_paths(git_path, old, new)

    async def _open(self, repository_id: str) -> None:
        if repository_id in self._opened or repository_id not in self._repositories:
            return
        async with self._opening[repository_id]:
            await self._repositories[repository_id].open()
            self._opened.add(repository_id)
