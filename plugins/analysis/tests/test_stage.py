# SPDX-License-Identifier: Apache-2.0
"""ANALYSIS from its options to its result, with numbers from a web server of this machine."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_analysis.plugin import Analysis

from pipecd_sdk import CommandKind, StageStatus
from pipecd_sdk.testing import NOON, FakeClock, StageHarness
from pipecd_test_support.web_server import Answer, Question, WebServer

LOCAL = {"allowedHosts": ["127.0.0.0/8"]}
LATEST = "latest-analysis-result"


def make(**more: Any) -> StageHarness[Analysis]:
    return StageHarness(Analysis(), config=LOCAL, **more)


def serve_numbers(web: WebServer, path: str, numbers: Callable[[int], list[float]]) -> str:
    """Serve a list for each question, by the number of the question; returns the address."""
    asked = 0

    def answer(_question: Question) -> Answer:
        nonlocal asked
        asked += 1
        return Answer(body=json.dumps({"values": numbers(asked)}).encode())

    web.give(path, answer)
    return f"{web.url}{path}"


def metric(url: str, **more: Any) -> dict[str, Any]:
    found = {"url": url, "jsonPath": "$.values", "interval": "1m", "expected": {"max": 0.5}}
    return {**found, **more}


def record_of(harness: StageHarness[Analysis], name: str = "metrics-0") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(harness.metadata[f"analysis/{name}"])
    return found


async def test_a_metric_in_its_range_lets_the_pipeline_go_on(web: WebServer) -> None:
    harness = make()
    url = serve_numbers(web, "/rate", lambda _: [0.1, 0.2])

    result = await harness.run("ANALYSIS", {"duration": "3m", "metrics": [metric(url)]})

    assert result.status is StageStatus.SUCCESS, result.reason
    assert len(web.asked) == 3, "one interval after the start first, the last at the end"
    assert harness.clock.now() == NOON + timedelta(minutes=3)
    assert harness.metadata["elapsedTime"] == "3m0s"
    assert harness.metadata["pipecd/stage-display-metadata"] == "3 evaluations, no failures"
    assert json.loads(harness.shared.values[LATEST])["start_time"] == int(NOON.timestamp())


async def test_the_numbers_of_each_evaluation_are_kept_with_the_stage(web: WebServer) -> None:
    harness = make()
    url = serve_numbers(web, "/rate", lambda number: [number / 10, 0.0])

    await harness.run("ANALYSIS", {"duration": "2m", "metrics": [metric(url)]})

    record = record_of(harness)
    assert record["strategy"] == "THRESHOLD"
    assert record["expected"] == {"max": 0.5}
    assert (record["looks"], record["done"]) == (2, 2)
    assert [each["values"] for each in record["evaluations"]] == [[0.1, 0.0], [0.2, 0.0]]
    assert [each["at"] for each in record["evaluations"]] == [
        int(NOON.timestamp()) + 60,
        int(NOON.timestamp()) + 120,
    ]
    assert "[metrics-0] 2 values from 0 to 0.2, median 0.1; expected at most 0.5" in harness.text


async def test_more_failures_than_the_limit_fail_the_stage_at_once(web: WebServer) -> None:
    harness = make()
    url = serve_numbers(web, "/rate", lambda number: [0.9] if number in {2, 4} else [0.1])
    options = {"duration": "1h", "metrics": [metric(url, failureLimit=1)]}

    result = await harness.run("ANALYSIS", options)

    assert result.status is StageStatus.FAILURE
    assert result.reason == (
        "metrics-0 failed 2 times, 1 allowed; the last: 0.9 is out of range: 1 value: 0.9;"
        " expected at most 0.5"
    )
    assert len(web.asked) == 4
    assert "failed 2 times" in harness.metadata["pipecd/stage-display-metadata"]
    assert LATEST not in harness.shared.values


async def test_failures_decay_when_a_window_is_given(web: WebServer) -> None:
    """Without one a failure is never forgotten: a long analysis would fail by and by."""
    numbers = {1: 0.9, 4: 0.9, 7: 0.9}
    url = serve_numbers(web, "/rate", lambda number: [numbers.get(number, 0.1)])
    forgetful, strict = make(), make()
    entry = metric(url, failureLimit=1)

    decayed = await forgetful.run(
        "ANALYSIS", {"duration": "9m", "metrics": [{**entry, "failureWindow": "3m"}]}
    )
    web.asked.clear()
    other = serve_numbers(web, "/again", lambda number: [numbers.get(number, 0.1)])
    failed = await strict.run(
        "ANALYSIS", {"duration": "9m", "metrics": [metric(other, failureLimit=1)]}
    )

    assert decayed.status is StageStatus.SUCCESS, decayed.reason
    assert record_of(forgetful)["allFailures"] == 3
    assert failed.status is StageStatus.FAILURE


async def test_an_option_without_effect_is_told_in_the_log(web: WebServer) -> None:
    harness = make()
    url = serve_numbers(web, "/errors", lambda _: [1.0])
    options = {"duration": "1m", "restartThreshold": 3, "metrics": [metric(url)]}

    await harness.run("ANALYSIS", options)

    assert "restartThreshold: has no effect" in harness.text


async def test_a_limit_of_zero_holds(web: WebServer) -> None:
    harness = make()
    url = serve_numbers(web, "/errors", lambda _: [0.001])
    options = {"duration": "1m", "metrics": [metric(url, expected={"max": 0})]}

    result = await harness.run("ANALYSIS", options)

    assert "0.001 is out of range" in result.reason


async def test_no_data_is_a_failure_unless_it_is_allowed(web: WebServer) -> None:
    web.give("/none", lambda _: Answer(body=b'{"other": 1}'))
    entry = metric(f"{web.url}/none")
    strict, lenient = make(), make()

    failed = await strict.run("ANALYSIS", {"duration": "1m", "metrics": [entry]})
    passed = await lenient.run(
        "ANALYSIS", {"duration": "1m", "metrics": [{**entry, "skipOnNoData": True}]}
    )

    assert 'no data: the answer has nothing at $["values"]' in failed.reason
    assert passed.status is StageStatus.SUCCESS
    assert record_of(lenient)["evaluations"][0]["verdict"] == "NO_DATA"


async def test_an_answer_that_does_not_come_in_time_is_a_failure(web: WebServer) -> None:
    """The time of a template counts, too, when a stage names one."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait(_question: Question) -> Answer:
        asyncio.run_coroutine_threadsafe(ended.wait(), loop).result(30)
        return Answer(body=b"{}")

    web.give("/slow", wait)
    harness = make()
    options = {"duration": "1m", "metrics": [metric(f"{web.url}/slow", timeout="200ms")]}

    result = await harness.run("ANALYSIS", options)
    ended.set()

    assert "there was no answer within 200ms" in result.reason


