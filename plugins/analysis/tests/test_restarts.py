# SPDX-License-Identifier: Apache-2.0
"""The plugin is killed (kill -9) in the middle of an analysis, and another one goes on."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pipecd_sdk import CommandKind
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import PluginProcess, executable, start_plugin
from pipecd_test_support.web_server import Answer, Question, WebServer
from pipecd_wire.model import deployment_pb2
from pipecd_wire.rpc import CallError

COMMAND = [executable("pipecd-plugin-analysis")]
INTERVAL_SECONDS = 0.2
STAGE = "s1"


class LooksSource:
    """A Prometheus that knows its numbers by the look, also by one that comes late.

    It keeps the look after `held` waiting until the first plugin is dead.
    """

    def __init__(self, web: WebServer, *, bad: set[int], held: int) -> None:
        self.is_killed = threading.Event()
        self.held = held
        self._bad = bad
        self._start: float | None = None
        web.give("/api/v1/query_range", self._answer)
        provider = {"name": "prom", "type": "PROMETHEUS", "config": {"address": web.url}}
        self.entry = {"config": {"analysisProviders": [provider]}}

    def _answer(self, question: Question) -> Answer:
        end = float(question.query["end"][0])
        if self._start is None:
            self._start = end - INTERVAL_SECONDS
        number = round((end - self._start) / INTERVAL_SECONDS)
        if number > self.held:
            self.is_killed.wait(60)
        data = {"resultType": "scalar", "result": [end, "0.9" if number in self._bad else "0.1"]}
        return Answer(body=json.dumps({"status": "success", "data": data}).encode())


def make_options(duration: str, **more: Any) -> dict[str, Any]:
    entry = {"provider": "prom", "query": "up", "interval": "200ms", "expected": {"max": 0.5}}
    return {"duration": duration, "metrics": [{**entry, **more}]}


def record_of(piped: FakePiped) -> dict[str, Any]:
    kept = piped.stage_metadata.get(STAGE, {}).get("analysis/metrics-0")
    return json.loads(kept) if kept else {"done": 0}


@asynccontextmanager
async def follow_killed(
    source: LooksSource, options: Mapping[str, Any]
) -> AsyncIterator[tuple[FakePiped, PluginProcess]]:
    """A plugin that comes after one that was killed when it had kept the looks before the held."""
    async with FakePiped() as piped:
        async with (
            start_plugin(piped, COMMAND, name="analysis", entry=source.entry) as first,
            asyncio.TaskGroup() as tasks,
        ):
            running = tasks.create_task(run_until_killed(first, options))
            await piped.wait_until(lambda: record_of(piped)["done"] == source.held)
            first.process.kill()
            await first.exit_code()
            source.is_killed.set()
            await running
        async with start_plugin(piped, COMMAND, name="analysis", entry=source.entry) as second:
            yield piped, second


async def run_until_killed(plugin: PluginProcess, options: Mapping[str, Any]) -> None:
    with pytest.raises(CallError):
        await plugin.execute("ANALYSIS", options, stage_id=STAGE)


async def test_failures_from_before_and_after_count_together(web: WebServer) -> None:
    source = LooksSource(web, bad={2, 9}, held=4)
    options = make_options("1h", failureLimit=1)
    async with follow_killed(source, options) as (piped, plugin):
        answer = await plugin.execute("ANALYSIS", options, stage_id=STAGE)

        record = record_of(piped)
    assert answer.status == deployment_pb2.STAGE_FAILURE
    assert "metrics-0 failed 2 times, 1 allowed" in answer.message
    assert (record["done"], record["evaluated"], record["allFailures"]) == (9, 9, 2)
    times = [each["at"] for each in record["evaluations"]]
    assert len(times) == 9, "none is lost, none is made twice"


async def test_failures_that_are_forgotten_stay_forgotten(web: WebServer) -> None:
    """Three failures of which never two are within the window: one before the death."""
    source = LooksSource(web, bad={2, 6, 10}, held=4)
    options = make_options("2400ms", failureLimit=1, failureWindow="600ms")
    async with follow_killed(source, options) as (piped, plugin):
        answer = await plugin.execute("ANALYSIS", options, stage_id=STAGE)

        record = record_of(piped)
    assert answer.status == deployment_pb2.STAGE_SUCCESS, answer.message
    assert (record["done"], record["allFailures"]) == (12, 3)


async def test_a_failure_that_is_not_forgotten_yet_counts_after_the_death(web: WebServer) -> None:
    source = LooksSource(web, bad={4, 6}, held=4)
    options = make_options("1h", failureLimit=1, failureWindow="600ms")
    async with follow_killed(source, options) as (piped, plugin):
        answer = await plugin.execute("ANALYSIS", options, stage_id=STAGE)

        record = record_of(piped)
    assert answer.status == deployment_pb2.STAGE_FAILURE
    assert "metrics-0 failed 2 times within 600ms, 1 allowed" in answer.message
    assert record["done"] == 6


async def test_a_skip_that_came_while_nobody_was_there_is_heard(web: WebServer) -> None:
    source = LooksSource(web, bad=set(), held=3)
    options = make_options("1h")
    async with follow_killed(source, options) as (piped, plugin):
        await piped.send(CommandKind.SKIP, STAGE, by="alice")
        answer = await plugin.execute("ANALYSIS", options, stage_id=STAGE)

        record = record_of(piped)
        kept = piped.stage_metadata[STAGE]
        shared = dict(piped.shared_objects)
    assert answer.status == deployment_pb2.STAGE_SKIPPED
    assert kept["pipecd/stage-display-metadata"] == "Skipped by alice"
    assert record["done"] >= 3, "the numbers from before are still there"
    assert shared == {}, "a skipped analysis is nothing to compare with"
