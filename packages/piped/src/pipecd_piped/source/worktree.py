# SPDX-License-Identifier: Apache-2.0
"""A worktree: a writable checkout of a whole commit, reused by the next checkout.

Its last user may have changed anything in it: a checkout makes it exactly the commit again. The
tree's `.git` is its own and borrows the mirror's objects, so that nothing done in the tree reaches
the mirror. The index that a checkout relies on lies outside of the tree.
"""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from pipecd_model.errors import SourceError
from pipecd_model.gitnames import CommitHash
from pipecd_piped.git import DamagedMirrorError, GitError, Repository
from pipecd_piped.git import process as git
from pipecd_piped.git.folder import remove
from pipecd_piped.source.dotgit import GitIdentity, write_dot_git
from pipecd_piped.source.in_use import find_in_use
from pipecd_runtime.logs import logger
from pipecd_runtime.process import Argument, own, word

log = logger(__name__)

_CHECKOUT_SECONDS: Final = 600.0
"""Seconds for a checkout; a large one on a slow disk takes minutes."""

T = TypeVar("T")


class Worktree:
    """A worktree on disk. One user at a time; the pool ensures that."""

    def __init__(self, folder: Path, repository: Repository, identity: GitIdentity) -> None:
        self.folder = folder
        self.path = folder / "work"
        self.repository = repository
        self.commit = ""
        self.opened: tuple[Path, ...] = ()
        """Files that were rendered with decrypted secrets or attachments."""
        self._identity = identity
        self._untouched: int | None = None

    async def checkout(self, commit: str) -> None:
        """Make the worktree exactly the commit; raises SourceError."""
        untouched = await self._is_untouched()
        if untouched and self.commit == commit:
            return
        self.commit, self._untouched = "", None
        try:
            await self._restore(commit, clean=not untouched)
        except DamagedMirrorError:
            raise
        except (GitError, OSError) as error:
            # The last user left something that git cannot undo: recreate the worktree.
            log.warning("worktree.made_anew", folder=str(self.folder), reason=str(error))
            await self._recreate(commit)
        self._untouched = await run_in_thread(fingerprint, self.path)
        self.commit = commit

    async def _is_untouched(self) -> bool:
        known = self._untouched
        return known is not None and await run_in_thread(fingerprint, self.path) == known

    def remove_opened(self) -> None:
        """Delete the files with decrypted secrets; the next checkout restores the commit's."""
        for file in self.opened:
            file.unlink(missing_ok=True)
        self.opened = ()

    async def discard(self) -> None:
        """Delete the worktree from disk."""
        await run_in_thread(delete_worktree, self.folder)

    async def _recreate(self, commit: str) -> None:
        try:
            await run_in_thread(remove, self.folder)
            await self._restore(commit, clean=False)
        except OSError as error:
            raise SourceError(
                f"cannot write the files of {commit[:7]} to {str(self.folder)!r}: {error}",
                hint="check the disk and who owns the data folder",
            ) from error

    async def _restore(self, commit: str, *, clean: bool) -> None:
        used = await run_in_thread(_prepare, self.folder, self.path, clean)
        command = own("read-tree", "--reset", "-u", "--end-of-options")
        await self._git(*command, word(CommitHash(commit)))
        if used:
            await self._git(*own("clean", "-ffdxq"))
        index = self.folder / "index"
        await run_in_thread(
            write_dot_git, self.path, commit, self.repository, self._identity, index
        )

    async def _git(self, *arguments: Argument) -> None:
        mirror = self.repository.mirror
        env = mirror.env | {
            "GIT_DIR": str(mirror.folder.absolute()),
            "GIT_WORK_TREE": str(self.path.absolute()),
            "GIT_INDEX_FILE": str((self.folder / "index").absolute()),
        }
        options = (*own("-C"), word(self.path))
        try:
            await git.run(*arguments, env=env, options=options, limit=_CHECKOUT_SECONDS)
        except git.GitFailedError as error:
            raise mirror.explain(error) from None


def _prepare(folder: Path, work: Path, clean: bool) -> bool:
    """Prepare the folder for a checkout; returns whether it may hold untracked files."""
    (folder / "index.lock").unlink(missing_ok=True)
    if work.is_symlink() or not work.is_dir():
        remove(work)
        (folder / "index").unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        work.mkdir(mode=0o700)
        return False
    if not clean:
        remove(work / ".git")
        return False
    _put_in_order(work, usual=stat.S_IMODE(folder.stat().st_mode))
    return True


def _put_in_order(work: Path, *, usual: int) -> None:
    """Undo changes that git overlooks; git writes deleted files of the commit again.

    Git knows no permission but the one to execute, compares times by the second, leaves pipes and
    sockets where they are, and deletes a folder that is a repository, but not a repository in a
    folder of the commit. `usual` is the mode that a new folder gets here.
    """
    work.chmod(0o700)
    waiting = [str(work)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            found = list(entries)
        for entry in found:
            about = entry.stat(follow_symlinks=False).st_mode
            rights = stat.S_IMODE(about)
            if entry.name == ".git":
                remove(Path(entry.path))
            elif stat.S_ISDIR(about):
                if rights != usual:
                    os.chmod(entry.path, usual)  # noqa: PTH101 - thousands of them
                waiting.append(entry.path)
            elif stat.S_ISLNK(about):
                continue
            elif not stat.S_ISREG(about) or rights not in {usual, usual & 0o666}:
                os.unlink(entry.path)  # noqa: PTH108 - as above


def fingerprint(work: Path) -> int | None:
    """Returns a hash that changes with anything in the tree; None when it cannot be read.

    It is computed from the kernel's metadata of each file. The ctime cannot be set by a process, so
    that no change can go unnoticed.
    """
    seen = 0
    waiting = [str(work)]
    try:
        while waiting:
            folder = waiting.pop()
            about = os.stat(folder, follow_symlinks=False)  # noqa: PTH116 - thousands of them
            seen = hash((seen, folder, _about(about)))
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    seen = hash((seen, entry.path, _about(entry.stat(follow_symlinks=False))))
    except OSError:
        return None
    return seen


def _about(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


async def run_in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Run a function in a thread; when cancelled, wait for its end before raising.

    A thread cannot be stopped, and the next user of the same files must not run beside it.
    """
    running = asyncio.get_running_loop().run_in_executor(None, function, *arguments)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def delete_worktree(folder: Path) -> None:
    """Delete a worktree; one that cannot be deleted is logged, left, and never used again."""
    try:
        remove(folder)
    except OSError as error:
        log.warning("worktree.not_deleted", folder=str(folder), reason=str(error))


def delete_orphans(folder: Path) -> set[Path]:
    """Delete the worktrees of an earlier piped; returns those that a process still works in."""
    trees = {tree for repository in _folders(folder) for tree in _folders(repository)}
    kept = find_in_use(trees)
    for each in (*(trees - kept), *_others(folder)):
        delete_worktree(each)
    for tree in kept:
        log.info("worktree.in_use", folder=str(tree))
    return kept


def _folders(folder: Path) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    return [each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]


def _others(folder: Path) -> list[Path]:
    """Returns files and links among the worktrees, which do not belong there."""
    among = [folder, *_folders(folder)]
    return [
        each
        for parent in among
        if parent.is_dir()
        for each in parent.iterdir()
        if each.is_symlink() or not each.is_dir()
    ]