async def test_the_canary_is_compared_with_the_primary_and_the_p_value_is_shown(
    web: WebServer,
) -> None:
    serve_numbers(web, "/primary", lambda _: [1, 2, 3, 4])
    serve_numbers(web, "/web-canary", lambda _: [5, 6, 7, 8])
    harness = make()
    entry = metric(
        f"{web.url}/{{{{ .VariantCustomArgs.path }}}}",
        strategy="CANARY_PRIMARY",
        deviation="HIGH",
        canaryArgs={"path": "web-canary"},
        primaryArgs={"path": "primary"},
    )

    result = await harness.run("ANALYSIS", {"duration": "1m", "metrics": [entry]})

    assert "canary is higher than primary" in result.reason
    [kept] = record_of(harness)["evaluations"]
    assert kept["pValue"] == pytest.approx(1 / 70, rel=1e-4)
    assert (kept["values"], kept["control"]) == ([5, 6, 7, 8], [1, 2, 3, 4])


async def test_the_canary_is_compared_with_the_baseline(web: WebServer) -> None:
    serve_numbers(web, "/baseline", lambda _: [1, 2, 3, 4])
    serve_numbers(web, "/canary", lambda _: [2, 1, 4, 3])
    harness = make()
    entry = metric(f"{web.url}/{{{{ .Variant.Name }}}}", strategy="CANARY_BASELINE")

    result = await harness.run("ANALYSIS", {"duration": "1m", "metrics": [entry]})

    assert result.status is StageStatus.SUCCESS, result.reason
    assert sorted(web.asked) == ["GET /baseline", "GET /canary"]


