# SPDX-License-Identifier: Apache-2.0
"""Handlers: cancelled once, waited for, stopped in order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pipecd_sdk import StageResult, StageStatus
from pipecd_sdk._glue.running import StageRun, StageRuns
from pipecd_wire.rpc import StatusError

KEY = ("d1", "s1")
DONE = StageResult(status=StageStatus.SUCCESS)


class Handler:
    """A stage that runs until it is let go, and on its way out until it is let go again."""

    def __init__(self, *, lingers: bool = False) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.leaving = asyncio.Event()
        self.left = asyncio.Event()
        self.cancels = 0
        self.handed_over: list[bool] = []
        if not lingers:
            self.left.set()

    async def __call__(self, run: StageRun) -> StageResult | None:
        self.started.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancels += 1
            self.handed_over.append(run.is_handed_over)
            self.leaving.set()
            await self.left.wait()
            return None
        return DONE


@asynccontextmanager
async def running() -> AsyncIterator[tuple[StageRuns, asyncio.TaskGroup]]:
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        yield StageRuns(tasks), tasks


def call(
    stages: StageRuns, tasks: asyncio.TaskGroup, handler: Handler, *, finishes: bool = False
) -> "asyncio.Task[StageResult | StatusError]":
    """The RPC that runs a stage."""

    async def ask() -> StageResult | StatusError:
        try:
            return await stages.run(KEY, handler, finishes_on_stop=finishes)
        except StatusError as refused:
            return refused

    return tasks.create_task(ask())


async def test_the_result_of_the_handler_is_the_answer() -> None:
    async with running() as (stages, tasks):
        handler = Handler()
        answer = call(stages, tasks, handler)
        await handler.started.wait()
        handler.go.set()

    assert answer.result() is DONE


async def test_cancelling_the_call_cancels_the_handler_once_and_its_end_can_be_waited_for() -> None:
    async with running() as (stages, tasks):
        handler = Handler(lingers=True)
        answer = call(stages, tasks, handler)
        await handler.started.wait()

        answer.cancel()
        await handler.leaving.wait()
        waiting = tasks.create_task(stages.wait(KEY))
        await asyncio.sleep(0)
        assert not waiting.done()
        handler.left.set()

    assert answer.cancelled()
    assert handler.cancels == 1


async def test_nothing_is_waited_for_when_nothing_runs() -> None:
    async with running() as (stages, _):
        await stages.wait(KEY)


async def test_a_second_call_of_a_stage_waits_for_the_end_of_the_first() -> None:
    """Two handlers of one stage at once would do its work twice."""
    async with running() as (stages, tasks):
        first, second = Handler(lingers=True), Handler()
        lost = call(stages, tasks, first)
        await first.started.wait()
        lost.cancel()
        await first.leaving.wait()

        again = call(stages, tasks, second)
        for _ in range(10):  # turns of the loop: enough for a handler that does not wait
            await asyncio.sleep(0)
        assert not second.started.is_set()
        first.left.set()
        await second.started.wait()
        second.go.set()

    assert again.result() is DONE


async def test_a_stop_before_the_handler_began_is_a_stop_too() -> None:
    async with running() as (stages, tasks):
        handler = Handler()
        answer = call(stages, tasks, handler)
        await asyncio.sleep(0)  # the call has begun, the handler has not

        assert await stages.stop(grace_seconds=30, insisted=asyncio.Event())
        await stages.wait(KEY)

    assert not handler.started.is_set()
    assert isinstance(answer.result(), StatusError)


async def test_a_bug_in_one_stage_does_not_end_the_others() -> None:
    async def broken(_: StageRun) -> StageResult | None:
        raise RuntimeError("a bug of ours")

    async with running() as (stages, tasks):
        handler = Handler()
        healthy = call(stages, tasks, handler)
        await handler.started.wait()

        result = await stages.run(("d1", "s2"), broken, finishes_on_stop=False)
        handler.go.set()

    assert result.status is StageStatus.FAILURE
    assert "the plugin could not run the stage" in result.reason
    assert healthy.result() is DONE


async def test_a_stop_cancels_and_answers_that_the_plugin_is_stopping() -> None:
    async with running() as (stages, tasks):
        handler = Handler()
        answer = call(stages, tasks, handler)
        await handler.started.wait()

        assert await stages.stop(grace_seconds=30, insisted=asyncio.Event())

    refused = answer.result()
    assert isinstance(refused, StatusError)
    assert (refused.status, refused.message) == ("UNAVAILABLE", "plugin is stopping")


async def test_after_a_stop_no_stage_is_started() -> None:
    async with running() as (stages, _):
        await stages.stop(grace_seconds=30, insisted=asyncio.Event())
        with pytest.raises(StatusError, match="plugin is stopping"):
            await stages.run(KEY, Handler(), finishes_on_stop=False)


async def test_a_stop_waits_for_a_handler_that_finishes() -> None:
    async with running() as (stages, tasks):
        handler = Handler()
        answer = call(stages, tasks, handler, finishes=True)
        await handler.started.wait()

        stopping = tasks.create_task(stages.stop(grace_seconds=30, insisted=asyncio.Event()))
        await asyncio.sleep(0)
        assert stages.is_stopping
        handler.go.set()

    assert stopping.result() is True
    assert answer.result() is DONE
    assert handler.cancels == 0


async def test_who_insists_ends_it_at_once() -> None:
    async with running() as (stages, tasks):
        handler, insisted = Handler(), asyncio.Event()
        call(stages, tasks, handler, finishes=True)
        await handler.started.wait()

        stopping = tasks.create_task(stages.stop(grace_seconds=3600, insisted=insisted))
        insisted.set()

    assert stopping.result() is True
    assert handler.cancels == 1
    assert stages.is_ending


async def test_patience_ends_before_the_grace_period_does() -> None:
    async with running() as (stages, tasks):
        handler = Handler()
        call(stages, tasks, handler, finishes=True)
        await handler.started.wait()

        ended = await stages.stop(grace_seconds=0.2, insisted=asyncio.Event())

    assert ended is True
    assert handler.cancels == 1


async def test_a_handler_that_does_not_end_is_told_to_the_caller() -> None:
    async with running() as (stages, tasks):
        handler = Handler(lingers=True)
        call(stages, tasks, handler)
        await handler.started.wait()

        ended = await stages.stop(grace_seconds=0.2, insisted=asyncio.Event())
        assert ended is False
        handler.left.set()

    assert handler.cancels == 1


@pytest.mark.parametrize(
    ("insists", "handed_over"), [(False, True), (True, False)], ids=["out of patience", "insisted"]
)
async def test_what_is_cancelled_at_a_stop_is_handed_over_unless_somebody_insists(
    insists: bool, handed_over: bool
) -> None:
    async with running() as (stages, tasks):
        handler, insisted = Handler(), asyncio.Event()
        call(stages, tasks, handler, finishes=True)
        await handler.started.wait()
        if insists:
            insisted.set()

        assert await stages.stop(grace_seconds=30 if insists else 0.1, insisted=insisted)

    assert handler.handed_over == [handed_over]


async def test_what_piped_cancels_is_handed_over_only_while_the_plugin_stops() -> None:
    async with running() as (stages, tasks):
        handler = Handler()
        asked = call(stages, tasks, handler, finishes=True)
        await handler.started.wait()
        asked.cancel()
        await handler.leaving.wait()
        await stages.wait(KEY)

        handler.started.clear()
        leaving = call(stages, tasks, handler, finishes=True)
        await handler.started.wait()
        stopping = tasks.create_task(stages.stop(grace_seconds=30, insisted=asyncio.Event()))
        await asyncio.sleep(0)  # the stop has begun, and waits
        leaving.cancel()
        assert await stopping

    assert handler.handed_over == [False, True]
