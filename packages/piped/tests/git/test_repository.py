# SPDX-License-Identifier: Apache-2.0
"""What a repository answers about its commits, from a real mirror of a real remote."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipecd_piped.git import (
    GitError,
    NoBranchError,
    NoCommitError,
    Reachability,
    RemoteError,
    Repository,
)
from pipecd_piped.git.objects import GitObject
from pipecd_test_support.git_remote import GitRemote, Remotes


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Callable[..., Repository]]:
    made: list[Repository] = []

    def make(remote: GitRemote | str, **options: Any) -> Repository:
        repository = Repository(
            id="repo",
            remote=remote if isinstance(remote, str) else remote.remote,
            branch="main",
            folder=tmp_path / "mirrors" / f"repo{len(made)}",
            sync_interval=options.pop("sync_interval", timedelta(minutes=10)),
            **options,
        )
        made.append(repository)
        return repository

    yield make
    for repository in made:
        await repository.close()


async def test_the_head_is_the_newest_commit_of_the_branch(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    newest = remote.commit({"a": "1"}, "Add a\n\nBecause.\n\nIssue: 7\n")
    repository = watched(remote)

    await repository.open()
    head = await repository.head()

    assert (head.hash, head.subject, head.author) == (newest, "Add a", "Ada")
    assert head.trailers == {"Issue": "7"}
    assert head.created_at > 0


async def test_a_fetch_says_whether_the_branch_moved(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    repository = watched(remote)

    assert await repository.fetch()
    assert not await repository.fetch()
    newest = remote.commit({"a": "2"})
    assert await repository.fetch()

    assert (await repository.head()).hash == newest


async def test_files_are_read_as_they_are_in_the_commit(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    first = remote.commit({"a/b.txt": "one", "bin": b"\0\xff\r\n"})
    second = remote.commit({"a/b.txt": "two"})
    repository = watched(remote)
    await repository.open()

    assert await repository.read(first, "a/b.txt") == b"one"
    assert await repository.read(second, "a/b.txt") == b"two"
    assert await repository.read(second, "bin") == b"\0\xff\r\n"
    assert await repository.read(second, "a") is None
    assert await repository.read(second, "no such file") is None


async def test_a_link_inside_the_repository_is_followed_and_one_out_of_it_is_not(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    (remote.path / "inside").symlink_to("real")
    (remote.path / "outside").symlink_to("/etc/hostname")
    (remote.path / "up").symlink_to("../secret")
    (remote.path / "round").symlink_to("round")
    commit = remote.commit({"real": "here"})
    repository = watched(remote)
    await repository.open()

    assert await repository.read(commit, "inside") == b"here"
    for path in ("outside", "up", "round"):
        with pytest.raises(GitError, match="leads out of the repository"):
            await repository.read(commit, path)
    assert await repository.read(commit, "real") == b"here"


async def test_what_leads_nowhere_is_no_file_and_no_damage(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    other = git_remote("other")
    other.commit({"x": "1"})
    remote.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", other.remote, "s")
    (remote.path / "dangling").symlink_to("not/there")
    (remote.path / "through").symlink_to("file/below")
    commit = remote.commit({"file": "1"})
    repository = watched(remote)
    await repository.open()

    for path in ("s", "s/x", "dangling", "through", "file/below"):
        assert await repository.read(commit, path) is None
        assert await repository.kind(commit, path) is None
    assert await repository.kind(commit, "file") == "blob"
    assert await repository.kind(commit, "") == "tree"


async def test_many_files_are_read_at_once_in_the_order_asked_for(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    content = {f"apps/{number}/app.pipecd.yaml": f"name: {number}\n" * 50 for number in range(300)}
    commit = remote.commit(content)
    repository = watched(remote)
    await repository.open()

    found = await repository.objects(commit, list(content))

    read = [each.data.decode() for each in found if isinstance(each, GitObject)]
    assert read == list(content.values())


async def test_all_regular_files_are_listed_with_their_blobs(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    (remote.path / "link").symlink_to("a")
    commit = remote.commit({"a": "same", "b/ö\n.txt": "same"})
    repository = watched(remote)
    await repository.open()

    files = await repository.files(commit)

    assert {file.path for file in files} == {"a", "b/ö\n.txt"}
    assert [file.path for file in await repository.files(commit, ending=".txt")] == ["b/ö\n.txt"]
    assert len({file.blob_id for file in files}) == 1


async def test_changed_paths_names_both_ends_of_a_move(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    """A file that leaves an application's folder changes that application too."""
    remote = git_remote()
    old = remote.commit({"a/file": "content " * 100, "stays": "1"})
    remote.git("mv", "a", "b")
    new = remote.commit()
    repository = watched(remote)
    await repository.open()

    assert sorted(await repository.list_changed_paths(old, new)) == ["a/file", "b/file"]
    assert await repository.list_changed_paths(new, new) == []


