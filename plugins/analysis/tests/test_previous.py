# SPDX-License-Identifier: Apache-2.0
"""PREVIOUS: the same moments of the last successful analysis of an earlier deployment."""

import json
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from pipecd_plugin_analysis.plugin import Analysis
from pipecd_plugin_analysis.previous import FinishedAnalysis, add_result, find_previous

from pipecd_sdk import PipedError, StageStatus
from pipecd_sdk.testing import NOON, FakeClock, StageHarness
from pipecd_sdk.testing.in_memory import InMemoryObjects
from pipecd_test_support.web_server import Answer, Question, WebServer

LATEST = "latest-analysis-result"
DAY = timedelta(days=1)
NOW = int(NOON.timestamp())
YESTERDAY = int((NOON - DAY).timestamp())


class Past:
    """A system of metrics that knows its values by the time; what it was asked is kept."""

    def __init__(self, web: WebServer) -> None:
        self.values: dict[int, list[float]] = {}
        """By the Unix second that a window ends."""
        self.windows: list[tuple[int, int]] = []
        web.give("/api/v1/query_range", self._answer)
        self.entry = {"name": "prom", "type": "PROMETHEUS", "config": {"address": web.url}}

    def _answer(self, question: Question) -> Answer:
        start, end = (round(float(question.query[key][0])) for key in ("start", "end"))
        self.windows.append((start, end))
        points = [[start, str(each)] for each in self.values.get(end, [])]
        result = [{"metric": {}, "values": points}] if points else []
        data = {"resultType": "matrix", "result": result}
        return Answer(body=json.dumps({"status": "success", "data": data}).encode())


@pytest.fixture
def past(web: WebServer) -> Past:
    return Past(web)


def make(past: Past, deployment_id: str = "deployment-1", **more: Any) -> StageHarness[Analysis]:
    harness = StageHarness(Analysis(), config={"analysisProviders": [past.entry]}, **more)
    harness.deployment = msgspec.structs.replace(harness.deployment, id=deployment_id)
    return harness


def options(**more: Any) -> dict[str, Any]:
    entry = {"provider": "prom", "query": "up", "interval": "5m", "strategy": "PREVIOUS", **more}
    return {"duration": "10m", "metrics": [entry]}


