# SPDX-License-Identifier: Apache-2.0
"""The pool of trees: each user gets one of its own, and a returned one is used again.

A returned tree is cleaned at once, in the background: what a script wrote, or a secret that was
opened for it, is gone before anybody else needs the tree, and the next user does not wait for it.
One that a script still works in, because piped is stopping, is left to it.
"""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from pipecd_model.errors import PipecdError, SourceError
from pipecd_runtime.logs import logger
from pipecd_runtime.tasks import UnwrappedTaskGroup
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from piped.git import DamagedMirrorError, Repository, folder_name
from piped.git.repository import out_of_bounds
from piped.source.application import find_application, place_of
from piped.source.dotgit import Identity
from piped.source.inhabited import inhabited
from piped.source.preparation import Preparation, write
from piped.source.shelf import Shelf
from piped.source.tree import Tree, clean_leftovers, delete, in_thread

log = logger(__name__)

IDLE: Final = 8
"""Trees that are kept per repository while nobody uses them."""

SWITCHES_AT_ONCE: Final = 4
"""Checkouts of one repository at the same time: more of them only wait for the same disk."""

SHARED_CONFIG: Final = ".pipe"


class Sources:
    """The files of commits, from the mirrors of the configured repositories."""

    def __init__(
        self,
        data_dir: Path,
        repositories: Mapping[str, Repository],
        *,
        identity: Identity | None = None,
        preparation: Preparation | None = None,
        idle: int = IDLE,
    ) -> None:
        self._folder = data_dir / "trees"
        self._repositories = repositories
        self._identity = identity or Identity()
        self._preparation = preparation
        self._numbers = itertools.count(1)
        self._shelves = {
            repository_id: Shelf(partial(self._make, repository), keep=idle)
            for repository_id, repository in repositories.items()
        }
        self._switching = {
            repository_id: asyncio.Semaphore(SWITCHES_AT_ONCE) for repository_id in repositories
        }
        self._cleaning: set[asyncio.Task[None]] = set()
        self._tasks = UnwrappedTaskGroup()
        self._closed = False
        self._left: set[Path] = set()
        self._with_secrets: set[Tree] = set()

    async def __aenter__(self) -> "Sources":
        """Delete what an earlier piped left, opened secrets included."""
        self._left = await in_thread(clean_leftovers, self._folder)
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        """Leave the trees, but no opened secret: unless a script may still be in one of them."""
        self._closed = True
        for task in self._cleaning:
            task.cancel()
        await self._tasks.__aexit__(*error)
        used = await in_thread(inhabited, {tree.folder for tree in self._with_secrets})
        for tree in self._with_secrets:
            if tree.folder not in used:
                await tree.discard()

    @property
    def cleaning(self) -> int:
        """How many returned trees are being cleaned."""
        return len(self._cleaning)

    @asynccontextmanager
    async def tree(self, repository_id: str, commit: str) -> AsyncIterator[Tree]:
        """A writable tree of the whole commit, of its own while the block runs."""
        repository = self._repository(repository_id)
        await repository.commit(commit)
        tree = await self._switched(repository_id, commit)
        try:
            yield tree
        finally:
            self._give_back(tree)

    @asynccontextmanager
    async def open(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str = ""
    ) -> AsyncIterator[DeploymentSource]:
        """A tree of its own while the block runs, described as plugins want it."""
        async with self.tree(git_path.repo.id, commit) as tree:
            source = await source_of(tree, git_path, config_filename)
            if self._preparation is not None:
                await self._prepare(self._preparation, tree, source, git_path, config_filename)
            yield source

    async def read(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str = ""
    ) -> DeploymentSource:
        """An application as a commit has it, without files; raises SourceError or ConfigError."""
        repository = self._repository(git_path.repo.id)
        await repository.commit(commit)
        place = place_of(git_path, config_filename)
        file = await find_application(repository, commit, place)
        data = file.data
        if self._preparation is not None:
            _, data = await self._preparation.read(git_path, commit, file)
        return DeploymentSource(
            commit_hash=commit,
            application_config=data,
            application_config_filename=place.filename,
        )

    async def _prepare(
        self,
        preparation: Preparation,
        tree: Tree,
        source: DeploymentSource,
        git_path: ApplicationGitPath,
        config_filename: str,
    ) -> None:
        place = place_of(git_path, config_filename)
        file = await find_application(tree.repository, tree.commit, place)
        config, data = await preparation.read(git_path, tree.commit, file)
        source.application_config = data
        rendered = await in_thread(preparation.render, tree.path, file, config)
        if rendered:
            # Noted first: whatever happens while they are written, they are found again.
            tree.opened = tuple(rendered)
            self._with_secrets.add(tree)
            await in_thread(write, rendered)

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

    async def _switched(self, repository_id: str, commit: str) -> Tree:
        shelf = self._shelves[repository_id]
        tree = await shelf.take(commit)
        try:
            async with self._switching[repository_id]:
                await _switch(tree, commit)
        except BaseException:
            self._put(shelf, tree)  # nobody had it: there is nothing to clean
            raise
        return tree

    def _make(self, repository: Repository) -> Tree:
        trees = self._folder / folder_name(repository.id)
        folders = (trees / str(number) for number in self._numbers)
        folder = next(each for each in folders if not each.exists())
        return Tree(folder, repository, self._identity)

    def _give_back(self, tree: Tree) -> None:
        shelf = self._shelves[tree.repository.id]
        shelf.cleaning += 1
        self._begin(self._put_away(shelf, tree))

    async def _put_away(self, shelf: Shelf, tree: Tree) -> None:
        try:
            if await self._is_in_use(tree):
                log.info("tree.in_use", folder=str(tree.folder))
                shelf.forget()
                return
            await in_thread(tree.remove_opened)
            self._with_secrets.discard(tree)
            if not shelf.is_waited_for:  # who waits for it switches it, and that cleans it as well
                async with self._switching[tree.repository.id]:
                    await tree.switch(tree.commit)
        except (PipecdError, OSError) as error:
            log.warning("tree.not_cleaned", folder=str(tree.folder), reason=str(error))
            shelf.forget()
            await tree.discard()
            self._with_secrets.discard(tree)
        else:
            self._put(shelf, tree)
        finally:
            shelf.cleaning -= 1

    async def _is_in_use(self, tree: Tree) -> bool:
        """Does a script still work in it? Trees that were left to one that has ended go now."""
        left = set(self._left)
        used = await in_thread(inhabited, {tree.folder, *left})
        for folder in left - used:
            self._left.discard(folder)
            await in_thread(delete, folder)
        if tree.folder in used:
            self._left.add(tree.folder)
        return tree.folder in used

    def _put(self, shelf: Shelf, tree: Tree) -> None:
        if (extra := shelf.put(tree)) is not None:
            self._begin(extra.discard())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            work.close()  # the next start deletes what is left
            return
        task = self._tasks.create_task(work)
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)


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
