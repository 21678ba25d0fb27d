# SPDX-License-Identifier: Apache-2.0
"""The files of commits: each user gets a worktree of its own, and a returned one is used again.

A returned tree is cleaned at once, in the background: what a script wrote, or a secret that was
decrypted for it, is removed before another user gets the tree, who does not wait for it. A tree
that a script still works in, because piped is stopping, is not touched.
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
from piped.git.repository import path_outside_error
from piped.source.application import find_application, place_of
from piped.source.dotgit import GitIdentity
from piped.source.in_use import find_in_use
from piped.source.preparation import Preparation, write
from piped.source.worktree import Worktree, delete_orphans, delete_worktree, run_in_thread
from piped.source.worktree_pool import WorktreePool

log = logger(__name__)

KEPT_WORKTREES: Final = 8
"""Idle worktrees that are kept per repository."""

CHECKOUTS_AT_ONCE: Final = 4
"""Concurrent checkouts of one repository: more of them only wait for the same disk."""

SHARED_CONFIG: Final = ".pipe"


class SourceProvider:
    """Provides worktrees of commits, from the mirrors of the configured repositories."""

    def __init__(
        self,
        data_dir: Path,
        repositories: Mapping[str, Repository],
        *,
        identity: GitIdentity | None = None,
        preparation: Preparation | None = None,
        kept_worktrees: int = KEPT_WORKTREES,
    ) -> None:
        self._folder = data_dir / "trees"
        self._repositories = repositories
        self._identity = identity or GitIdentity()
        self._preparation = preparation
        self._numbers = itertools.count(1)
        self._pools = {
            repository_id: WorktreePool(partial(self._make, repository), keep=kept_worktrees)
            for repository_id, repository in repositories.items()
        }
        self._checkouts = {
            repository_id: asyncio.Semaphore(CHECKOUTS_AT_ONCE) for repository_id in repositories
        }
        self._cleaning: set[asyncio.Task[None]] = set()
        self._tasks = UnwrappedTaskGroup()
        self._closed = False
        self._left: set[Path] = set()
        self._with_secrets: set[Worktree] = set()

    async def __aenter__(self) -> "SourceProvider":
        """Delete the orphaned worktrees of an earlier piped, with any decrypted secrets."""
        self._left = await run_in_thread(delete_orphans, self._folder)
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        """Delete worktrees with decrypted secrets, unless a process is in them; keep the others."""
        self._closed = True
        for task in self._cleaning:
            task.cancel()
        await self._tasks.__aexit__(*error)
        used = await run_in_thread(find_in_use, {tree.folder for tree in self._with_secrets})
        for tree in self._with_secrets:
            if tree.folder not in used:
                await tree.discard()

    @property
    def cleaning(self) -> int:
        """How many returned trees are being cleaned."""
        return len(self._cleaning)

    @asynccontextmanager
    async def worktree(self, repository_id: str, commit: str) -> AsyncIterator[Worktree]:
        """Yields a worktree of the whole commit, for the exclusive use of the block."""
        repository = self._repository(repository_id)
        await repository.commit(commit)
        tree = await self._take_worktree(repository_id, commit)
        try:
            yield tree
        finally:
            self._give_back(tree)

    @asynccontextmanager
    async def open(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str = ""
    ) -> AsyncIterator[DeploymentSource]:
        """Yields the DeploymentSource of a worktree, for the exclusive use of the block."""
        async with self.worktree(git_path.repo.id, commit) as tree:
            source = await source_of(tree, git_path, config_filename)
            if self._preparation is not None:
                await self._prepare(self._preparation, tree, source, git_path, config_filename)
            yield source

    async def read(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str = ""
    ) -> DeploymentSource:
        """Returns an application of a commit, without a checkout.

        Raises SourceError or ConfigError.
        """
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
        tree: Worktree,
        source: DeploymentSource,
        git_path: ApplicationGitPath,
        config_filename: str,
    ) -> None:
        place = place_of(git_path, config_filename)
        file = await find_application(tree.repository, tree.commit, place)
        config, data = await preparation.read(git_path, tree.commit, file)
        source.application_config = data
        rendered = await run_in_thread(preparation.render, tree.path, file, config)
        if rendered:
            # Noted first, so that they are removed whatever happens while they are written.
            tree.opened = tuple(rendered)
            self._with_secrets.add(tree)
            await run_in_thread(write, rendered)

    async def list_changed_paths(
        self, git_path: ApplicationGitPath, old: str, new: str
    ) -> list[str]:
        """Returns the paths that differ between two commits, from the repository's root."""
        return await self._repository(git_path.repo.id).list_changed_paths(old, new)

    def _repository(self, repository_id: str) -> Repository:
        if repository_id not in self._repositories:
            raise SourceError(
                f"there is no repository {repository_id!r} in the piped config",
                hint="add it under repositories, or register the application with another one",
            )
        return self._repositories[repository_id]

    async def _take_worktree(self, repository_id: str, commit: str) -> Worktree:
        pool = self._pools[repository_id]
        tree = await pool.take(commit)
        try:
            async with self._checkouts[repository_id]:
                await _checkout(tree, commit)
        except BaseException:
            self._put(pool, tree)  # it was not handed out: there is nothing to clean
            raise
        return tree

    def _make(self, repository: Repository) -> Worktree:
        trees = self._folder / folder_name(repository.id)
        folders = (trees / str(number) for number in self._numbers)
        folder = next(each for each in folders if not each.exists())
        return Worktree(folder, repository, self._identity)

    def _give_back(self, tree: Worktree) -> None:
        pool = self._pools[tree.repository.id]
        pool.cleaning += 1
        self._begin(self._put_away(pool, tree))

    async def _put_away(self, pool: WorktreePool, tree: Worktree) -> None:
        try:
            if await self._is_in_use(tree):
                log.info("tree.in_use", folder=str(tree.folder))
                pool.forget()
                return
            await run_in_thread(tree.remove_opened)
            self._with_secrets.discard(tree)
            if not pool.is_waited_for:  # the waiting user's checkout cleans it as well
                async with self._checkouts[tree.repository.id]:
                    await tree.checkout(tree.commit)
        except (PipecdError, OSError) as error:
            log.warning("tree.not_cleaned", folder=str(tree.folder), reason=str(error))
            pool.forget()
            await tree.discard()
            self._with_secrets.discard(tree)
        else:
            self._put(pool, tree)
        finally:
            pool.cleaning -= 1

    async def _is_in_use(self, tree: Worktree) -> bool:
        """Returns whether a process works in a worktree; deletes others that are free again."""
        left = set(self._left)
        used = await run_in_thread(find_in_use, {tree.folder, *left})
        for folder in left - used:
            self._left.discard(folder)
            await run_in_thread(delete_worktree, folder)
        if tree.folder in used:
            self._left.add(tree.folder)
        return tree.folder in used

    def _put(self, pool: WorktreePool, tree: Worktree) -> None:
        if (extra := pool.put(tree)) is not None:
            self._begin(extra.discard())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            work.close()  # the next start deletes what is left
            return
        task = self._tasks.create_task(work)
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)


