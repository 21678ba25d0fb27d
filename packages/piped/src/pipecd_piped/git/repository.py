# SPDX-License-Identifier: Apache-2.0
"""A watched repository: the head of its branch, the files of a commit, and diffs between two.

The first step of the flow. Reads are served from the mirror; the remote is needed for `open`,
`fetch`, `watch`, and for a commit that the mirror lacks. A remote that cannot be reached stops
nothing else: the state says so, and it is retried.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from pipecd_model.gitnames import BadGitNameError, BranchName, CommitHash, check_commit
from pipecd_piped.git.access import RemoteAccess
from pipecd_piped.git.commit import Commit, parse_commit
from pipecd_piped.git.errors import (
    DamagedMirrorError,
    GitError,
    NoBranchError,
    NoCommitError,
    strip_credentials,
)
from pipecd_piped.git.merge import merge
from pipecd_piped.git.mirror import MirrorFolder
from pipecd_piped.git.objects import LARGEST, LONGEST_NAME, Absent, GitObject, Objects
from pipecd_piped.git.process import GitFailedError
from pipecd_piped.git.refs import LocalBranch, local_path
from pipecd_piped.git.state import RepositoryState
from pipecd_piped.git.watch import BranchWatch
from pipecd_runtime.logs import logger
from pipecd_runtime.process import Argument, own, word

log = logger(__name__)

_MISSING: Final = Absent(why="missing")
_LOST: Final = Absent(why="lost")
_PATHS_AT_ONCE: Final = 500
_ARGUMENT_BYTES: Final = 64 * 1024
"""Bytes of arguments for one process; the kernel allows more."""

_SHOWN: Final = 200  # characters of a path in a sentence

_WHOLE_HASHES: Final = frozenset({40, 64})  # digits

_REBUILD_PAUSE_SECONDS: Final = 3600.0
"""Seconds before a mirror that is damaged again is rebuilt again: the disk may be at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFile:
    """A regular file of a commit."""

    path: str
    blob_id: str