async def test_commits_without_a_common_ancestor_can_be_compared(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    old = remote.commit({"a": "1", "b": "1"})
    repository = watched(remote)
    await repository.open()

    remote.git("checkout", "--quiet", "--orphan", "other")
    new = remote.commit({"a": "2"})
    remote.git("branch", "--force", "main")
    await repository.fetch()

    assert (await repository.head()).hash == new
    assert await repository.list_changed_paths(old, new) == ["a"]


async def test_when_the_older_commit_is_gone_every_file_counts_as_changed(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    """A new data folder and a rewritten history: nobody has the old commit any more."""
    remote = git_remote()
    new = remote.commit({"a": "1", "b": "1"})
    repository = watched(remote)
    await repository.open()

    assert sorted(await repository.list_changed_paths("1" * 40, new)) == ["a", "b"]


async def test_a_commit_off_the_branch_is_asked_from_the_remote(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    remote.git("checkout", "--quiet", "-b", "other")
    other = remote.commit({"a": "2"}, "on the side")
    repository = watched(remote)
    await repository.open()

    assert (await repository.commit(other)).subject == "on the side"


@pytest.mark.parametrize("name", ["1" * 40, "", "main", "--help", "HEAD\ninfo HEAD"])
async def test_what_is_no_commit_is_refused_with_a_sentence(
    git_remote: Remotes, watched: Callable[..., Repository], name: str
) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    repository = watched(remote)
    await repository.open()

    with pytest.raises(NoCommitError, match="there is no commit"):
        await repository.commit(name)


async def test_a_commit_asked_for_while_the_remote_is_away_is_not_taken_for_gone(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    new = remote.commit({"a": "1"})
    repository = watched(remote)
    await repository.open()
    remote.path.rename(remote.path.with_name("away"))

    with pytest.raises(RemoteError):
        await repository.list_changed_paths("1" * 40, new)


async def test_whoever_needs_a_commit_need_not_open_first(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    commit = remote.commit({"a": "1"})
    repository = watched(remote)

    async with asyncio.TaskGroup() as tasks:
        found = [tasks.create_task(repository.commit(commit)) for _ in range(3)]

    assert {each.result().hash for each in found} == {commit}


async def test_reading_goes_on_after_git_was_killed(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    commit = remote.commit({"a": "1"})
    repository = watched(remote)
    await repository.open()
    assert await repository.read(commit, "a") == b"1"

    process = repository._objects._process
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)

    assert await repository.read(commit, "a") == b"1"


async def test_a_cancelled_read_leaves_nothing_behind_for_the_next_one(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    content = {f"{number}": str(number) * 100_000 for number in range(1, 6)}
    commit = remote.commit({**content, "a": "right"})
    repository = watched(remote)
    await repository.open()

    for _ in range(5):
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(repository.objects(commit, list(content)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            reading.cancel()
        assert await repository.read(commit, "a") == b"right"


async def test_a_file_of_absurd_size_is_refused_and_the_next_one_is_read(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    commit = remote.commit({"huge": b"0" * (17 * 1024 * 1024), "small": "1"})
    repository = watched(remote)
    await repository.open()

    with pytest.raises(GitError, match="too large"):
        await repository.read(commit, "huge")
    assert await repository.read(commit, "small") == b"1"


async def test_an_empty_repository_is_a_sentence_and_not_a_crash(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    repository = watched(git_remote())

    with pytest.raises(NoBranchError, match="has no branch 'main'"):
        await repository.open()
    with pytest.raises(NoBranchError, match="nothing is known yet"):
        await repository.head()
    assert repository.state.reach is Reachability.OPENING


async def test_a_remote_that_is_not_there_is_a_sentence(
    tmp_path: Path, watched: Callable[..., Repository]
) -> None:
    repository = watched(str(tmp_path / "nothing"))

    with pytest.raises(RemoteError, match="does not appear to be a git repository"):
        await repository.open()


async def test_a_repository_with_sha256_objects_is_mirrored(
    git_remote: Remotes, watched: Callable[..., Repository], tmp_path: Path
) -> None:
    remote = git_remote("old")
    remote.path.joinpath(".git").rename(tmp_path / "unused")
    remote.git("init", "--quiet", "--object-format=sha256", "--initial-branch=main")
    newest = remote.commit({"a": "1"})
    repository = watched(remote)

    await repository.open()

    assert len(newest) == 64
    assert await repository.read(newest, "a") == b"1"


async def test_the_environment_of_whoever_starts_us_does_not_reach_git(
    git_remote: Remotes,
    watched: Callable[..., Repository],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """As when piped is started by a hook of another repository."""
    remote = git_remote()
    commit = remote.commit({"a": "1"})
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    repository = watched(remote)

    await repository.open()

    assert await repository.read(commit, "a") == b"1"
