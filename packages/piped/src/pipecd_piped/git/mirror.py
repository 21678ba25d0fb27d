# SPDX-License-Identifier: Apache-2.0
"""The mirror of a repository: a bare clone that is fetched, and rebuilt when it is damaged.

Only the watched branch is fetched. Its objects are never garbage collected: the worktrees of
running stages borrow them, and a rollback needs commits that a forced push took off the branch.
"""

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from pipecd_model.gitnames import BranchName, CommitHash, RemoteAddress
from pipecd_piped.git import process as git
from pipecd_piped.git.access import RemoteAccess
from pipecd_piped.git.cleaning import clean_mirror, write_settings
from pipecd_piped.git.errors import (
    DamagedMirrorError,
    GitError,
    NoBranchError,
    RemoteError,
    advice,
    says_damaged,
    says_no_branch,
    strip_credentials,
    summarize_stderr,
)
from pipecd_piped.git.folder import remove
from pipecd_runtime.logs import logger
from pipecd_runtime.process import Argument, join_option, own, word

log = logger(__name__)

FIRST_FETCH_SECONDS: Final = 3600.0
LATER_FETCH_SECONDS: Final = 300.0
"""Time limits in seconds. A first fetch may bring gigabytes; a later one that takes this long
hangs."""

_STALE_LOCK_SECONDS: Final = 60.0
"""Seconds. We fetch one at a time: an older lock was left by a git that was killed."""

# The errors of hosts that lack a requested commit, or serve commits only by a branch's name.
_NOT_GIVEN: Final = re.compile(r"not our ref|unadvertised object|no such remote ref|bad object")

_IN_ONE_PIECE: Final = {"fetch.unpackLimit": "1"}
"""Git writes the objects of a small fetch one by one, commits before their files. Another
process that reads meanwhile, or after a kill in between, would see a commit that lacks its files.
A pack appears whole or not at all."""

_MANY_PACKS: Final = 50
_MANY_LOOSE: Final = 27  # of 256 folders one is counted: about 7000 loose objects


