# SPDX-License-Identifier: Apache-2.0
"""Who gets which tree, who waits, and when another one is made."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from piped.source.worktree_pool import WorktreePool

LIMIT = 30.0


class Maker:
    """Makes trees that are only a number and a commit."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def __call__(self) -> Any:
        self.made.append(SimpleNamespace(number=len(self.made), commit=""))
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
        assert pool.put(tree) is None

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
    pool = WorktreePool(maker, keep=1)
    first = await pool.take("")
    async with asyncio.timeout(LIMIT):
        second = await pool.take("")

    assert pool.put(first) is None
    assert pool.put(second) is first
    assert await pool.take("") is second


async def test_a_tree_that_is_lost_leaves_its_place_to_a_new_one(maker: Maker) -> None:
    pool = WorktreePool(maker, keep=1)
    await pool.take("")
    pool.forget()

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