def record_of(harness: StageHarness[Analysis]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(harness.metadata["analysis/metrics-0"])
    return found


async def test_now_is_compared_with_the_same_moments_of_the_last_successful_analysis(
    past: Past,
) -> None:
    """The window is as wide, and as long after the start of its analysis."""
    harness = make(past)
    harness.shared.values[LATEST] = json.dumps({"start_time": YESTERDAY}).encode()
    past.values = {
        YESTERDAY + 300: [1, 2, 3, 4],
        NOW + 300: [2, 1, 4, 3],
        YESTERDAY + 600: [1, 2, 3, 4],
        NOW + 600: [5, 6, 7, 8],
    }

    result = await harness.run("ANALYSIS", options(deviation="HIGH"))

    assert result.status is StageStatus.FAILURE
    assert "now is higher than the previous deployment" in result.reason
    assert past.windows == [
        (NOW, NOW + 300),
        (YESTERDAY, YESTERDAY + 300),
        (NOW + 300, NOW + 600),
        (YESTERDAY + 300, YESTERDAY + 600),
    ]
    first, second = record_of(harness)["evaluations"]
    assert (first["verdict"], second["verdict"]) == ("EXPECTED", "UNEXPECTED")
    assert (second["values"], second["control"]) == ([5, 6, 7, 8], [1, 2, 3, 4])
    assert second["pValue"] == pytest.approx(1 / 70, rel=1e-4)


class AwayObjects(InMemoryObjects):
    """Objects of a control plane that is away for some time."""

    def __init__(self, clock: FakeClock, *, until: datetime) -> None:
        super().__init__()
        self._clock = clock
        self._until = until

    async def get(self, key: str) -> bytes | None:
        if self._clock.now() < self._until:
            raise PipedError("the control plane is away")
        return await super().get(key)


async def test_a_control_plane_that_is_away_is_asked_again_until_the_first_look(
    past: Past,
) -> None:
    for minutes, status in ((4, StageStatus.SUCCESS), (6, StageStatus.FAILURE)):
        clock = FakeClock()
        harness = make(past, clock=clock)
        harness.shared = AwayObjects(clock, until=NOON + timedelta(minutes=minutes))
        harness.shared.values[LATEST] = json.dumps({"start_time": YESTERDAY}).encode()
        past.windows.clear()

        result = await harness.run("ANALYSIS", options())

        assert result.status is status, result.reason
        looks = [NOW + 300, YESTERDAY + 300, NOW + 600, YESTERDAY + 600]
        assert [end for _, end in past.windows] == (looks if not result.reason else [])
        assert "is not known, and is asked for again: the control plane is away" in harness.text
    assert result.reason == "piped could not be asked: the control plane is away"


async def test_the_windows_stay_where_they_were_after_a_restart(past: Past) -> None:
    """Not by the time since the restart: the looks of both analyses are counted from their start.

    Nor is another analysis taken when the object has changed meanwhile.
    """
    harness = make(past, clock=FakeClock(NOON + timedelta(minutes=7)))
    harness.metadata["startTime"] = NOON
    harness.metadata["previousStartTime"] = str(YESTERDAY)
    harness.shared.values[LATEST] = json.dumps({"start_time": NOW}).encode()

    result = await harness.run("ANALYSIS", options())

    assert result.status is StageStatus.SUCCESS, result.reason
    assert [end for _, end in past.windows] == [
        NOW + 300,
        YESTERDAY + 300,
        NOW + 600,
        YESTERDAY + 600,
    ]


async def test_without_an_earlier_analysis_there_is_nothing_to_compare_with(past: Past) -> None:
    harness = make(past)

    first = await harness.run("ANALYSIS", options())

    assert first.status is StageStatus.SUCCESS
    assert past.windows == []
    assert "there is no earlier analysis to compare with" in harness.text
    assert record_of(harness)["ended"].startswith("there is no earlier analysis")
    assert json.loads(harness.shared.values[LATEST])["start_time"] == NOW, "the next has something"


async def test_a_second_analysis_of_a_pipeline_is_not_compared_with_its_first(past: Past) -> None:
    """Both keep their own: the next deployment compares stage by stage."""
    day_one = make(past, "one")
    await day_one.run("ANALYSIS", options(), index=1)
    second = make(past, "one", clock=FakeClock(NOON + timedelta(hours=1)))
    second.shared.values.update(day_one.shared.values)
    await second.run("ANALYSIS", options(), index=3)
    assert "there is no earlier analysis" in second.text

    day_two = make(past, "two", clock=FakeClock(NOON + DAY))
    day_two.shared.values.update(second.shared.values)
    await day_two.run("ANALYSIS", options(), index=1)
    assert past.windows[1] == (NOW, NOW + 300)
    past.windows.clear()
    later = make(past, "two", clock=FakeClock(NOON + DAY + timedelta(hours=1)))
    later.shared.values.update(day_two.shared.values)
    await later.run("ANALYSIS", options(), index=3)
    assert past.windows[1] == (NOW + 3600, NOW + 3600 + 300)


async def test_an_earlier_analysis_of_a_moment_ago_is_warned_of(past: Past) -> None:
    """The same moments of it are then moments of this one."""
    harness = make(past)
    harness.shared.values[LATEST] = json.dumps({"start_time": NOW - 420}).encode()

    await harness.run("ANALYSIS", options())

    warnings = [each.get("warning", "") for each in record_of(harness)["evaluations"]]
    assert warnings[0] == ""
    assert "begun so shortly before this one" in warnings[1]


async def test_a_failed_analysis_is_not_what_the_next_one_compares_with(
    past: Past,
) -> None:
    harness = make(past)
    kept = json.dumps({"start_time": YESTERDAY}).encode()
    harness.shared.values[LATEST] = kept
    past.values = {NOW + 300: [5], NOW + 600: [5]}  # and nothing of yesterday

    result = await harness.run("ANALYSIS", options())

    assert "no values of the previous deployment, while now has 1 value: 5" in result.reason
    assert harness.shared.values[LATEST] == kept


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"start_time": "x"}', b'{"start_time": 1e30}', b"{}"]
)
def test_what_cannot_be_read_is_no_earlier_analysis(raw: bytes) -> None:
    assert find_previous(raw, deployment_id="d", stage_index=0) is None


def test_what_another_agent_wrote_last_is_what_counts() -> None:
    """It keeps nothing but its own start."""
    finished = FinishedAnalysis(start_time=1000, deployment_id="one", stage_index=1)
    document = json.loads(add_result(None, finished))

    found = find_previous(
        json.dumps({**document, "start_time": 2000}).encode(), deployment_id="two", stage_index=1
    )

    assert found is not None
    assert int(found.timestamp()) == 2000


def test_what_is_kept_for_the_next_deployment_is_bounded() -> None:
    raw: bytes | None = None
    for index in range(100):
        finished = FinishedAnalysis(start_time=index, deployment_id="d" * 36, stage_index=index)
        raw = add_result(raw, finished)

    assert raw is not None
    assert len(raw) < 4096


@pytest.mark.parametrize("kind", ["url", "provider"])
def test_an_address_that_only_knows_what_is_now_is_refused(kind: str) -> None:
    """It would be compared with itself, and always look good."""
    http = {"name": "json", "type": "HTTP", "config": {"address": "https://a.example"}}
    harness = StageHarness(Analysis(), config={"analysisProviders": [http]})
    where = {"url": "https://a.example"} if kind == "url" else {"provider": "json", "query": "/a"}
    entry = {**where, "interval": "5m", "strategy": "PREVIOUS"}

    [fault] = harness.faults(("ANALYSIS", {"duration": "10m", "metrics": [entry]}))

    assert fault.startswith("stages[0].with.metrics[0].strategy: PREVIOUS asks about the past")
