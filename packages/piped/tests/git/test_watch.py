# SPDX-License-Identifier: Apache-2.0
"""A watched branch: seen moving at once, and seen again after every kind of trouble."""

import asyncio
import resource
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipecd_piped.git import Commit, Reachability, Repository
from pipecd_piped.git.access import RemoteAccess
from pipecd_piped.git.watch import BranchWatch
from pipecd_test_support.git_remote import Remotes

LIMIT = 30.0


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Callable[..., Repository]]:
    made: list[Repository] = []

    def make(remote: str, branch: str = "main", **options: Any) -> Repository:
        repository = Repository(
            id="repo",
            remote=remote,
            branch=branch,
            folder=tmp_path / "mirrors" / "repo",
            sync_interval=options.pop("sync_interval", timedelta(minutes=10)),
            **options,
        )
        made.append(repository)
        return repository

    yield make
    for repository in made:
        await repository.close()


async def following(iterator: AsyncGenerator[Any, None]) -> Any:
    async with asyncio.timeout(LIMIT):
        return await anext(iterator)


async def until(repository: Repository, reach: Reachability) -> str:
    async with asyncio.timeout(LIMIT), aclosing(repository.states()) as states:
        async for state in states:
            if state.reach is reach:
                return str(state)
    raise AssertionError("the states ended")


