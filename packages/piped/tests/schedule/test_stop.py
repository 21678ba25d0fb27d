# SPDX-License-Identifier: Apache-2.0
"""A stopped block ends with the reason it was stopped for, and with no other."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from pipecd_piped.schedule.stop import (
    Cancelled,
    HandedOver,
    Refused,
    StopReason,
    StopRequestedError,
    StopScope,
    Superseded,
    Terminated,
    TimedOut,
)

CANCEL = Cancelled(by="alice", force_rollback=False, force_no_rollback=False)
REASONS: list[StopReason] = [CANCEL, Terminated(), TimedOut(sentence="too slow")]


async def stopped_block(scope: StopScope, entered: asyncio.Event) -> str:
    async with scope:
        entered.set()
        await asyncio.Event().wait()
    return "unreachable"


@pytest.mark.parametrize(
    "reason",
    [
        Superseded(by="d2", sentence="d2 took its place"),
        Refused(sentence="its chain has ended"),
        TimedOut(sentence="too slow"),
    ],
    ids=lambda reason: type(reason).__name__,
)
def test_a_reason_is_told_by_its_sentence(reason: Superseded | Refused | TimedOut) -> None:
    assert str(reason) == reason.sentence


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: type(reason).__name__)
async def test_a_stopped_block_ends_with_the_reason(reason: StopReason) -> None:
    scope, entered = StopScope(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        block = tasks.create_task(_caught(stopped_block(scope, entered)))
        await entered.wait()

        scope.stop(reason)

    assert block.result() == reason


async def _caught(block: Awaitable[object]) -> StopReason | None:
    try:
        await block
    except StopRequestedError as stopped:
        return stopped.reason
    return None


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (CANCEL, "cancelled by alice"),
        (replace(CANCEL, by=""), "cancelled"),
        (TimedOut(sentence="too slow"), "too slow"),
        (Terminated(), "piped is stopping"),
        (HandedOver(), "another instance of this piped goes on"),
    ],
)
def test_the_reason_is_a_sentence_for_logs_and_status_lines(
    reason: StopReason, sentence: str
) -> None:
    assert str(reason) == sentence
    assert str(StopRequestedError(reason)) == sentence


async def test_a_stop_from_before_the_start_keeps_the_block_from_running() -> None:
    scope = StopScope()
    scope.stop(CANCEL)
    ran = False

    with pytest.raises(StopRequestedError) as stopped:
        async with scope:
            ran = True

    assert not ran
    assert stopped.value.reason == CANCEL


async def test_the_first_reason_counts() -> None:
    scope, entered = StopScope(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        block = tasks.create_task(_caught(stopped_block(scope, entered)))
        await entered.wait()

        scope.stop(CANCEL)
        scope.stop(Terminated())

    assert block.result() == CANCEL


async def test_a_cancellation_from_outside_is_let_through() -> None:
    scope, entered = StopScope(), asyncio.Event()
    block = asyncio.ensure_future(stopped_block(scope, entered))
    await entered.wait()

    block.cancel()

    with pytest.raises(asyncio.CancelledError):
        await block


async def test_a_cancellation_from_outside_wins_over_a_stop_at_the_same_moment() -> None:
    """The owner of the task wants it gone; an exception instead would keep it alive."""
    scope, entered = StopScope(), asyncio.Event()
    block = asyncio.ensure_future(stopped_block(scope, entered))
    await entered.wait()

    scope.stop(CANCEL)
    block.cancel()

    with pytest.raises(asyncio.CancelledError):
        await block


async def test_a_block_in_the_cleanup_of_a_cancelled_task_can_be_stopped_too() -> None:
    """The cancellation that the task is cleaning up after is not one that came meanwhile."""
    scope, began, entered = StopScope(), asyncio.Event(), asyncio.Event()

    async def work() -> StopReason | None:
        try:
            began.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await _caught(stopped_block(scope, entered))
        return None

    working = asyncio.ensure_future(work())
    await began.wait()
    working.cancel()
    await entered.wait()

    scope.stop(CANCEL)

    assert await working == CANCEL


async def test_a_block_that_ended_in_time_is_not_stopped() -> None:
    scope = StopScope()
    async with scope:
        pass

    scope.stop(CANCEL)

    await asyncio.sleep(0)  # a cancellation left behind would strike here


async def test_the_block_may_clean_up_before_it_ends() -> None:
    """A cancelled stage waits for its handler's end inside the block."""
    scope, entered = StopScope(), asyncio.Event()
    cleaned = False

    async def block() -> None:
        nonlocal cleaned
        async with scope:
            try:
                entered.set()
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned = True

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_caught(block()))
        await entered.wait()
        scope.stop(CANCEL)

    assert running.result() == CANCEL
    assert cleaned


async def test_an_error_of_the_block_is_its_own() -> None:
    """What fails while it is being stopped has failed."""
    scope, entered = StopScope(), asyncio.Event()

    async def block() -> None:
        async with scope:
            try:
                entered.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("broken") from None

    running = asyncio.ensure_future(block())
    await entered.wait()
    scope.stop(CANCEL)

    with pytest.raises(ValueError, match="broken"):
        await running
    assert running.cancelling() == 0
