# SPDX-License-Identifier: Apache-2.0
"""A branch on this machine is seen moving because the kernel says so, not by looking often."""

import asyncio
import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from asyncinotify import Inotify

from pipecd_piped.git.refs import LocalBranch, LocalBranchWatch
from pipecd_test_support.git_remote import GitRemote, Remotes

LIMIT = 30.0
NEVER = 3600.0


async def wait_moved(branch: LocalBranch, watch: LocalBranchWatch, move: Callable[[], None]) -> int:
    """Makes a move while the watch waits; returns how often it waited until the move was seen."""
    before = branch.signature()
    first = asyncio.create_task(watch.wait())
    await asyncio.sleep(0)  # it watches from now on
    move()
    count = 1
    async with asyncio.timeout(LIMIT):
        await first
        while branch.signature() == before:
            await watch.wait()
            count += 1
    return count


def commit(remote: GitRemote) -> None:
    remote.commit({"a": "changed"})


def commit_and_pack(remote: GitRemote) -> None:
    remote.commit({"a": "changed"})
    remote.git("pack-refs", "--all")


def pack_again(remote: GitRemote) -> None:
    """Moves a branch that has no file of its own, as a fetch into a packed repository does."""
    remote.git("pack-refs", "--all")
    remote.commit({"a": "changed"})
    remote.git("pack-refs", "--all")


@pytest.mark.parametrize("move", [commit, commit_and_pack, pack_again])
async def test_a_move_wakes_the_watch(
    git_remote: Remotes, move: Callable[[GitRemote], None]
) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    branch = LocalBranch(remote.path, "main")
    watch = LocalBranchWatch(branch, pause_seconds=NEVER)
    await wait_moved(branch, watch, lambda: move(remote))
    watch.close()


async def test_a_branch_whose_folder_does_not_exist_yet_is_seen(git_remote: Remotes) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    branch = LocalBranch(remote.path, "team/feature")
    watch = LocalBranchWatch(branch, pause_seconds=NEVER)
    await wait_moved(branch, watch, lambda: _git(remote, "branch", "team/feature"))
    remote.git("checkout", "--quiet", "team/feature")
    await wait_moved(branch, watch, lambda: commit(remote))
    watch.close()


async def test_a_folder_that_is_replaced_is_watched_again(
    git_remote: Remotes, tmp_path: Path
) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    branch = LocalBranch(remote.path, "main")
    watch = LocalBranchWatch(branch, pause_seconds=NEVER)

    def replace() -> None:
        shutil.copytree(remote.path, tmp_path / "copy")
        shutil.rmtree(remote.path)
        (tmp_path / "copy").rename(remote.path)

    await wait_moved(branch, watch, replace)
    await wait_moved(branch, watch, lambda: commit(remote))
    watch.close()


async def test_without_a_watch_of_the_kernel_the_files_are_looked_at(git_remote: Remotes) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    branch = LocalBranch(remote.path, "main")

    def refuse() -> Inotify:
        raise OSError(errno.EMFILE, "the user has too many watches")

    watch = LocalBranchWatch(branch, pause_seconds=NEVER, open_inotify=refuse)
    await wait_moved(branch, watch, lambda: commit(remote))


async def test_a_file_system_that_reports_nothing_is_looked_at(git_remote: Remotes) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    branch = LocalBranch(remote.path, "main")
    branch.signature()
    watch = LocalBranchWatch(branch, pause_seconds=0.01)
    async with asyncio.timeout(LIMIT):
        await watch.wait()  # nothing has changed, and it returns all the same
    watch.close()


async def test_a_closed_watch_leaves_no_descriptor_open(git_remote: Remotes) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    branch = LocalBranch(remote.path, "main")
    branch.signature()
    before = _count_inotify()
    watch = LocalBranchWatch(branch, pause_seconds=0.01)
    await watch.wait()
    assert _count_inotify() == before + 1
    watch.close()
    assert _count_inotify() == before


def _git(remote: GitRemote, *arguments: str) -> None:
    remote.git(*arguments)


def _count_inotify() -> int:
    count = 0
    for each in Path("/proc/self/fd").iterdir():
        try:
            count += "inotify" in str(each.readlink())
        except OSError:
            continue
    return count
