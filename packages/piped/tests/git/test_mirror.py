# SPDX-License-Identifier: Apache-2.0
"""The bare copy: what breaks it, and that it comes back."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from pipecd_piped.git import DamagedMirrorError, GitError, Repository
from pipecd_test_support.git_remote import Remotes


@pytest.fixture
async def start(git_remote: Remotes, tmp_path: Path) -> AsyncIterator[Callable[[], Repository]]:
    """Start over with the mirror that is there."""
    git_remote().commit({"a": "1", "b/c": "2"})
    made: list[Repository] = []

    def make() -> Repository:
        remote, folder = str(tmp_path / "remote"), tmp_path / "mirrors" / "repo"
        made.append(Repository(id="repo", remote=remote, branch="main", folder=folder))
        return made[-1]

    yield make
    for repository in made:
        await repository.close()


@pytest.fixture
async def repository(start: Callable[[], Repository]) -> Repository:
    made = start()
    await made.open()
    return made


def spoil_objects(mirror: Path) -> None:
    for folder, _, files in os.walk(mirror / "objects"):
        for name in files:
            file = Path(folder, name)
            file.chmod(0o644)
            file.write_bytes(b"garbage" * 10)


def lose_objects(mirror: Path) -> None:
    for folder, _, files in os.walk(mirror / "objects"):
        for name in files:
            Path(folder, name).unlink()


def lose_head(mirror: Path) -> None:
    (mirror / "HEAD").unlink()


def spoil_head(mirror: Path) -> None:
    (mirror / "HEAD").write_bytes(b"\0\0\0")


def spoil_ref(mirror: Path) -> None:
    (mirror / "refs" / "heads" / "main").write_bytes(b"")


def spoil_config(mirror: Path) -> None:
    (mirror / "config").write_bytes(b"[[[")


@pytest.mark.parametrize(
    "spoil", [spoil_objects, lose_objects, lose_head, spoil_head, spoil_ref, spoil_config]
)
async def test_a_mirror_that_broke_while_piped_was_away_is_made_anew(
    start: Callable[[], Repository], repository: Repository, spoil: Callable[[Path], None]
) -> None:
    head = await repository.head()
    spoil(repository.mirror.folder)
    restarted = start()

    async with asyncio.timeout(30), aclosing(restarted.watch()) as heads:
        found = await anext(heads)

    assert found.hash == head.hash
    assert await restarted.read(head.hash, "b/c") == b"2"
    assert len(await restarted.files(head.hash)) == 2
    assert [each.name for each in restarted.mirror.folder.parent.iterdir()] == ["repo"]


async def test_one_broken_file_is_noticed_when_it_is_read_and_healed(
    repository: Repository, git_remote: Remotes
) -> None:
    """A fetch that finds nothing new does not look at what is there already."""
    head = await repository.head()
    (file,) = [each for each in await repository.files(head.hash) if each.path == "a"]
    await repository.close()
    loose = _unpacked(repository.mirror.folder, file.blob_id)
    loose.chmod(0o644)
    loose.write_bytes(b"garbage")

    with pytest.raises(DamagedMirrorError):
        await repository.read(head.hash, "a")
    await repository.fetch()

    assert await repository.read(head.hash, "a") == b"1"


async def test_a_commit_never_appears_before_its_files(
    repository: Repository, git_remote: Remotes
) -> None:
    """Git unpacks a small fetch object by object, the commit first: readers see the middle."""
    pushed = git_remote().commit({"a": "2"})

    await repository.fetch()

    assert await repository.read(pushed, "a") == b"2"
    objects = repository.mirror.folder / "objects"
    assert {each.name for each in objects.iterdir()} <= {"pack", "info"}


async def test_a_broken_mirror_is_kept_while_the_remote_is_away(
    repository: Repository, tmp_path: Path
) -> None:
    """Half of something is more than nothing."""
    head = await repository.head()
    repository.report_damage()
    (tmp_path / "remote").rename(tmp_path / "away")

    with pytest.raises(GitError):
        await repository.fetch()

    assert await repository.read(head.hash, "a") == b"1"


async def test_a_lock_that_a_killed_git_left_does_not_last(
    repository: Repository, git_remote: Remotes
) -> None:
    lock = repository.mirror.folder / "refs" / "heads" / "main.lock"
    lock.touch()
    old = time.time() - 3600
    os.utime(lock, (old, old))
    pushed = git_remote().commit({"a": "2"})

    with pytest.raises(GitError):
        await repository.fetch()
    await repository.fetch()

    assert (await repository.head()).hash == pushed


async def test_many_small_fetches_are_packed_and_nothing_is_lost(
    repository: Repository, git_remote: Remotes
) -> None:
    """A commit that a forced push took off the branch is still what runs somewhere."""
    remote = git_remote()
    first = (await repository.head()).hash
    dropped = remote.commit({"a": "dropped"})
    await repository.fetch()
    remote.git("reset", "--quiet", "--hard", first)
    for number in range(60):
        remote.commit({"a": f"new {number}"})
        await repository.fetch()

    packs = (repository.mirror.folder / "objects" / "pack").glob("*.pack")
    assert len(list(packs)) < 51
    assert await repository.read(dropped, "a") == b"dropped"
    assert await repository.read(first, "a") == b"1"


async def test_a_branch_that_stands_where_a_folder_of_branches_stood_is_mirrored(
    start: Callable[..., Repository], repository: Repository, git_remote: Remotes, tmp_path: Path
) -> None:
    """Somebody changed the configured branch from `main` to `main/next`."""
    remote = git_remote()
    remote.git("branch", "--move", "main", "other")
    remote.git("checkout", "--quiet", "-b", "main/next")
    pushed = remote.commit({"a": "next"})
    async with Repository(
        id="repo", remote=remote.remote, branch="main/next", folder=repository.mirror.folder
    ) as moved:
        await moved.open()

        assert (await moved.head()).hash == pushed


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a repository to somebody else")
async def test_a_repository_of_another_user_is_told_with_what_to_do(
    start: Callable[[], Repository], tmp_path: Path
) -> None:
    for folder, _, _ in os.walk(tmp_path / "remote"):
        os.chown(folder, 12345, 12345)

    with pytest.raises(GitError, match="dubious ownership") as failed:
        await start().fetch()

    assert "safe.directory" in failed.value.hint


def _unpacked(mirror: Path, blob_id: str) -> Path:
    """Turn the mirror's packs into one file per object; answers the file of this one."""
    for pack in (mirror / "objects" / "pack").glob("*.pack"):
        content = pack.read_bytes()
        for file in pack.parent.glob(f"{pack.stem}.*"):
            file.unlink()
        subprocess.run(
            ["git", f"--git-dir={mirror}", "unpack-objects", "-q"], input=content, check=True
        )
    return mirror / "objects" / blob_id[:2] / blob_id[2:]
