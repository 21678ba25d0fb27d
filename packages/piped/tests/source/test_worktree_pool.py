# SPDX-License-Identifier: Apache-2.0
"""Who gets which tree, who waits, and when another one is made."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from pipecd_piped.source import worktree_pool
from pipecd_piped.source.worktree_pool import (
    CHECKOUTS_AT_ONCE,
    EXCESS_SECONDS,
    LONGEST_WAIT_SECONDS,
    WorktreePool,
)

LIMIT = 30.0


@dataclass(eq=False)
class FakeTree:
    commit: str


class Maker:
    """Makes trees that are only a commit."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def __call__(self) -> Any:
        self.made.append(FakeTree(commit=""))
        return self.made[-1]


@pytest.fixture
def maker() -> Maker:
    return Maker()


async def waiting(
    pool: WorktreePool, tasks: asyncio.TaskGroup, count: int
) -> list[asyncio.Task[Any]]:
    """Ask for trees until that many wait."""
    asking = [tasks.create_task(pool.take("")) for _ in range(count)]
    await asyncio.sleep(0)
    return asking


async def test_the_first_few_are_made_at_once(maker: Maker) -> None:
    pool = WorktreePool(maker, keep=3)

    taken = [await pool.take("") for _ in range(3)]

    assert taken == maker.made


async def test_a_tree_at_the_commit_is_preferred(maker: Maker) -> None:
    pool = WorktreePool(maker, keep=3)
    one, two, three = [await pool.take("") for _ in range(3)]
    one.commit, two.commit, three.commit = "a", "b", "c"
    for tree in (one, two, three):
        assert pool.put(tree) == []

    assert await pool.take("b") is two
    assert await pool.take("x") is three
    assert await pool.take("x") is one


async def test_who_waits_longest_gets_the_tree_that_comes_back(maker: Maker) -> None:
    pool = WorktreePool(maker, keep=1)
    tree = await pool.take("")
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        first, second = await waiting(pool, tasks, 2)
        assert pool.is_waited_for
        pool.put(tree)
        assert await first is tree
        assert not second.done()
        pool.put(tree)
        assert await second is tree

    assert len(maker.made) == 1
    assert not pool.is_waited_for


async def test_when_none_comes_back_another_one_is_made(maker: Maker) -> None:
    pool = WorktreePool(maker, keep=1)
    held = await pool.take("")

    async with asyncio.timeout(LIMIT):
        other = await pool.take("")

    assert other is not held


async def test_a_tree_that_is_being_cleaned_is_waited_for(maker: Maker) -> None:
    pool = WorktreePool(maker, keep=5)
    tree = await pool.take("")
    pool.cleaning += 1
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        (asking,) = await waiting(pool, tasks, 1)
        assert not asking.done()
        pool.cleaning -= 1
        pool.put(tree)
        assert await asking is tree

    assert len(maker.made) == 1


async def test_one_too_many_is_given_out_to_be_deleted_and_can_be_made_again(maker: Maker) -> None:
    now = 0.0
    pool = WorktreePool(maker, keep=1, clock=lambda: now)
    first = await pool.take("")
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        (asking,) = await waiting(pool, tasks, 1)
        now += LONGEST_WAIT_SECONDS
        second = await asking

    now += EXCESS_SECONDS
    assert pool.put(first) == []
    assert pool.put(second) == [first]
    assert await pool.take("") is second


async def test_soon_after_one_was_made_none_is_deleted(maker: Maker) -> None:
    now = 0.0
    pool = WorktreePool(maker, keep=1, clock=lambda: now)
    first = await pool.take("")
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        (asking,) = await waiting(pool, tasks, 1)
        now += LONGEST_WAIT_SECONDS
        second = await asking

    assert pool.put(first) == []
    assert pool.put(second) == []
    assert await pool.take_all(["", ""]) == [second, first]


async def test_a_tree_that_is_lost_leaves_its_place_to_a_new_one(maker: Maker) -> None:
    pool = WorktreePool(maker, keep=1)
    pool.forget(await pool.take(""))

    async with asyncio.timeout(0.1):
        await pool.take("")

    assert len(maker.made) == 2


async def test_who_is_cancelled_while_getting_a_tree_leaves_it_to_the_next(maker: Maker) -> None:
    pool = WorktreePool(maker, keep=1)
    tree = await pool.take("")
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        first, second = await waiting(pool, tasks, 2)
        pool.put(tree)
        first.cancel()
        assert await second is tree

    assert first.cancelled()
    assert len(maker.made) == 1


async def test_who_needs_two_gets_both_before_the_next_gets_one(maker: Maker) -> None:
    pool = WorktreePool(maker, keep=2)
    one, two = await pool.take_all(["", ""])
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(pool.take_all(["", ""]))
        await asyncio.sleep(0)
        (second,) = await waiting(pool, tasks, 1)
        pool.put(one)
        await asyncio.sleep(0)
        assert not first.done()
        assert not second.done()
        pool.put(two)
        assert await first == [one, two]
        assert not second.done()
        pool.put(one)
        assert await second is one

    assert len(maker.made) == 2


async def test_each_commit_gets_the_tree_that_is_at_it(maker: Maker) -> None:
    pool = WorktreePool(maker, keep=2)
    one, two = await pool.take_all(["", ""])
    one.commit, two.commit = "a", "b"
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(pool.take_all(["b", "a"]))
        await asyncio.sleep(0)
        pool.put(one)
        pool.put(two)
        assert await asking == [two, one]
        for tree in (one, two):
            pool.put(tree)
        assert await pool.take_all(["x", "b"]) == [one, two]


async def test_who_is_cancelled_with_one_of_two_leaves_it_to_the_next(maker: Maker) -> None:
    pool = WorktreePool(maker, keep=2)
    one, _two = await pool.take_all(["", ""])
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(pool.take_all(["", ""]))
        await asyncio.sleep(0)
        (second,) = await waiting(pool, tasks, 1)
        pool.put(one)
        await asyncio.sleep(0)
        first.cancel()
        assert await second is one

    assert first.cancelled()
    assert len(maker.made) == 2


async def test_no_more_are_made_at_once_than_can_be_checked_out(
    maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worktree_pool, "RETURN_SECONDS", 0.01)
    monkeypatch.setattr(worktree_pool, "LONGEST_WAIT_SECONDS", 10 * LIMIT)
    pool = WorktreePool(maker, keep=CHECKOUTS_AT_ONCE)
    for _ in range(CHECKOUTS_AT_ONCE):
        await pool.take("")
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        (asking,) = await waiting(pool, tasks, 1)
        await asyncio.wait([asking], timeout=0.1)
        assert not asking.done()
        pool.note_opened()
        assert await asking is maker.made[-1]

    assert len(maker.made) == CHECKOUTS_AT_ONCE + 1


async def test_where_trees_are_used_for_longer_their_return_is_awaited_longer(
    maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worktree_pool, "RETURN_SECONDS", 0.01)
    monkeypatch.setattr(worktree_pool, "LONGEST_WAIT_SECONDS", 10 * LIMIT)
    monkeypatch.setattr(worktree_pool, "_LEARNED_FROM", 1)
    now = 0.0
    pool = WorktreePool(maker, keep=1, clock=lambda: now)
    tree = await pool.take("")
    now = 2 * LIMIT
    pool.put(tree)
    await pool.take("")
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        (asking,) = await waiting(pool, tasks, 1)
        now += 3 * LIMIT
        await asyncio.wait([asking], timeout=0.1)
        assert not asking.done()
        now += 3 * LIMIT
        assert await asking is not tree

    assert len(maker.made) == 2
