# SPDX-License-Identifier: Apache-2.0
"""Answers that are kept: how long, and what ends it."""

import asyncio
from datetime import timedelta

import pytest

from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.rereads import Conclusion, Conclusions, Reread, make_room
from pipecd_sdk.testing import FakeClock

MINUTE = timedelta(minutes=1)


class Asked:
    """A platform that counts how often it is asked."""

    def __init__(self) -> None:
        self.count = 0
        self.answer = "one"
        self.failure = ""
        self.clock = FakeClock()
        self.known = Reread[str](first=2 * MINUTE, longest=5 * MINUTE)

    async def read(self) -> str:
        self.count += 1
        if self.failure:
            raise StageFailedError(self.failure)
        return self.answer

    async def get(self, key: str = "commit", *, is_fresh: bool = False) -> str:
        return await self.known.get(key, self.read, clock=self.clock, is_fresh=is_fresh)


def test_room_is_made_in_a_cache_that_is_full_and_in_no_other() -> None:
    kept = dict.fromkeys(range(10))

    make_room(kept, 11)
    assert len(kept) == 10
    make_room(kept, 10)
    assert len(kept) == 9
    make_room(kept, 1)
    assert kept == {}


async def test_the_same_answer_is_asked_for_less_and_less_up_to_the_limit() -> None:
    asked = Asked()
    counts = []

    for _ in range(30):
        await asked.get()
        counts.append(asked.count)
        await asked.clock.advance(MINUTE)

    assert counts[:2] == [1, 1]
    assert counts[2] == 2, "after two minutes"
    assert counts[5] == 2, "twice that had not passed"
    assert counts[7] == 3
    assert counts[29] >= 2 + 27 // 5, "a change is noticed within five minutes"
    assert counts[29] <= 2 + 27 // 4 + 1


async def test_another_answer_is_returned_when_the_pause_is_over_and_asked_for_often_again() -> (
    None
):
    asked = Asked()
    for _ in range(12):
        await asked.get()
        await asked.clock.advance(MINUTE)
    asked.answer = "two"

    await asked.clock.advance(5 * MINUTE)

    assert await asked.get() == "two"
    before = asked.count
    await asked.clock.advance(2 * MINUTE)
    await asked.get()
    assert asked.count == before + 1


async def test_another_key_a_person_and_a_change_of_ones_own_are_answered_at_once() -> None:
    asked = Asked()
    await asked.get()

    await asked.get("another")
    assert asked.count == 2
    await asked.get("another", is_fresh=True)
    assert asked.count == 3
    asked.known.forget()
    await asked.get("another")
    assert asked.count == 4
    await asked.get("another")
    assert asked.count == 4


async def test_a_failure_is_kept_and_told_again() -> None:
    asked = Asked()
    asked.failure = "Rate exceeded"

    for _ in range(4):
        with pytest.raises(StageFailedError, match="Rate exceeded"):
            await asked.get()
        await asked.clock.advance(MINUTE)

    assert asked.count == 2
    asked.failure = ""
    await asked.clock.advance(4 * MINUTE)
    assert await asked.get() == "one"


async def test_who_asks_at_the_same_time_is_answered_together() -> None:
    asked = Asked()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(asked.get())

    assert asked.count == 1


async def test_an_answer_from_before_a_change_of_ones_own_is_not_kept() -> None:
    asked = Asked()

    async def read() -> str:
        asked.known.forget()
        return await asked.read()

    assert await asked.known.get("commit", read, clock=asked.clock) == "one"
    await asked.get()

    assert asked.count == 2


async def test_a_clock_that_is_set_back_does_not_keep_an_answer_for_hours() -> None:
    asked = Asked()
    await asked.get()
    asked.clock = FakeClock(asked.clock.now() - timedelta(hours=3))

    await asked.get()

    assert asked.count == 2


async def test_a_read_that_is_cut_off_is_not_begun_again_at_once() -> None:
    """A plan that takes longer than piped waits would else be made all the time, for nothing."""
    asked = Asked()
    begun = asyncio.Event()

    async def read() -> str:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    reading = asyncio.create_task(asked.known.get("commit", read, clock=asked.clock))
    await begun.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    with pytest.raises(StageFailedError, match="there was no answer within 0 seconds"):
        await asked.get()
    assert asked.count == 0
    await asked.clock.advance(2 * MINUTE)
    assert await asked.get() == "one"


async def test_a_conclusion_is_drawn_again_when_one_of_the_objects_is_another() -> None:
    known = Conclusion[int]()
    seen, manifest = ["web"], {"name": "web"}
    drawn = []

    async def conclude() -> int:
        drawn.append(1)
        return len(drawn)

    assert [await known.draw((seen, manifest), conclude) for _ in range(2)] == [1, 1]
    assert await known.draw((list(seen), manifest), conclude) == 2, "an equal one is another one"
    assert await known.draw((seen,), conclude) == 3


async def test_what_could_not_be_concluded_is_not_kept() -> None:
    known = Conclusion[int]()

    async def fail() -> int:
        raise StageFailedError("no")

    async def conclude() -> int:
        return 7

    with pytest.raises(StageFailedError):
        await known.draw((), fail)
    assert await known.draw((), conclude) == 7


async def test_conclusions_are_of_a_bounded_number() -> None:
    known = Conclusions[int, int](most=10)

    async def conclude() -> int:
        return 7

    for key in range(100):
        assert await known.draw(key, (), conclude) == 7

    assert len(known) == 10


async def test_what_follows_from_secrets_is_concluded_each_time_and_forgotten() -> None:
    known = Conclusions[str, int]()
    drawn = []
    seen = "web"

    async def conclude() -> int:
        drawn.append(1)
        return len(drawn)

    assert [await known.draw("web", (seen,), conclude) for _ in range(2)] == [1, 1]
    found = [await known.draw("web", (seen,), conclude, is_secret=True) for _ in range(2)]

    assert (found, len(known)) == ([2, 3], 0)
