# SPDX-License-Identifier: Apache-2.0
"""What a branch would be after a merge, made in the mirror alone."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipecd_piped.git import MergeConflictError, NoCommitError, Repository
from pipecd_test_support.git_remote import GitRemote, Remotes


@pytest.fixture
async def repository(git_remote: Remotes, tmp_path: Path) -> AsyncIterator[Repository]:
    git_remote().commit({"a": "1"})
    async with Repository(
        id="repo", remote=str(tmp_path / "remote"), branch="main", folder=tmp_path / "mirror"
    ) as made:
        await made.open()
        yield made


def branch(remote: GitRemote, name: str, files: dict[str, str]) -> str:
    remote.git("switch", "--quiet", "--create", name)
    made: str = remote.commit(files)
    remote.git("switch", "--quiet", "main")
    return made


async def test_a_merge_has_the_changes_of_both(repository: Repository, git_remote: Remotes) -> None:
    remote = git_remote()
    head = branch(remote, "next", {"new": "theirs"})
    remote.commit({"other": "ours"})
    await repository.fetch()

    merged = await repository.build_merge(head, "next")

    assert await repository.read(merged.hash, "new") == b"theirs"
    assert await repository.read(merged.hash, "other") == b"ours"
    assert (await repository.build_merge(head, "next")).hash == merged.hash


async def test_the_branch_and_the_remote_are_left_alone(
    repository: Repository, git_remote: Remotes
) -> None:
    remote = git_remote()
    head = branch(remote, "next", {"new": "theirs"})
    before = (await repository.head()).hash

    await repository.build_merge(head, "next")

    assert (await repository.head()).hash == before
    assert remote.git("rev-parse", "main") == before


async def test_a_conflict_names_the_files(repository: Repository, git_remote: Remotes) -> None:
    remote = git_remote()
    head = branch(remote, "next", {"a": "theirs"})
    remote.commit({"a": "ours"})
    await repository.fetch()

    with pytest.raises(MergeConflictError, match="both changed a"):
        await repository.build_merge(head, "next")


async def test_a_commit_that_nobody_has_is_said_so(repository: Repository) -> None:
    with pytest.raises(NoCommitError):
        await repository.build_merge("0" * 39 + "1", "main")


async def test_a_commit_below_a_branch_is_found_through_the_branch(
    repository: Repository, git_remote: Remotes
) -> None:
    """Hosts refuse to give a commit by its hash when no branch stands at it."""
    remote = git_remote()
    head = branch(remote, "next", {"new": "1"})
    remote.git("switch", "--quiet", "next")
    remote.commit({"new": "2"})
    remote.git("switch", "--quiet", "main")

    merged = await repository.build_merge(head, "next")

    assert await repository.read(merged.hash, "new") == b"1"