class MirrorFolder:
    """One bare repository under the data folder."""

    def __init__(self, folder: Path, access: RemoteAccess, branch: BranchName) -> None:
        self.folder = folder
        self._access = access
        self._branch = branch
        settings = {"remote.origin.url": access.address, **_IN_ONE_PIECE, **access.settings}
        self.env = git.environment()
        # Only the git processes that talk to the remote get the credentials.
        self._remote_env = git.environment(
            settings, access.variables, helper=RemoteAddress(access.address).helper
        )
        self._is_clean = False

    @property
    def remote(self) -> str:
        """The remote's address without the credentials in it."""
        return strip_credentials(self._access.address)

    async def run(
        self,
        *arguments: Argument,
        limit: float = 60,
        memory: int | None = git.MOST_MEMORY,
        most_output: int = git.MOST_OUTPUT,
    ) -> bytes:
        """Run git in the mirror without credentials; raises DamagedMirrorError or GitError."""
        try:
            return await self._git(
                *arguments, env=self.env, limit=limit, memory=memory, most_output=most_output
            )
        except git.GitFailedError as error:
            raise self.explain(error) from None

    def explain(self, error: git.GitFailedError) -> GitError:
        """Returns DamagedMirrorError for a failure that shows damage, the given error otherwise."""
        if says_damaged(error.stderr):
            return DamagedMirrorError(
                f"the mirror of {self.remote} is broken: {summarize_stderr(error.stderr)}"
            )
        return error

    async def clean(self) -> None:
        """Remove foreign files, refs and settings from the mirror; only the first call does it."""
        if self._is_clean:
            return
        self._is_clean = True
        if cleaned := await asyncio.to_thread(clean_mirror, self.folder, self._branch):
            log.warning("git.mirror_cleaned", folder=str(self.folder), cleaned=cleaned)

    async def make(self) -> None:
        """Create the mirror if there is none; an existing one is used unchanged."""
        if (self.folder / "HEAD").is_file() and (self.folder / "objects").is_dir():
            return
        await self._init("sha1")

    async def make_anew(self) -> None:
        """Rebuild the mirror from the remote; the old one stays until the new one is complete."""
        log.warning("git.mirror_made_anew", folder=str(self.folder), remote=self.remote)
        fresh = MirrorFolder(self._path_beside("new"), self._access, self._branch)
        await fresh._init("sha1")
        await fresh.fetch(first=True)
        broken = self._path_beside("broken")
        await asyncio.to_thread(remove, broken)
        if self.folder.exists():
            self.folder.rename(broken)
        fresh.folder.rename(self.folder)
        await asyncio.to_thread(remove, broken)

    async def branch_at_remote(self) -> str:
        """Returns the hash of the branch at the remote; raises NoBranchError or RemoteError."""
        wanted = self._branch.ref
        found = await self._run_at_remote(
            *own("ls-remote", "--quiet", "--end-of-options", "origin"), word(wanted), limit=60
        )
        for line in found.decode(errors="replace").splitlines():
            commit_hash, _, ref = line.partition("\t")
            if ref == wanted:
                return commit_hash
        raise self._no_branch(self._branch)

    async def fetch(self, *, first: bool) -> None:
        """Fetch the branch, also after a forced push; raises RemoteError or DamagedMirrorError."""
        kept = f"+{self._branch.ref}:{self._branch.ref}"
        try:
            await self._fetch(kept, first=first)
        except git.GitFailedError as error:
            if "mismatched algorithms" in error.stderr and first:
                await self._init("sha256")
                await self._fetch(kept, first=first)
                return
            raise
        await self._tidy()

    async def fetch_branch(self, branch: BranchName) -> None:
        """Fetch the commits of another branch without a local ref; raises NoBranchError."""
        await self._fetch(f"{branch.ref}:", first=False, branch=branch)

    async def fetch_commit(self, commit_hash: CommitHash) -> bool:
        """Fetch one commit that is not on the branch; returns whether the host serves it."""
        try:
            await self._fetch(f"{commit_hash}:", first=False)
        except NoBranchError:
            return False
        except RemoteError as error:
            if _NOT_GIVEN.search(str(error)):
                return False
            raise
        return True

    async def _fetch(self, what: str, *, first: bool, branch: BranchName | None = None) -> None:
        """Fetch one refspec; its right side is our ref, or empty for no local ref."""
        tell = self._progress() if first else None
        try:
            await self._run_at_remote(
                *own("fetch", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
                *own("--refmap=", "--progress" if first else "--quiet"),
                *own("--end-of-options", "origin"),
                word(what),
                limit=FIRST_FETCH_SECONDS if first else LATER_FETCH_SECONDS,
                on_progress=tell,
                branch=branch,
            )
        except GitError:
            self._remove_stale_locks()
            raise

    async def _run_at_remote(
        self,
        *arguments: Argument,
        limit: float,
        on_progress: Callable[[str], None] | None = None,
        branch: BranchName | None = None,
    ) -> bytes:
        try:
            return await self._git(
                *arguments, env=self._remote_env, limit=limit, on_progress=on_progress, memory=None
            )
        except git.GitFailedError as error:
            if says_no_branch(error.stderr):
                raise self._no_branch(branch or self._branch) from None
            if "mismatched algorithms" in error.stderr:
                raise
            meaning = self.explain(error)
            if meaning is not error:
                raise meaning from None
            raise RemoteError(
                f"{self.remote}: {summarize_stderr(error.stderr)}", hint=advice(error.stderr)
            ) from None

    async def _git(
        self,
        *arguments: Argument,
        env: dict[str, str],
        limit: float,
        on_progress: Callable[[str], None] | None = None,
        memory: int | None = git.MOST_MEMORY,
        most_output: int = git.MOST_OUTPUT,
    ) -> bytes:
        return await git.run(
            *arguments,
            env=env,
            options=(join_option("--git-dir=", self.folder),),
            limit=limit,
            on_progress=on_progress,
            memory=memory,
            most_output=most_output,
        )

    def _path_beside(self, what: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{what}")

    async def _init(self, object_format: str) -> None:
        await asyncio.to_thread(remove, self.folder)
        self.folder.mkdir(parents=True, mode=0o700)
        await git.run(
            *own("init", "--bare", "--quiet", "--template="),
            join_option("--object-format=", object_format),
            join_option("--initial-branch=", self._branch),
            *own("--end-of-options"),
            word(self.folder.absolute()),
            env=self.env,
        )
        write_settings(self.folder, object_format=object_format)

    async def _tidy(self) -> None:
        """Repack many small packs or loose objects, dropping nothing, before reads get slow."""
        packs, loose = _count(self.folder / "objects")
        if loose > _MANY_LOOSE:
            # Merges for previews are on no branch: `-k` keeps unreachable objects as well.
            how = own("repack", "-a", "-d", "-k", "-q")
        elif packs > _MANY_PACKS:
            how = own("repack", "--geometric=2", "-d", "-q")
        else:
            return
        # A repack needs memory for all objects; the usual limit is meant for one commit.
        await self.run(*how, limit=FIRST_FETCH_SECONDS, memory=None)

    def _remove_stale_locks(self) -> None:
        for lock in _locks(self.folder):
            try:
                if time.time() - lock.stat().st_mtime > _STALE_LOCK_SECONDS:
                    lock.unlink()
                    log.warning("git.stale_lock_removed", file=str(lock))
            except OSError:
                continue  # its owner was faster

    def _progress(self) -> Callable[[str], None]:
        def tell(line: str) -> None:
            log.info("git.cloning", remote=self.remote, progress=line)

        return tell

    def _no_branch(self, branch: BranchName) -> NoBranchError:
        return NoBranchError(
            f"{self.remote} has no branch {branch!r}",
            hint="it was deleted, or nothing has been pushed yet",
        )


def _locks(folder: Path) -> Iterator[Path]:
    yield from folder.glob("*.lock")
    yield from (folder / "refs").rglob("*.lock")
    yield from (folder / "objects" / "info").glob("**/*.lock")


def _count(objects: Path) -> tuple[int, int]:
    packs = [name for name in os.listdir(objects / "pack") if name.endswith(".pack")]  # noqa: PTH208 - names are enough
    sample = objects / "17"
    return len(packs), len(os.listdir(sample)) if sample.is_dir() else 0  # noqa: PTH208 - as above
