# SPDX-License-Identifier: Apache-2.0
"""The files of commits: each user gets a worktree of its own, and a returned one is used again.

A returned tree is cleaned at once, in the background: what a script wrote, or a secret that was
decrypted for it, is removed before another user gets the tree, who does not wait for it. A tree
that a script still works in, because piped is stopping, is not touched.
"""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pipecd_model.config import ApplicationConfig
from pipecd_model.errors import PipecdError, SourceError
from pipecd_piped.git import DamagedMirrorError, Repository, folder_name
from pipecd_piped.git.repository import path_outside_error
from pipecd_piped.source.application import ApplicationFile, find_application, place_of
from pipecd_piped.source.dotgit import GitIdentity
from pipecd_piped.source.in_use import find_in_use
from pipecd_piped.source.preparation import Preparation, is_rendered, write
from pipecd_piped.source.worktree import Worktree, delete_orphans, delete_worktree, run_in_thread
from pipecd_piped.source.worktree_pool import CHECKOUTS_AT_ONCE, WorktreePool
from pipecd_runtime.logs import logger
from pipecd_runtime.tasks import UnwrappedTaskGroup
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource

log = logger(__name__)

KEPT_WORKTREES: Final = 8
"""Idle worktrees that are kept per repository."""

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
            repository_id: WorktreePool(
                partial(self._make, repository),
                keep=kept_worktrees,
                release_idle=partial(self._release_idle, repository_id),
            )
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
        self._keepers: list[Callable[[str], None]] = []

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
    async def worktree(
        self, repository_id: str, commit: str, *, reserved: list[Worktree] | None = None
    ) -> AsyncIterator[Worktree]:
        """Yields a worktree of the whole commit, for the exclusive use of the block.

        It is one of `reserved` while there are any, which is then taken out of them.
        """
        tree = await self.take_worktree(repository_id, commit, reserved=reserved)
        try:
            yield tree
        finally:
            self.give_back(tree)

    def add_keeper(self, release_idle: Callable[[str], None]) -> None:
        """Add somebody who keeps worktrees longer than they are used.

        `release_idle` is called with the id of a repository when somebody else needs one of it.
        """
        self._keepers.append(release_idle)

    def keep_worktree(self, tree: Worktree) -> None:
        """Note that a worktree is kept for longer than others."""
        self._pools[tree.repository.id].keep(tree)

    def is_waited_for(self, repository_id: str) -> bool:
        """Returns whether somebody waits for a worktree of a repository."""
        return self._pools[repository_id].is_waited_for

    def open(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str = ""
    ) -> AbstractAsyncContextManager[DeploymentSource]:
        """Opens the DeploymentSource of a worktree, for the exclusive use of the block."""
        return self._open(git_path, commit, config_filename, None)

    @asynccontextmanager
    async def reserve(
        self, git_path: ApplicationGitPath, commits: Sequence[str]
    ) -> AsyncIterator["ReservedSources"]:
        """Yields sources that are opened without another wait for a worktree, one per commit.

        Whoever needs several at once reserves them: else two could wait for each other's.
        """
        self._repository(git_path.repo.id)
        pool = self._pools[git_path.repo.id]
        trees = await pool.take_all(commits)
        try:
            yield ReservedSources(partial(self._open, reserved=trees))
        finally:
            for tree in trees:
                pool.note_opened()
                self._put(pool, tree)  # it was not handed out: there is nothing to clean

    @asynccontextmanager
    async def _open(
        self,
        git_path: ApplicationGitPath,
        commit: str,
        config_filename: str,
        reserved: list[Worktree] | None,
    ) -> AsyncIterator[DeploymentSource]:
        async with self.worktree(git_path.repo.id, commit, reserved=reserved) as tree:
            found = await self.find_source(tree, git_path, config_filename)
            if found.rendered is not None and self._preparation is not None:
                render = partial(self._preparation.render, tree.path, found.file, found.rendered)
                await self._write_rendered(tree, render)
            yield found.source

    async def find_source(
        self, tree: Worktree, git_path: ApplicationGitPath, config_filename: str = ""
    ) -> "FoundSource":
        """Returns an application in a worktree, before anything is rendered into its files.

        Raises SourceError or ConfigError.
        """
        place = place_of(git_path, config_filename)
        file = await find_application(tree.repository, tree.commit, place)
        source = source_in(tree, file)
        if self._preparation is None:
            return FoundSource(source=source, file=file, rendered=None)
        config, data = await self._preparation.read(git_path, tree.commit, file)
        source.application_config = data
        rendered = config if is_rendered(config) else None
        return FoundSource(source=source, file=file, rendered=rendered)

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

    async def _write_rendered(
        self, tree: Worktree, render: Callable[[], Mapping[Path, bytes]]
    ) -> None:
        rendered = await run_in_thread(render)
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

    async def take_worktree(
        self, repository_id: str, commit: str, *, reserved: list[Worktree] | None = None
    ) -> Worktree:
        """Returns what `worktree` yields; the caller gives it back."""
        await self._repository(repository_id).commit(commit)
        pool = self._pools[repository_id]
        tree = _pick(reserved, commit) if reserved else await pool.take(commit)
        try:
            async with self._checkouts[repository_id]:
                await _checkout(tree, commit)
        except BaseException:
            self._put(pool, tree)  # it was not handed out: there is nothing to clean
            raise
        finally:
            pool.note_opened()
        return tree

    def _release_idle(self, repository_id: str) -> None:
        for release_idle in self._keepers:
            release_idle(repository_id)

    def _make(self, repository: Repository) -> Worktree:
        trees = self._folder / folder_name(repository.id)
        folders = (trees / str(number) for number in self._numbers)
        folder = next(each for each in folders if not each.exists())
        return Worktree(folder, repository, self._identity)

    def give_back(self, tree: Worktree) -> None:
        """Take back a worktree, to be cleaned for its next user."""
        pool = self._pools[tree.repository.id]
        pool.cleaning += 1
        self._begin(self._put_away(pool, tree))

    async def _put_away(self, pool: WorktreePool, tree: Worktree) -> None:
        try:
            if await self._is_in_use(tree):
                log.info("worktree.in_use", folder=str(tree.folder))
                pool.forget(tree)
                return
            await run_in_thread(tree.remove_opened)
            self._with_secrets.discard(tree)
            if not pool.is_waited_for:  # the waiting user's checkout cleans it as well
                async with self._checkouts[tree.repository.id]:
                    await tree.checkout(tree.commit)
        except (PipecdError, OSError) as error:
            log.warning("worktree.not_cleaned", folder=str(tree.folder), reason=str(error))
            pool.forget(tree)
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
        for extra in pool.put(tree):
            self._begin(extra.discard())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            work.close()  # the next start deletes what is left
            return
        task = self._tasks.create_task(work)
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSource:
    """An application in a worktree."""

    source: DeploymentSource
    file: ApplicationFile
    rendered: ApplicationConfig | None
    """The configuration by which secrets or attachments are to be written into its files."""


