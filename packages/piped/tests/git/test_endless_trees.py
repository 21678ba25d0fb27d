# SPDX-License-Identifier: Apache-2.0
"""Commits of a few kilobytes that stand for billions of files: trees that name one tree often."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipecd_piped.git import DamagedMirrorError, GitError, Repository
from pipecd_piped.git.process import environment, run
from pipecd_runtime.process import join_option, own, word
from pipecd_test_support.git_remote import GitRemote, Remotes

LEVELS = 10
EACH = 10
IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")


def push_endless(remote: GitRemote) -> str:
    """Push a commit with 10¹⁰ files; answers its hash."""

    def make(command: str, text: str) -> str:
        made = subprocess.run(
            ["git", "-C", remote.remote, *IDENTITY, *command.split()],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        return made.stdout.strip()

    entry = "100644 blob " + make("hash-object -w --stdin", "x")
    for _ in range(LEVELS):
        tree = make("mktree", "".join(f"{entry}\tentry-{each}\n" for each in range(EACH)))
        entry = f"040000 tree {tree}"
    commit = make(f"commit-tree {tree} -p refs/heads/main", "endless")
    make(f"update-ref refs/heads/main {commit}", "")
    return commit


@pytest.fixture
async def repository(
    git_remote: Remotes, tmp_path: Path
) -> AsyncIterator[tuple[Repository, str, str]]:
    remote = git_remote()
    before = remote.commit({"a": "1"})
    endless = push_endless(remote)
    made = Repository(id="repo", remote=remote.remote, branch="main", folder=tmp_path / "mirror")
    async with made:
        await made.open()
        yield made, before, endless


async def test_files_without_end_are_not_listed(repository: tuple[Repository, str, str]) -> None:
    there, before, endless = repository

    with pytest.raises(GitError, match=r"git ls-tree has more than 128 MiB to say"):
        await there.files(endless, ending=".pipecd.yaml")
    with pytest.raises(GitError, match="git diff-tree") as told:
        await there.list_changed_paths(before, endless)
    assert not isinstance(told.value, DamagedMirrorError), "the mirror would be made anew"

    assert [file.path for file in await there.files(before)] == ["a"]


async def test_a_git_that_needs_more_memory_than_it_may_ends(
    repository: tuple[Repository, str, str], tmp_path: Path
) -> None:
    there, _, endless = repository

    with pytest.raises(GitError, match="Out of memory"):
        await run(
            *own("read-tree", "--end-of-options"),
            word(endless),
            env=environment(extra={"GIT_INDEX_FILE": str(tmp_path / "index")}),
            options=(join_option("--git-dir=", there.mirror.folder),),
            limit=120,
            memory=64 * 2**20,
        )
