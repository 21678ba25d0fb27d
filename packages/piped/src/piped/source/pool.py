# SPDX-License-Identifier: Apache-2.0
"""The pool of trees: each user gets one of its own, and a returned one is used again."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from pipecd_model.errors import SourceError
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from piped.git import DamagedMirrorError, Repository, folder_name
from piped.git.repository import out_of_bounds
from piped.source.application import find_application, place_of
from piped.source.dotgit import Identity
from piped.source.tree import Tree, clean_leftovers, in_thread

IDLE: Final = 8
"""Trees that are kept per repository while nobody uses them."""

SWITCHES_AT_ONCE: Final = 4
"""Checkouts at the same time: more of them only wait for the same disk."""

SHARED_CONFIG: Final = ".pipe"


class Sources:
    """The files of commits, from the mirrors of the configured repositories."""

    def __init__(
        self,
        data_dir: Path,
        repositories: Mapping[str, Repository],
        *,
        identity: Identity | None = None,
        idle: int = IDLE,
    ) -> None:
        self._folder = data_dir / "trees"
        self._repositories = repositories
        self._identity = identity or Identity()
        self._keep = idle
        self._idle: dict[str, list[Tree]] = {}
        self._numbers = itertools.count(1)
        self._switching = asyncio.Semaphore(SWITCHES_AT_ONCE)

    async def __aenter__(self) -> "Sources":
        """Delete what an earlier piped left, opened secrets included."""
        await in_thread(clean_leftovers, self._folder)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the trees: a script may still be in one of them."""

    @asynccontextmanager
    async def tree(self, repository_id: str, commit: str) -> AsyncIterator[Tree]:
        """A writable tree of the whole commit, of its own while the block runs."""
        repository = self._repository(repository_id)
        await repository.commit(commit)
        tree = await self._switched(repository, commit)
        try:
            yield tree
        finally:
            await self._give_back(tree)

    @asynccontextmanager
    async def open(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str = ""
    ) -> AsyncIterator[DeploymentSource]:
        """A tree of its own while the block runs, described as plugins want it."""
        async with self.tree(git_path.repo.id, commit) as tree:
            yield await source_of(tree, git_path, config_filename)

    async def changed_paths(self, git_path: ApplicationGitPath, old: str, new: str) -> list[str]:
        """The files that differ between two commits, from the repository's root."""
        return await self._repository(git_path.repo.id).changed_paths(old, new)

    def _repository(self, repository_id: str) -> Repository:
        if repository_id not in self._repositories:
            raise SourceError(
                f"there is no repository {repository_id!r} in the piped config",
                hint="add it under repositories, or register the application with another one",
            )
        return self._repositories[repository_id]

    async def _switched(self, repository: Repository, commit: str) -> Tree:
        async with self._switching:
            tree = self._take(repository, commit)  # now: while we waited one may have come back
            try:
                await _switch(tree, commit)
            except BaseException:
                await self._give_back(tree)
                raise
        return tree

    def _take(self, repository: Repository, commit: str) -> Tree:
        idle = self._idle.setdefault(repository.id, [])
        for number in reversed(range(len(idle))):
            if idle[number].commit == commit:
                return idle.pop(number)
        if idle:
            return idle.pop()
        folder = self._folder / folder_name(repository.id) / str(next(self._numbers))
        return Tree(folder, repository, self._identity)

    async def _give_back(self, tree: Tree) -> None:
        idle = self._idle[tree.repository.id]
        idle.append(tree)
        if len(idle) > self._keep:
            await idle.pop(0).discard()


async def _switch(tree: Tree, commit: str) -> None:
    try:
        await tree.switch(commit)
    except DamagedMirrorError:
        # A fetch makes the mirror anew; if even that cannot help, its reason is the better one.
        tree.repository.damaged()
        await tree.repository.fetch()
        await tree.repository.commit(commit)
        await tree.switch(commit)


async def source_of(
    tree: Tree, git_path: ApplicationGitPath, config_filename: str = ""
) -> DeploymentSource:
    """An application in a tree, as plugins want it; raises SourceError when the commit lacks it.

    `config_filename` stands in for the application's own, e.g. for what ran under an older name.
    """
    place = place_of(git_path, config_filename)
    file = await find_application(tree.repository, tree.commit, place)
    return DeploymentSource(
        application_directory=str(_resolved(tree.path, place.folder)),
        commit_hash=tree.commit,
        application_config=file.data,
        application_config_filename=place.filename,
        shared_config_directory=str(tree.path.absolute() / SHARED_CONFIG),
    )


def _resolved(work: Path, folder: str) -> Path:
    """The folder itself, through links of the repository but never out of it."""
    root = os.path.realpath(work)
    found = os.path.realpath(work / folder)
    if found != root and not found.startswith(f"{root}/"):
        raise out_of_bounds(folder)
    return work.absolute() / os.path.relpath(found, root)
