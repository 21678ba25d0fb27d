# SPDX-License-Identifier: Apache-2.0
"""What a handler returns or raises, and what becomes of it."""

import asyncio
import logging

import pytest

from pipecd_sdk import (
    Exit,
    Outcome,
    PipedError,
    Severity,
    Skip,
    StageConfig,
    StageContext,
    StageFailedError,
    StagePlugin,
    StageStatus,
    stage,
)
from pipecd_sdk.testing import StageHarness


class Options(StageConfig):
    count: int = 0


class Ending(StagePlugin):
    def __init__(self, result: object = None, error: Exception | None = None) -> None:
        self._result = result
        self._error = error

    @stage("END")
    async def end(self, ctx: StageContext, options: Options) -> Outcome | None:
        if self._error:
            raise self._error
        return self._result  # type: ignore[return-value]  # a wrong one is tested too

    @stage("WAIT")
    async def wait(self, ctx: StageContext) -> None:
        ctx.log.info("waiting")
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("result", "status"),
    [(None, StageStatus.SUCCESS), (Exit, StageStatus.EXITED), (Skip, StageStatus.SKIPPED)],
)
async def test_what_is_returned_decides(result: Outcome | None, status: StageStatus) -> None:
    ended = await StageHarness(Ending(result)).run("END", {})

    assert ended.status is status
    assert ended.reason == ""


async def test_a_failure_has_its_reason_in_the_log_and_in_the_answer() -> None:
    harness = StageHarness(Ending(error=StageFailedError("no disk left", hint="buy one")))

    ended = await harness.run("END", {})

    assert ended.status is StageStatus.FAILURE
    assert ended.reason == "no disk left (buy one)"
    (line,) = harness.log
    assert (line.severity, line.text) == (Severity.ERROR, ended.reason)


async def test_options_that_cannot_be_read_fail_the_stage_with_all_faults() -> None:
    harness = StageHarness(Ending())

    ended = await harness.run("END", {"count": "many"}, index=3)

    assert ended.status is StageStatus.FAILURE
    assert ended.reason.startswith("stages[3].with.count: ")
    assert harness.log[0].text == ended.reason


async def test_an_unknown_option_is_told_in_the_log() -> None:
    harness = StageHarness(Ending())

    ended = await harness.run("END", {"cuont": 3})

    assert ended.status is StageStatus.SUCCESS
    assert harness.log[0].text.startswith("stages[0].with.cuont: unknown key")


async def test_a_piped_that_does_not_answer_is_a_reason_too() -> None:
    ended = await StageHarness(Ending(error=PipedError("UNAVAILABLE: gone"))).run("END", {})

    assert ended.status is StageStatus.FAILURE
    assert ended.reason == "piped could not be asked: UNAVAILABLE: gone"


async def test_a_bug_is_told_as_one_and_its_text_goes_to_operators_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = StageHarness(Ending(error=KeyError("password=hunter2")))

    with caplog.at_level(logging.ERROR):
        ended = await harness.run("END", {})

    assert ended.status is StageStatus.FAILURE
    assert ended.reason == "KeyError in the plugin; piped's log has the details"
    assert "hunter2" not in harness.text
    assert "hunter2" in caplog.text


async def test_a_handler_that_returns_something_else_is_a_bug() -> None:
    ended = await StageHarness(Ending(result=True)).run("END", {})

    assert ended.status is StageStatus.FAILURE
    assert ended.reason.startswith("TypeError in the plugin")


async def test_a_cancellation_is_no_result() -> None:
    harness = StageHarness(Ending())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("WAIT"))
        await harness.wait_logged("waiting")
        running.cancel()

    assert running.cancelled()