async def test_checks_ask_for_200_by_default_and_can_look_at_the_body(web: WebServer) -> None:
    web.give("/healthy", lambda _: Answer(body=b" ok\n"))
    web.give("/broken", lambda _: Answer(status=500))
    web.give("/echo", lambda question: Answer(status=201, body=question.body))
    good: list[dict[str, Any]] = [
        {"url": f"{web.url}/healthy", "interval": "1m"},
        {"url": f"{web.url}/healthy", "interval": "1m", "expectedResponse": "ok"},
        {
            "url": f"{web.url}/echo",
            "method": "POST",
            "body": "app {{ .App.Name }}",
            "interval": "1m",
            "expectedCode": 201,
            "expectedResponsePattern": "^app sh?op$",
        },
    ]

    passed = await make().run("ANALYSIS", {"duration": "1m", "https": good})
    status = await make().run(
        "ANALYSIS", {"duration": "1m", "https": [{"url": f"{web.url}/broken", "interval": "1m"}]}
    )
    body = await make().run(
        "ANALYSIS", {"duration": "1m", "https": [{**good[1], "expectedResponse": "fine"}]}
    )
    pattern = await make().run(
        "ANALYSIS", {"duration": "1m", "https": [{**good[0], "expectedResponsePattern": "^up"}]}
    )

    assert passed.status is StageStatus.SUCCESS, passed.reason
    assert "it answers 500, expected 200" in status.reason
    assert "it answers 'ok', expected 'fine'" in body.reason or "expected 'fine'" in body.reason
    assert "the answer does not have '^up'" in pattern.reason


async def test_a_skip_ends_the_stage_at_once_and_names_who_did_it(web: WebServer) -> None:
    harness = make(clock=FakeClock(frozen=True))
    url = serve_numbers(web, "/rate", lambda _: [0.1])

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(
            harness.run("ANALYSIS", {"duration": "1h", "metrics": [metric(url)]})
        )
        await harness.wait_logged("Analysing for 1h0m0s")
        harness.send(CommandKind.SKIP, by="alice")
        async with asyncio.timeout(30):
            result = await running

    assert result.status is StageStatus.SKIPPED
    assert harness.metadata["pipecd/stage-display-metadata"] == "Skipped by alice"
    assert LATEST not in harness.shared.values


async def test_a_restarted_stage_goes_on_with_its_time_and_its_failures(web: WebServer) -> None:
    """Killed after three of five minutes with one failure: the next failure is the second."""
    numbers = {1: 0.01, 2: 0.92, 3: 0.03, 4: 0.94}
    url = serve_numbers(web, "/rate", lambda number: [numbers[number]])
    options = {"duration": "5m", "metrics": [metric(url, failureLimit=1)]}
    clock = FakeClock(frozen=True)
    harness = make(clock=clock)
    killed = asyncio.create_task(harness.run("ANALYSIS", options))
    await harness.wait_logged("Analysing")
    for number in range(1, 4):
        await clock.advance(timedelta(minutes=1))
        await harness.wait_logged(f"1 value: {numbers[number]}")
    await asyncio.sleep(0)  # kept in the same step of the loop
    before = dict(harness.metadata.values)
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)

    again = make(clock=FakeClock(NOON + timedelta(minutes=3, seconds=30)))
    again.metadata.values.update(before)
    result = await again.run("ANALYSIS", options)

    assert before["elapsedTime"] == "3m0s"
    assert before["startTime"] == str(int(NOON.timestamp()))
    looks = [each["at"] - int(NOON.timestamp()) for each in record_of(again)["evaluations"]]
    assert looks == [60, 120, 180, 240], "they keep their times"
    assert result.status is StageStatus.FAILURE
    assert "failed 2 times, 1 allowed" in result.reason