class ReservedSources:
    """Sources whose worktrees are there already."""

    def __init__(
        self,
        open_reserved: Callable[
            [ApplicationGitPath, str, str], AbstractAsyncContextManager[DeploymentSource]
        ],
    ) -> None:
        self._open = open_reserved

    def open(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str = ""
    ) -> AbstractAsyncContextManager[DeploymentSource]:
        """Opens the DeploymentSource of a worktree, for the exclusive use of the block."""
        return self._open(git_path, commit, config_filename)


def _pick(trees: list[Worktree], commit: str) -> Worktree:
    """Take a worktree out of some, best one that is at the commit."""
    places = (place for place, each in enumerate(trees) if each.commit == commit)
    return trees.pop(next(places, 0))


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
    return source_in(tree, await find_application(tree.repository, tree.commit, place))


def source_in(tree: Worktree, file: ApplicationFile) -> DeploymentSource:
    """Returns the application of a file, in a worktree; raises GitError if it leads out of it."""
    return DeploymentSource(
        application_directory=str(_resolve(tree.path, file.place.folder)),
        commit_hash=tree.commit,
        application_config=file.data,
        application_config_filename=file.place.filename,
        shared_config_directory=str(tree.path.absolute() / SHARED_CONFIG),
    )


def _resolve(work: Path, folder: str) -> Path:
    """Resolves links of a folder; raises GitError if it leaves the repository."""
    root = os.path.realpath(work)
    found = os.path.realpath(work / folder)
    if found != root and not found.startswith(f"{root}/"):
        raise path_outside_error(folder)
    return work.absolute() / os.path.relpath(found, root)
