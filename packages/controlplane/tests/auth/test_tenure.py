# SPDX-License-Identifier: Apache-2.0
"""A stream goes on until its right is refused: when it waits, when it speaks, and by time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipecd_controlplane.auth.tenure import LONGEST_TIMER_SECONDS, Tenure
from pipecd_model.errors import UnauthenticatedError
from pipecd_test_support.waiting import Soon
from pipecd_wire.pipecd.api import api_pb2

ONE = api_pb2.WatchChangesResponse(changes=[api_pb2.Change(id="1")])


@dataclass
class Timer:
    """One that was set."""

    timers: list[Any]
    timer: Any

    def cancel(self) -> None:
        if self.timer in self.timers:
            self.timers.remove(self.timer)


@dataclass
class Clock:
    """Time that stands still until a test moves it."""

    seconds: int = 1000
    timers: list[tuple[int, Callable[[], None]]] = field(default_factory=list)

    def now(self) -> int:
        return self.seconds

    def call_later(self, seconds: float, function: Callable[[], None]) -> Any:
        timer = (self.seconds + int(seconds), function)
        self.timers.append(timer)

        return Timer(self.timers, timer)

    def advance(self, seconds: int) -> None:
        self.seconds += seconds
        due = [timer for timer in self.timers if timer[0] <= self.seconds]
        for timer in due:
            self.timers.remove(timer)
            timer[1]()


@dataclass
class Right:
    """What is asked, and how often it was."""

    clock: Clock
    expires_at: int = 0
    lost: bool = False
    asked: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self) -> int:
        self.asked += 1
        await self.gate.wait()
        if self.lost or (self.expires_at and self.expires_at <= self.clock.now()):
            raise UnauthenticatedError("it is over")
        return self.expires_at


@dataclass
class Handler:
    """A handler that says what it is given, and notes that it was ended."""

    queue: "asyncio.Queue[Any]" = field(default_factory=asyncio.Queue)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    async def answers(self) -> AsyncGenerator[Any, None]:
        try:
            while True:
                self.waiting.set()
                yield await self.queue.get()
                self.waiting.clear()
        finally:
            self.ended = True


@asynccontextmanager
async def tenure_of(right: Right) -> AsyncIterator[Tenure]:
    async with asyncio.TaskGroup() as tasks:
        made = Tenure(right.ask, tasks.create_task, right.clock.now, right.clock.call_later)
        yield made
        made.end()


@pytest.fixture
def right() -> Right:
    made = Right(Clock())
    made.gate.set()
    return made


async def test_nothing_is_asked_while_nothing_is_told(right: Right) -> None:
    handler = Handler()
    async with tenure_of(right) as tenure:
        await tenure.begin()
        async with aclosing(tenure.pass_on(handler.answers())) as passed:
            for _ in range(100):
                handler.queue.put_nowait(ONE)
                assert await anext(passed) == ONE
    assert right.asked == 1
    assert handler.ended


async def test_a_stream_that_waits_is_ended_and_its_handler_with_it(
    right: Right, soon: Soon
) -> None:
    handler = Handler()
    async with tenure_of(right) as tenure:
        await tenure.begin()
        reading = asyncio.ensure_future(anext(tenure.pass_on(handler.answers())))
        await soon(handler.waiting.wait())

        right.lost = True
        tenure.notify()

        with pytest.raises(UnauthenticatedError):
            await soon(reading)
        assert handler.ended


async def test_an_answer_waits_for_the_question_that_is_open(right: Right, soon: Soon) -> None:
    handler = Handler()
    async with tenure_of(right) as tenure:
        await tenure.begin()
        right.gate.clear()
        right.lost = True
        tenure.notify()
        handler.queue.put_nowait(ONE)
        async with aclosing(tenure.pass_on(handler.answers())) as passed:
            reading = asyncio.ensure_future(anext(passed))
            await asyncio.wait({reading}, timeout=0.05)
            assert not reading.done()

            right.gate.set()

            with pytest.raises(UnauthenticatedError):
                await soon(reading)


async def test_what_is_told_during_a_question_is_asked_again(right: Right, soon: Soon) -> None:
    handler = Handler()
    async with tenure_of(right) as tenure:
        await tenure.begin()
        right.gate.clear()
        tenure.notify()
        await asyncio.sleep(0)  # the question is open now
        for _ in range(50):
            tenure.notify()
        right.gate.set()
        handler.queue.put_nowait(ONE)
        async with aclosing(tenure.pass_on(handler.answers())) as passed:
            assert await soon(anext(passed)) == ONE
    assert right.asked == 3  # at the begin, once, and once for all fifty


async def test_a_question_that_fails_ends_the_stream(right: Right, soon: Soon) -> None:
    handler = Handler()

    async def broken() -> int:
        right.asked += 1
        if right.asked > 1:
            raise OSError("no disk")
        return 0

    async with asyncio.TaskGroup() as tasks:
        tenure = Tenure(broken, tasks.create_task, right.clock.now, right.clock.call_later)
        await tenure.begin()
        tenure.notify()
        handler.queue.put_nowait(ONE)
        async with aclosing(tenure.pass_on(handler.answers())) as passed:
            with pytest.raises(OSError, match="no disk"):
                await soon(anext(passed))


async def test_a_right_ends_by_the_clock(right: Right, soon: Soon) -> None:
    handler = Handler()
    right.expires_at = right.clock.now() + 3600
    async with tenure_of(right) as tenure:
        await tenure.begin()
        reading = asyncio.ensure_future(anext(tenure.pass_on(handler.answers())))
        await soon(handler.waiting.wait())
        for _ in range(int(3600 / LONGEST_TIMER_SECONDS) - 1):
            right.clock.advance(int(LONGEST_TIMER_SECONDS))
        assert right.asked == 1

        right.clock.advance(int(LONGEST_TIMER_SECONDS))

        with pytest.raises(UnauthenticatedError):
            await soon(reading)
        assert right.asked == 2
    assert right.clock.timers == []


async def test_nothing_passes_after_the_end_even_before_the_timer(right: Right, soon: Soon) -> None:
    handler = Handler()
    right.expires_at = right.clock.now() + 10
    async with tenure_of(right) as tenure:
        await tenure.begin()
        right.clock.seconds += 10  # and no timer has run
        handler.queue.put_nowait(ONE)
        async with aclosing(tenure.pass_on(handler.answers())) as passed:
            with pytest.raises(UnauthenticatedError):
                await soon(anext(passed))


async def test_a_stream_that_is_cancelled_is_cancelled(right: Right, soon: Soon) -> None:
    handler = Handler()
    async with tenure_of(right) as tenure:
        await tenure.begin()
        reading = asyncio.ensure_future(anext(tenure.pass_on(handler.answers())))
        await soon(handler.waiting.wait())

        reading.cancel()

        with pytest.raises(asyncio.CancelledError):
            await soon(reading)
        assert handler.ended