async def test_looks_that_were_missed_are_made_up_for_and_the_end_stays(web: WebServer) -> None:
    harness = make(clock=FakeClock(NOON + timedelta(minutes=9)))
    harness.metadata["startTime"] = NOON
    url = serve_numbers(web, "/rate", lambda _: [0.1])
    web.give("/up", lambda _: Answer())
    options = {
        "duration": "5m",
        "metrics": [metric(url)],
        "https": [{"url": f"{web.url}/up", "interval": "1m"}],
    }

    result = await harness.run("ANALYSIS", options)

    assert result.status is StageStatus.SUCCESS, result.reason
    assert harness.clock.now() == NOON + timedelta(minutes=9), "it was over already"
    assert web.asked.count("GET /up") == 1, "an address cannot be asked about the past"
    assert web.asked.count("GET /rate") == 1, "nor can one that answers with numbers"


async def test_a_stage_that_is_retried_begins_anew(web: WebServer) -> None:
    """What failed once would fail at once again if its time and failures still counted."""
    harness = make()
    url = serve_numbers(web, "/rate", lambda number: [0.9 if number == 1 else 0.1])
    options = {"duration": "2m", "metrics": [metric(url)]}

    first = await harness.run("ANALYSIS", options)
    second = await harness.run("ANALYSIS", options, retried_count=1)

    assert first.status is StageStatus.FAILURE
    assert second.status is StageStatus.SUCCESS, second.reason
    record = record_of(harness)
    assert (record["attempt"], record["evaluated"]) == (1, 2)
    assert "allFailures" not in record


async def test_infinite_values_are_kept_so_that_a_restart_does_not_forget_failures(
    web: WebServer,
) -> None:
    web.give("/rate", Answer(body=b'{"values": ["+Inf", "-Inf", 1e300, "0.25"]}'))
    options = {
        "duration": "2m",
        "metrics": [metric(f"{web.url}/rate", failureLimit=1)],
    }
    clock = FakeClock(frozen=True)
    harness = make(clock=clock)
    killed = asyncio.create_task(harness.run("ANALYSIS", options))
    await harness.wait_logged("Analysing")
    await clock.advance(timedelta(minutes=1))
    await harness.wait_logged("failure 1, 1 allowed")
    await asyncio.sleep(0)  # kept in the same step of the loop
    before = dict(harness.metadata.values)
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)
    again = make(clock=FakeClock(NOON + timedelta(minutes=1)))
    again.metadata.values.update(before)

    result = await again.run("ANALYSIS", options)

    assert json.loads(before["analysis/metrics-0"])["evaluations"][0]["values"] == [
        *("Infinity", "-Infinity"),
        *(1e300, 0.25),
    ]
    assert "failed 2 times, 1 allowed" in result.reason


async def test_a_stage_that_another_agent_began_goes_on_with_the_time_it_kept(
    web: WebServer,
) -> None:
    harness = make()
    harness.metadata["elapsedTime"] = "4m30s"
    url = serve_numbers(web, "/rate", lambda _: [0.1])

    await harness.run("ANALYSIS", {"duration": "5m", "metrics": [metric(url)]})

    assert harness.clock.now() == NOON + timedelta(seconds=30)


TEMPLATE = """
apiVersion: pipecd.dev/v1beta1
kind: AnalysisTemplate
spec:
  metrics:
    errors:
      url: {url}/{{{{ .AppCustomArgs.kind }}}}/{{{{ .AppCustomArgs.env }}}}
      jsonPath: $.values
      interval: 1m
      timeout: {timeout}
      expected: {{max: 0.5}}
    rare: {{url: "{url}/x", jsonPath: $.values, interval: 1h, expected: {{max: 1}}}}
"""