async def _checkout(tree: Worktree, commit: str) -> None:
    try:
        await tree.checkout(commit)
    except DamagedMirrorError:
        # A fetch rebuilds the mirror; if that fails too, its error is the more useful one.
        tree.repository.report_damage()
        await tree.repository.fetch()
        await tree.repository.commit(commit)
        await tree.checkout(commit)


async def source_of(
    tree: Worktree, git_path: ApplicationGitPath, config_filename: str = ""
) -> DeploymentSource:
    """Returns an application in a worktree, for plugins; raises SourceError when it is missing.

    `config_filename` stands in for the application's own, e.g. for what ran under an older name.
    """
    place = place_of(git_path, config_filename)
    file = await find_application(tree.repository, tree.commit, place)
    return DeploymentSource(
        application_directory=str(_resolve(tree.path, place.folder)),
        commit_hash=tree.commit,
        application_config=file.data,
        application_config_filename=place.filename,
        shared_config_directory=str(tree.path.absolute() / SHARED_CONFIG),
    )


def _resolve(work: Path, folder: str) -> Path:
    """Resolves links of a folder; raises GitError if it leaves the repository."""
    root = os.path.realpath(work)
    found = os.path.realpath(work / folder)
    if found != root and not found.startswith(f"{root}/"):
        raise path_outside_error(folder)
    return work.absolute() / os.path.relpath(found, root)