async def test_each_move_of_a_local_branch_is_seen_without_waiting_for_the_interval(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    first = remote.commit({"a": "1"})
    repository = watched(remote.remote)

    async with aclosing(repository.watch()) as heads:
        assert (await following(heads)).hash == first
        for number in range(2, 5):
            pushed = remote.commit({"a": str(number)})
            assert (await following(heads)).hash == pushed


@pytest.mark.parametrize("shape", ["bare", "file url", "linked work tree", "without .git"])
async def test_local_repositories_of_every_shape_are_watched(
    git_remote: Remotes, watched: Callable[..., Repository], tmp_path: Path, shape: str
) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    address = remote.remote
    if shape == "file url":
        address = f"file://{remote.remote}"
    elif shape == "linked work tree":
        remote.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
        address = str(tmp_path / "linked")
    elif shape in {"bare", "without .git"}:
        remote.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
        remote.git("remote", "add", "bare", str(tmp_path / "bare.git"))
        address = str(tmp_path / ("bare.git" if shape == "bare" else "bare"))
    repository = watched(address)

    async with aclosing(repository.watch()) as heads:
        await following(heads)
        pushed = remote.commit({"a": "2"})
        if shape in {"bare", "without .git"}:
            remote.git("push", "--quiet", "bare", "main")

        assert (await following(heads)).hash == pushed


async def test_a_branch_with_packed_refs_and_one_in_a_folder_is_watched(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote(branch="team/main")
    remote.commit({"a": "1"})
    remote.git("pack-refs", "--all")
    repository = watched(remote.remote, branch="team/main")

    async with aclosing(repository.watch()) as heads:
        await following(heads)
        loose = remote.commit({"a": "2"})
        assert (await following(heads)).hash == loose
        remote.git("pack-refs", "--all")
        again = remote.commit({"a": "3"})
        remote.git("pack-refs", "--all")
        assert (await following(heads)).hash == again


async def test_a_rewritten_history_is_a_move_like_any_other(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    first = remote.commit({"a": "1"})
    second = remote.commit({"a": "2"})
    repository = watched(remote.remote)

    async with aclosing(repository.watch()) as heads:
        assert (await following(heads)).hash == second
        remote.git("reset", "--quiet", "--hard", first)
        assert (await following(heads)).hash == first

    assert (await repository.commit(second)).hash == second


async def test_the_first_commit_of_an_empty_repository_is_seen(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    repository = watched(remote.remote)

    async with asyncio.TaskGroup() as tasks, aclosing(repository.watch()) as heads:
        waiting = tasks.create_task(following(heads))
        assert "has no branch 'main'" in await until(repository, Reachability.NO_BRANCH)
        pushed = remote.commit({"a": "1"})

        assert (await waiting).hash == pushed


async def test_a_deleted_branch_is_told_and_its_return_is_seen(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    repository = watched(remote.remote)

    async with asyncio.TaskGroup() as tasks, aclosing(repository.watch()) as heads:
        last = await following(heads)
        waiting = tasks.create_task(following(heads))
        remote.git("checkout", "--quiet", "-b", "other")
        remote.git("branch", "--delete", "--force", "main")
        await until(repository, Reachability.NO_BRANCH)
        assert (await repository.head()).hash == last.hash
        pushed = remote.commit({"a": "2"})
        remote.git("branch", "main")

        assert (await waiting).hash == pushed
    assert repository.state.reach is Reachability.REACHABLE


async def test_a_remote_that_is_gone_is_told_and_its_return_is_seen(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    first = remote.commit({"a": "1"})
    repository = watched(remote.remote)
    away = remote.path.with_name("away")

    async with asyncio.TaskGroup() as tasks, aclosing(repository.watch()) as heads:
        await following(heads)
        waiting = tasks.create_task(following(heads))
        remote.path.rename(away)
        state = await until(repository, Reachability.UNREACHABLE)
        assert state.startswith("unreachable since 2")
        assert "does not appear to be a git repository" in state
        assert await repository.read(first, "a") == b"1"
        away.rename(remote.path)
        pushed = remote.commit({"a": "2"})

        assert (await waiting).hash == pushed
    assert repository.state.reach is Reachability.REACHABLE


async def test_a_restart_while_the_remote_is_away_goes_on_with_what_is_known(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    known = remote.commit({"a": "1"})
    await watched(remote.remote).open()
    remote.path.rename(remote.path.with_name("away"))
    restarted = watched(remote.remote)

    async with aclosing(restarted.watch()) as heads:
        assert (await following(heads)).hash == known
    assert restarted.state.reach is Reachability.UNREACHABLE


async def test_two_watchers_both_see_every_stop_of_the_branch(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    repository = watched(remote.remote)

    async with aclosing(repository.watch()) as one, aclosing(repository.watch()) as other:
        assert (await following(one)).hash == (await following(other)).hash
        async with asyncio.TaskGroup() as tasks:
            first, second = (tasks.create_task(following(each)) for each in (one, other))
            pushed = remote.commit({"a": "2"})
        assert first.result().hash == second.result().hash == pushed
        pushed = remote.commit({"a": "3"})
        assert (await following(other)).hash == pushed
        assert (await following(one)).hash == pushed


async def test_a_watcher_that_goes_away_leaves_the_others_their_turn(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    repository = watched(remote.remote)

    async with aclosing(repository.watch()) as one, aclosing(repository.watch()) as other:
        await following(one)
        await following(other)
        async with asyncio.TaskGroup() as tasks:
            leaving = tasks.create_task(following(one))
            staying = tasks.create_task(following(other))
            await asyncio.sleep(0)
            leaving.cancel()
            pushed = remote.commit({"a": "2"})
        assert staying.result().hash == pushed


async def test_a_branch_elsewhere_is_asked_for_at_each_interval(
    git_remote: Remotes,
    watched: Callable[..., Repository],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    repository = elsewhere(
        watched, remote.remote, tmp_path, monkeypatch, sync_interval=timedelta(milliseconds=50)
    )

    async with aclosing(repository.watch()) as heads:
        await following(heads)
        pushed = remote.commit({"a": "2"})

        assert (await following(heads)).hash == pushed


async def test_a_hint_is_worth_a_look_at_once(
    git_remote: Remotes,
    watched: Callable[..., Repository],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The interval is ten minutes here: only the hint can be what made it look."""
    remote = git_remote()
    remote.commit({"a": "1"})
    repository = elsewhere(watched, remote.remote, tmp_path, monkeypatch)

    async with asyncio.TaskGroup() as tasks, aclosing(repository.watch()) as heads:
        await following(heads)
        waiting = tasks.create_task(following(heads))
        pushed = remote.commit({"a": "2"})
        repository.hint()

        assert (await waiting).hash == pushed


async def test_what_somebody_else_fetched_is_seen_by_the_watcher(
    git_remote: Remotes,
    watched: Callable[..., Repository],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    repository = elsewhere(watched, remote.remote, tmp_path, monkeypatch)

    async with asyncio.TaskGroup() as tasks, aclosing(repository.watch()) as heads:
        await following(heads)
        waiting = tasks.create_task(following(heads))
        pushed = remote.commit({"a": "2"})
        assert await repository.fetch()

        assert (await waiting).hash == pushed


async def test_watching_a_quiet_local_branch_costs_next_to_nothing(
    git_remote: Remotes, watched: Callable[..., Repository]
) -> None:
    """Of two seconds a twentieth at most, children included: a busy loop would take all of it."""
    remote = git_remote()
    remote.commit({"a": "1"})
    repository = watched(remote.remote)

    async with aclosing(repository.watch()) as heads:
        await following(heads)
        before = used()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await anext(heads)
        assert used() - before < 0.1


def used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def elsewhere(
    watched: Callable[..., Repository],
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    **options: Any,
) -> Repository:
    """The repository as if on another machine: ssh, with a program that goes nowhere."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != host ]; do shift; done\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    access = RemoteAccess(address=f"ssh://host{path}", variables={"GIT_SSH_COMMAND": str(ssh)})
    made: Repository = watched(f"ssh://host{path}", access=access, **options)
    return made


class ScriptedRemote:
    """A remote whose looks the test counts and holds."""

    def __init__(self) -> None:
        self.head = Commit(hash="a" * 40, subject="", message="", author="", created_at=0)
        self.started: asyncio.Queue[int] = asyncio.Queue()
        self.may_end = asyncio.Semaphore(0)
        self.looks = 0
        self.watch = BranchWatch(
            name="repo", local=None, interval_seconds=600, look=self.look, known=self.know
        )

    async def look(self, _is_hinted: bool) -> None:
        self.looks += 1
        self.started.put_nowait(self.looks)
        await self.may_end.acquire()
        self.watch.set_head(self.head)

    async def know(self) -> Commit | None:
        return None

    async def wait_started(self) -> int:
        async with asyncio.timeout(LIMIT):
            return await self.started.get()


async def test_any_number_of_hints_during_a_look_is_one_more_look() -> None:
    """A flood of hooks must not become a flood of calls to the git host."""
    remote = ScriptedRemote()
    async with asyncio.TaskGroup() as tasks, aclosing(remote.watch.heads()) as heads:
        first = tasks.create_task(following(heads))
        assert await remote.wait_started() == 1
        for _ in range(1000):
            remote.watch.hint("b" * 40)
        remote.may_end.release()
        assert (await first).hash == "a" * 40
        waiting = tasks.create_task(following(heads))
        assert await remote.wait_started() == 2
        remote.may_end.release()

        # Nobody hints any more: only this can wake the watcher within ten minutes.
        moved = Commit(hash="c" * 40, subject="", message="", author="", created_at=0)
        remote.head = moved
        remote.watch.set_head(moved)

        assert (await waiting).hash == "c" * 40
    assert remote.looks == 2


async def test_a_hint_for_the_commit_that_is_the_head_already_is_no_look() -> None:
    """A replayed hook costs nothing."""
    remote = ScriptedRemote()
    remote.may_end.release()
    async with asyncio.TaskGroup() as tasks, aclosing(remote.watch.heads()) as heads:
        assert (await following(heads)).hash == "a" * 40
        waiting = tasks.create_task(following(heads))
        await asyncio.sleep(0)
        for _ in range(10):
            remote.watch.hint("a" * 40)
            await asyncio.sleep(0)
        remote.watch.set_head(
            Commit(hash="c" * 40, subject="", message="", author="", created_at=0)
        )
        await waiting
    assert remote.looks == 1


async def test_a_watcher_that_is_cancelled_during_a_look_keeps_no_other_from_looking() -> None:
    remote = ScriptedRemote()
    async with asyncio.TaskGroup() as tasks:
        gone = tasks.create_task(following(remote.watch.heads()))
        await remote.wait_started()
        gone.cancel()
        await asyncio.wait([gone])
        remote.may_end.release()
        async with aclosing(remote.watch.heads()) as heads:
            assert (await following(heads)).hash == "a" * 40
