# SPDX-License-Identifier: Apache-2.0
"""WAIT: what it promises, in the test's own process."""

import asyncio
from datetime import timedelta

import pytest
from pipecd_plugin_wait.plugin import Wait

from pipecd_sdk import CommandKind, Operation, StageStatus
from pipecd_sdk.testing import NOON, FakeClock, StageHarness


async def test_the_pipeline_is_held_for_the_duration() -> None:
    harness = StageHarness(Wait(), clock=FakeClock(NOON))

    result = await harness.run("WAIT", {"duration": "5m"})

    assert result.status is StageStatus.SUCCESS
    assert harness.clock.now() == NOON + timedelta(minutes=5)
    assert harness.metadata["startTime"] == str(int(NOON.timestamp()))


async def test_a_restarted_piped_resumes_the_same_wait() -> None:
    """Four of five minutes had passed before the restart: one is left, not five."""
    harness = StageHarness(Wait(), clock=FakeClock(NOON))
    harness.metadata["startTime"] = NOON - timedelta(minutes=4)

    result = await harness.run("WAIT", {"duration": "5m"})

    assert result.status is StageStatus.SUCCESS
    assert harness.clock.now() == NOON + timedelta(minutes=1)


async def test_a_wait_that_was_over_during_the_restart_ends_at_once() -> None:
    harness = StageHarness(Wait(), clock=FakeClock(NOON))
    harness.metadata["startTime"] = NOON - timedelta(minutes=6)

    result = await harness.run("WAIT", {"duration": "5m"})

    assert result.status is StageStatus.SUCCESS
    assert harness.clock.now() == NOON


async def test_a_first_wait_is_not_shortened_by_the_fraction_of_its_second() -> None:
    start = NOON + timedelta(milliseconds=900)
    harness = StageHarness(Wait(), clock=FakeClock(start))

    await harness.run("WAIT", {"duration": "1s"})

    assert harness.clock.now() == start + timedelta(seconds=1)


async def test_a_cancelled_wait_stops_at_once() -> None:
    harness = StageHarness(Wait(), clock=FakeClock(NOON, frozen=True))
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(harness.run("WAIT", {"duration": "5m"}))
        await harness.wait_logged("Waiting 5m0s, until 2024-01-02 12:05:00 UTC")

        waiting.cancel()

    assert waiting.cancelled()


async def test_stored_nonsense_fails_with_a_reason() -> None:
    harness = StageHarness(Wait())
    harness.metadata["startTime"] = "yesterday"

    result = await harness.run("WAIT", {"duration": "5m"})

    assert result.status is StageStatus.FAILURE
    assert result.reason == "the metadata 'startTime' is no time: 'yesterday'"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "stages[0].with.duration: missing"),
        ({"duration": "soon"}, "stages[0].with.duration: not a duration: 'soon' (e.g. 90s, 5m)"),
        ({"duration": "-5m"}, "stages[0].with.duration: must be longer than 0s: -5m0s"),
        ({"duration": "0s"}, "stages[0].with.duration: must not be empty"),
        (
            {"duration": "30"},
            "stages[0].with.duration: not a duration: '30' has no unit (e.g. 30s for seconds)",
        ),
    ],
)
async def test_a_wrong_duration_is_told_when_the_deployment_is_planned(
    options: dict[str, str], fault: str
) -> None:
    assert StageHarness(Wait()).faults(("WAIT", options)) == [fault]


async def test_nothing_but_the_wait_itself_is_planned() -> None:
    (planned,) = StageHarness(Wait()).plan(("WAIT", {"Duration": "1m"}), rollback=True)

    assert (planned.name, planned.index, planned.rollback) == ("WAIT", 0, False)


async def test_a_person_can_skip_it() -> None:
    """As with upstream's ANALYSIS: who is sure does not wait any longer."""
    harness = StageHarness(Wait(), clock=FakeClock(NOON, frozen=True))
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(harness.run("WAIT", {"duration": "5m"}))
        await harness.wait_logged("Waiting 5m0s, until 2024-01-02 12:05:00 UTC")
        harness.send(CommandKind.APPROVE, by="bob")
        harness.send(CommandKind.SKIP, by="ann")

    result = waiting.result()
    assert result.status is StageStatus.SKIPPED
    assert "Skipped by ann" in harness.text


def test_it_offers_to_be_skipped() -> None:
    (planned,) = StageHarness(Wait()).plan(("WAIT", {"duration": "5m"}))

    assert planned.operation is Operation.SKIP