class Repository:
    """One repository of the piped's configuration, and the branch that is watched."""

    def __init__(
        self,
        *,
        id: str,
        remote: str,
        branch: str,
        folder: Path,
        access: RemoteAccess | None = None,
        sync_interval: timedelta = timedelta(minutes=1),
    ) -> None:
        self.id = id
        self.remote = strip_credentials(remote)
        self.branch = BranchName(branch)
        self.mirror = MirrorFolder(folder, access or RemoteAccess(address=remote), self.branch)
        self._objects = Objects(str(folder), self.mirror.env)
        path = local_path(remote)
        self._is_local = path is not None
        self._watch = BranchWatch(
            name=id,
            local=None if path is None else LocalBranch(path, self.branch),
            interval_seconds=sync_interval.total_seconds(),
            look=self._look,
            known=self._find_known_head,
        )
        self._fetching = asyncio.Lock()
        self._damaged = False
        self._rebuilt = float("-inf")

    async def __aenter__(self) -> "Repository":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the processes of this repository, and stop watching it."""
        self._watch.close()
        await self._objects.close()

    async def open(self) -> None:
        """Fetch the branch if the mirror has none yet; raises GitError when the remote is away.

        Calling it is optional: `commit` opens the mirror when needed, and `watch` retries.
        """
        async with self._fetching:
            if await self._find_known_head() is None:
                await self._fetch_now()

    async def fetch(self) -> bool:
        """Bring the mirror up to date; returns whether the branch moved."""
        async with self._fetching:
            return await self._fetch_now()

    def report_damage(self) -> None:
        """Have the mirror rebuilt by the next fetch, which is requested now.

        At most once per `_REBUILD_PAUSE_SECONDS`: an object that a new mirror lacks as well must
        not keep the branch from being followed.
        """
        if time.monotonic() - self._rebuilt < _REBUILD_PAUSE_SECONDS:
            log.warning("git.still_damaged", repository=self.id, folder=str(self.mirror.folder))
            return
        self._damaged = True
        self.hint()

    async def head(self) -> Commit:
        """Returns the newest known commit of the branch; raises NoBranchError for none."""
        head = self._watch.head or await self._find_known_head()
        if head is None:
            raise NoBranchError(
                f"nothing is known yet about the branch {self.branch!r} of {self.remote}",
                hint=str(self.state),
            )
        return head

    async def commit(self, commit_hash: str) -> Commit:
        """Returns a commit, fetched if the mirror lacks it; raises NoCommitError."""
        found = await self._find_commit(commit_hash)
        if found is None:
            raise NoCommitError(
                f"there is no commit {commit_hash[:7]} in {self.remote}",
                hint="its branch was rewritten, and the host does not keep it",
            )
        return found

    async def resolve(self, start: str) -> Commit:
        """Returns the commit whose hash begins like this; raises NoCommitError, BadGitNameError.

        Only a whole hash is also looked for at the remote.
        """
        check_commit(start)
        if len(start) in _WHOLE_HASHES:
            return await self.commit(start)
        await self.open()
        command = own("rev-parse", "--quiet", "--verify", "--end-of-options")
        try:
            output = await self._run(*command, word(f"{start.lower()}^{{commit}}"))
        except GitFailedError:
            raise NoCommitError(
                f"{start!r} is the start of no commit in {self.remote}, or of several",
                hint="give more of its digits, or all of them",
            ) from None
        return await self.commit(output.decode().strip())

    async def is_in_branch(self, commit_hash: str) -> bool:
        """Returns whether a commit can be reached from the newest known one of the branch."""
        head = await self.head()
        beyond = f"{CommitHash(head.hash)}..{CommitHash(commit_hash)}"
        command = own("rev-list", "--max-count=1", "--end-of-options")
        return not (await self._run(*command, word(beyond))).strip()

    async def build_merge(self, head: str, branch: str) -> Commit:
        """Returns a merge commit of the head and a commit of another branch, for a preview.

        Raises BadGitNameError, MergeConflictError, NoBranchError when the remote has no such
        branch, and NoCommitError when it does not give the commit.
        """
        wanted, commit_hash = BranchName(branch), CommitHash(head)
        await self.open()
        base = await self.head()
        # Some hosts give a commit only by the name of a branch that it is on.
        async with self._fetching:
            await self.mirror.fetch_branch(wanted)
        await self.commit(commit_hash)
        made = await merge(
            self.mirror.folder, CommitHash(base.hash), commit_hash, env=self.mirror.env
        )
        return await self.commit(made)

    async def list_changed_paths(self, old: str, new: str) -> list[str]:
        """Returns the files that differ between two commits, whatever lies between them.

        When the older one is gone for good, every file of the newer one counts as changed.
        """
        if old == new:
            return []
        if await self._find_commit(old) is None:
            log.warning("git.commit_gone", repository=self.id, commit=old)
            return [file.path for file in await self.files(new)]
        await self.commit(new)
        options = own("-r", "-z", "--name-only", "--no-renames", "--end-of-options")
        commits = (word(CommitHash(old)), word(CommitHash(new)))
        output = await self._run(*own("diff-tree"), *options, *commits)
        return [os.fsdecode(path) for path in output.split(b"\0") if path]

    async def read(self, commit: str, path: str) -> bytes | None:
        """Returns the contents of a file of a commit; None when it has no such file."""
        (found,) = await self.objects(commit, [path])
        if isinstance(found, GitObject):
            return found.data if found.kind == "blob" else None
        if found.why in {"missing", "nowhere"}:
            return None
        raise unreadable(path, found)

    async def objects(
        self, commit: str, paths: Sequence[str], *, largest: int = LARGEST
    ) -> list[GitObject | Absent]:
        """Returns many files of one commit, in the order of `paths`.

        For a file that cannot be read the item is an `Absent` with the reason; the other files are
        not affected.
        """
        commit_hash = CommitHash(commit)
        found = await self._contents([f"{commit_hash}:{path}" for path in paths], largest=largest)
        missing = [path for path, each in zip(paths, found, strict=True) if each == _MISSING]
        lost = await self._find_lost(commit, missing)
        return [
            _LOST if each == _MISSING and path in lost else each
            for path, each in zip(paths, found, strict=True)
        ]

    async def kind(self, commit: str, path: str) -> str | None:
        """Returns `tree` for a folder of a commit, `blob` for a file; None for no such path."""
        (found,) = await self._objects.info([f"{CommitHash(commit)}:{path}"])
        if isinstance(found, GitObject):
            return found.kind
        if found == _LOST or (found == _MISSING and await self._find_lost(commit, [path])):
            self.report_damage()
            raise unreadable(path, _LOST)
        return None

    async def files(self, commit: str, *, ending: str = "") -> list[TreeFile]:
        """Returns all regular files of a commit, or those whose path ends with `ending`."""
        options = own("-r", "-z", "--full-tree", "--end-of-options")
        output = await self._run(*own("ls-tree"), *options, word(CommitHash(commit)))
        found = []
        wanted = ending.encode()
        for entry in output.split(b"\0"):
            if not entry.endswith(wanted):
                continue
            about, _, path = entry.partition(b"\t")
            if about.startswith(b"100"):  # neither links nor other repositories
                blob_id = about.rpartition(b" ")[2].decode()
                found.append(TreeFile(path=os.fsdecode(path), blob_id=blob_id))
        return found

    def hint(self, commit_hash: str = "") -> None:
        """Check the remote now instead of at the next interval: the branch may have moved.

        The commit is where somebody says that it is; git is asked, unless it is the head already.
        """
        self._watch.hint(commit_hash)

    @property
    def state(self) -> RepositoryState:
        """Whether the remote can be reached, since when, and why not."""
        return self._watch.state

    def watch(self) -> AsyncGenerator[Commit, None]:
        """Yields the head, and again whenever it moves. Never raises because of git.

        Any number of tasks may watch: they share one check of the remote. A slow one gets only the
        newest head.
        """
        return self._watch.heads()

    def states(self) -> AsyncGenerator[RepositoryState, None]:
        """Yields the state, and again whenever it changes."""
        return self._watch.states()

    async def _look(self, is_hinted: bool) -> None:
        # To ask first costs less where nothing has moved, which a hint makes improbable.
        if not self._is_local and not self._damaged and not is_hinted:
            known = await self._find_known_head()
            if known is not None and await self.mirror.branch_at_remote() == known.hash:
                self._watch.set_head(known)
                return
        await self.fetch()

    async def _fetch_now(self) -> bool:
        await self.mirror.make()
        before = await self._find_known_head()
        after = await self._fetch_or_rebuild(first=before is None)
        self._watch.set_head(after)
        return before is None or before.hash != after.hash

    async def _fetch_or_rebuild(self, *, first: bool) -> Commit:
        if not self._damaged:
            try:
                await self.mirror.fetch(first=first)
                return await self._read_head()
            except DamagedMirrorError as error:
                log.warning("git.mirror_damaged", repository=self.id, reason=str(error))
        return await self._fetch_anew()

    async def _fetch_anew(self) -> Commit:
        now = time.monotonic()
        if now - self._rebuilt < _REBUILD_PAUSE_SECONDS:
            raise DamagedMirrorError(
                f"the mirror of {self.remote} broke twice in a row",
                hint=f"check the disk that holds {str(self.mirror.folder)!r}",
            )
        await self.mirror.make_anew()
        await self._objects.close()
        self._rebuilt = now
        self._damaged = False
        return await self._read_head()

    async def _find_known_head(self) -> Commit | None:
        """Returns the head of the branch in the mirror; None if there is none or it is damaged."""
        await self.mirror.clean()
        if not (self.mirror.folder / "HEAD").is_file():
            return None
        try:
            return await self._read_head()
        except DamagedMirrorError:
            return None

    async def _read_head(self) -> Commit:
        (found,) = await self._objects.contents([self.branch.ref])
        if isinstance(found, Absent) and found.why == "too large":
            raise GitError(
                f"the newest commit of {self.branch!r} is too large to be read: {found.size} bytes",
                hint="its message cannot be meant",
            )
        if not isinstance(found, GitObject) or found.kind != "commit":
            raise DamagedMirrorError(f"the mirror of {self.remote} lost its branch")
        return parse_commit(found.id, found.data)

    async def _find_commit(self, name: str) -> Commit | None:
        try:
            commit_hash = CommitHash(name)
        except BadGitNameError:
            return None
        if self._watch.head is None:
            await self.open()
        (found,) = await self._contents([commit_hash])
        if found == _LOST:
            raise unreadable(commit_hash, _LOST)
        if found == _MISSING:
            async with self._fetching:
                given = await self.mirror.fetch_commit(commit_hash)
            (found,) = await self._contents([commit_hash]) if given else (found,)
        if not isinstance(found, GitObject) or found.kind != "commit":
            return None
        return parse_commit(found.id, found.data)

    async def _find_lost(self, commit: str, paths: Sequence[str]) -> set[str]:
        """Returns those of the missing paths that the commit does have, but git cannot read.

        An object lost by a broken disk must not look like a file deleted by its author: that would
        change what is deployed.
        """
        lost: set[str] = set()
        for some in _together(paths):
            lost |= await self._find_lost_among(commit, some)
        if lost:
            self.report_damage()
        return lost

    async def _find_lost_among(self, commit: str, paths: Sequence[str]) -> set[str]:
        try:
            command = own("ls-tree", "-z", "--full-tree", "--end-of-options")
            wanted = (word(CommitHash(commit)), *own("--"), *(word(path) for path in paths))
            listed = await self._run(*command, *wanted)
        except DamagedMirrorError:
            if len(paths) == 1:
                return {*paths}
            middle = len(paths) // 2
            return await self._find_lost_among(
                commit, paths[:middle]
            ) | await self._find_lost_among(commit, paths[middle:])
        # Neither links nor other repositories: of those git has no object by this name.
        entries = [entry for entry in listed.split(b"\0") if entry.startswith((b"100", b"040"))]
        return {os.fsdecode(entry.partition(b"\t")[2]) for entry in entries}

    async def _contents(
        self, names: Sequence[str], *, largest: int = LARGEST
    ) -> list[GitObject | Absent]:
        try:
            found = await self._objects.contents(names, largest=largest)
        except DamagedMirrorError:
            self.report_damage()
            raise
        if _LOST in found:
            self.report_damage()
        return found

    async def _run(self, *arguments: Argument) -> bytes:
        try:
            return await self.mirror.run(*arguments)
        except DamagedMirrorError:
            self.report_damage()
            raise


def _together(paths: Sequence[str]) -> Iterator[list[str]]:
    """Yields the paths in portions that fit into the arguments of one process."""
    some: list[str] = []
    size = 0
    for path in paths:
        size += len(os.fsencode(path)) + 1
        if some and (size > _ARGUMENT_BYTES or len(some) == _PATHS_AT_ONCE):
            yield some
            some, size = [], 0
        some.append(path)
    if some:
        yield some


def unreadable(path: str, found: Absent) -> GitError:
    """Returns the error that a user sees for a path of a commit that cannot be read."""
    shown = repr(path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…")
    if found.why == "too large":
        return GitError(
            f"{shown} is too large to be read: {found.size} bytes", hint="is it the right file?"
        )
    if found.why == "unnameable":
        return GitError(
            f"{shown} cannot be read because of its name",
            hint=f"use a path without control characters, of at most {LONGEST_NAME} bytes",
        )
    if found.why == "lost":
        return DamagedMirrorError(
            f"{shown} cannot be read, because the local copy of the repository is damaged",
            hint="it is fetched again",
        )
    return path_outside_error(path)


def path_outside_error(path: str) -> GitError:
    """Returns the error for a path that leaves the repository through a symbolic link."""
    return GitError(
        f"{path!r} leads out of the repository through a symbolic link",
        hint="put the file itself there",
    )