def with_templates(web: WebServer, folder: Path, *, timeout: str = "30s") -> StageHarness[Analysis]:
    (folder / ".pipe").mkdir()
    (folder / ".pipe" / "a.yaml").write_text("apiVersion: pipecd.dev/v1beta1\nkind: EventWatcher\n")
    (folder / ".pipe" / "b.yaml").write_text(TEMPLATE.format(url=web.url, timeout=timeout))
    (folder / ".pipe" / "c.yaml").write_text(
        "kind: AnalysisTemplate\nspec: {metrics: {other: {}}}\n"
    )
    return make(
        options={"appCustomArgs": {"kind": "errors", "env": "dev"}},
        shared_config_directory=folder / ".pipe",
    )


async def test_a_template_is_used_with_the_arguments_of_application_and_stage(
    web: WebServer, tmp_path: Path
) -> None:
    harness = with_templates(web, tmp_path)
    serve_numbers(web, "/errors/live", lambda _: [0.1])
    entry = {"template": {"name": "errors", "appArgs": {"env": "live"}}}

    result = await harness.run("ANALYSIS", {"duration": "1m", "metrics": [entry]})

    assert result.status is StageStatus.SUCCESS, result.reason
    assert record_of(harness)["name"] == "errors"


async def test_the_time_limit_of_a_template_counts(web: WebServer, tmp_path: Path) -> None:
    """Not the default of the stage's own entry, which is longer."""
    harness = with_templates(web, tmp_path, timeout="200ms")
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait(_question: Question) -> Answer:
        asyncio.run_coroutine_threadsafe(ended.wait(), loop).result(30)
        return Answer(body=b"{}")

    web.give("/errors/dev", wait)

    result = await harness.run(
        "ANALYSIS", {"duration": "1m", "metrics": [{"template": {"name": "errors"}}]}
    )
    ended.set()

    assert "there was no answer within 200ms" in result.reason


async def test_all_that_is_wrong_with_templates_is_told_at_once(
    web: WebServer, tmp_path: Path
) -> None:
    harness = with_templates(web, tmp_path)
    entries = [{"template": {"name": "erors"}}, {"template": {"name": "rare"}}]

    result = await harness.run("ANALYSIS", {"duration": "1m", "metrics": entries})

    assert (
        "metrics[0]: there is no analysis template 'erors' in .pipe/ (there are errors, rare)"
        in (result.reason)
    )
    assert "metrics[1]: the template 'rare': interval: 1h0m0s is longer" in result.reason


async def test_queries_that_cannot_be_rendered_fail_before_anything_is_asked(
    web: WebServer,
) -> None:
    entries = [metric(f"{web.url}/{{{{ .AppCustomArgs.a }}}}"), metric(f"{web.url}/{{{{ nope }}}}")]

    result = await make().run("ANALYSIS", {"duration": "1m", "metrics": entries})

    assert "metrics-0: " in result.reason
    assert "metrics-1: " in result.reason
    assert web.asked == []


async def test_what_is_kept_with_a_stage_is_bounded(web: WebServer) -> None:
    harness = make()
    url = serve_numbers(web, "/many", lambda _: [0.123456789] * 2000)
    options = {"duration": "2h", "metrics": [metric(url)]}

    result = await harness.run("ANALYSIS", options)

    assert result.status is StageStatus.SUCCESS, result.reason
    assert len(harness.metadata["analysis/metrics-0"]) <= 48 * 1024
    record = record_of(harness)
    assert record["evaluated"] == 120
    assert record["evaluations"][-1]["count"] == 2000
    assert len(record["evaluations"][-1]["values"]) == 30


async def test_what_is_kept_of_many_analyses_with_long_queries_is_bounded(web: WebServer) -> None:
    harness = make()
    url = serve_numbers(web, "/rate", lambda _: [0.1])
    entries = [metric(f"{url}?x={'y' * 2000}{number}") for number in range(50)]

    result = await harness.run("ANALYSIS", {"duration": "1m", "metrics": entries})

    assert result.status is StageStatus.SUCCESS, result.reason
    kept = [value for key, value in harness.metadata.values.items() if key.startswith("analysis/")]
    assert len(kept) == 50
    assert sum(map(len, kept)) <= 48 * 1024
