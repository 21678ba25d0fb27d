# SPDX-License-Identifier: Apache-2.0
"""A key is compared with a hash once, however often it is shown."""

import asyncio
import time

from pipecd_controlplane.auth.verify import REMEMBERED, Verifier
from pipecd_controlplane.usecases.keys import (
    hash_of,
    matches,
    new_api_key,
    new_piped_key,
    quick_hash,
)


async def test_the_right_key_matches_and_another_does_not() -> None:
    verifier = Verifier()
    hashed = await hash_of("right")

    assert await verifier.matches("right", hashed)
    assert not await verifier.matches("wrong", hashed)
    assert await verifier.matches("right", hashed)


async def test_a_hash_that_changed_is_compared_anew() -> None:
    """So a key that was taken away stops working at once."""
    verifier = Verifier()
    assert await verifier.matches("key", await hash_of("key"))

    assert not await verifier.matches("key", await hash_of("new key"))


async def test_a_repeated_check_costs_nothing_next_to_the_first() -> None:
    """Right and wrong keys alike: a wrong one must not be a way to burn our time."""
    verifier = Verifier()
    hashed = await hash_of("right")
    for key in ("right", "wrong"):
        started = time.process_time()
        await verifier.matches(key, hashed)
        first = time.process_time() - started

        started = time.process_time()
        for _ in range(100):
            await verifier.matches(key, hashed)
        assert (time.process_time() - started) / 100 < first / 10


async def test_checks_of_one_key_at_once_are_one_check() -> None:
    verifier = Verifier()
    hashed = await hash_of("key")
    started = time.process_time()
    await verifier.matches("another", hashed)
    one = time.process_time() - started

    started = time.process_time()
    async with asyncio.TaskGroup() as tasks:
        answers = [tasks.create_task(verifier.matches("key", hashed)) for _ in range(40)]
    assert all(answer.result() for answer in answers)
    assert time.process_time() - started < one * 20


async def test_what_is_remembered_has_a_limit() -> None:
    verifier = Verifier()
    for number in range(REMEMBERED + 10):
        verifier._remember((str(number).encode(), "hash"), answer=False)

    assert len(verifier._answers) == REMEMBERED


async def test_a_key_longer_than_any_of_ours_is_just_wrong() -> None:
    assert not await matches("x" * 1000, await hash_of("key"))


async def test_a_key_that_we_made_is_compared_at_once_and_needs_no_memory() -> None:
    verifier = Verifier()
    key = new_piped_key()
    hashed = quick_hash(key)

    assert verifier.knows(key, hashed)
    assert await verifier.matches(key, hashed)
    assert not await verifier.matches(f"{key}x", hashed)
    assert key not in hashed
    assert not verifier._answers


def test_keys_have_upstreams_shape() -> None:
    assert len(new_piped_key()) == 50
    key = new_api_key("id")
    assert key.startswith("id.")
    assert len(key) == len("id.") + 32
    assert new_piped_key() != new_piped_key()
