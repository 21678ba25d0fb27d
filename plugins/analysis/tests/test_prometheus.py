# SPDX-License-Identifier: Apache-2.0
"""The provider PROMETHEUS on a real Prometheus, which reads the metrics of a real target."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_analysis.plugin import Analysis

from pipecd_sdk import Clock, StageStatus
from pipecd_sdk.testing import StageHarness
from pipecd_test_support.prometheus import (
    MISSING,
    PrometheusProcess,
    find_prometheus,
    run_prometheus,
)
from pipecd_test_support.web_server import Answer, WebServer

SHOWN = """\
# TYPE latency gauge
latency{variant="primary"} 0.1
latency{variant="canary"} 0.9
"""


@pytest.fixture
def prometheus(web: WebServer, tmp_path: Path) -> Iterator[PrometheusProcess]:
    program = find_prometheus()
    if program is None:
        pytest.skip(MISSING)
    web.give("/metrics", Answer(body=SHOWN.encode(), headers={"Content-Type": "text/plain"}))
    with run_prometheus(program, tmp_path, web.host) as running:
        yield running


def make(prometheus: PrometheusProcess) -> StageHarness[Analysis]:
    entry = {"name": "prom", "type": "PROMETHEUS", "config": {"address": prometheus.address}}
    return StageHarness(Analysis(), clock=Clock(), config={"analysisProviders": [entry]})


def metric(query: str, **more: Any) -> dict[str, Any]:
    return {"provider": "prom", "query": query, "interval": "500ms", **more}


async def wait_scraped(web: WebServer, times: int) -> None:
    """Waits until Prometheus has asked so many times from now on."""
    wanted = web.asked.count("GET /metrics") + times
    async with asyncio.timeout(60):
        while web.asked.count("GET /metrics") < wanted:  # noqa: ASYNC110 - another process asks
            await asyncio.sleep(0.05)


async def test_a_real_prometheus_is_asked(prometheus: PrometheusProcess, web: WebServer) -> None:
    await wait_scraped(web, 3)
    query = 'latency{variant="{{ .Variant.Name }}"}'
    passed, failed, broken = make(prometheus), make(prometheus), make(prometheus)

    good = await passed.run(
        "ANALYSIS", {"duration": "1s", "metrics": [metric(query, expected={"max": 0.5})]}
    )
    high = await failed.run(
        "ANALYSIS",
        {
            "duration": "1s",
            "metrics": [metric('max(latency{variant="canary"})', expected={"max": 0.5})],
        },
    )
    wrong = await broken.run(
        "ANALYSIS", {"duration": "1s", "metrics": [metric("latency{", expected={"max": 0.5})]}
    )

    assert good.status is StageStatus.SUCCESS, good.reason
    assert "values from 0.1 to 0.1" in passed.text or "1 value: 0.1" in passed.text
    assert high.status is StageStatus.FAILURE
    assert "0.9 is out of range" in high.reason
    assert "parse error" in wrong.reason


async def test_a_real_prometheus_is_asked_about_the_previous_deployment(
    prometheus: PrometheusProcess, web: WebServer
) -> None:
    """The numbers have changed since: the earlier ones are those of the earlier moments."""
    await wait_scraped(web, 3)
    before = int(time.time()) + 1
    while time.time() < before + 2:  # noqa: ASYNC110 - the clock of another process goes on
        await asyncio.sleep(0.05)
    shown = SHOWN.replace("0.1", "0.7")
    web.give("/metrics", Answer(body=shown.encode(), headers={"Content-Type": "text/plain"}))
    await wait_scraped(web, 3)
    harness = make(prometheus)
    harness.shared.values["latest-analysis-result"] = json.dumps({"start_time": before}).encode()
    entry = metric('latency{variant="primary"}', strategy="PREVIOUS")

    result = await harness.run("ANALYSIS", {"duration": "1s", "metrics": [entry]})

    assert result.status is StageStatus.SUCCESS, result.reason
    kept = json.loads(harness.metadata["analysis/metrics-0"])["evaluations"]
    assert len(kept) == 2
    assert {value for each in kept for value in each["values"]} == {0.7}
    assert {value for each in kept for value in each["control"]} == {0.1}
    assert all("too few for a difference" in each["warning"] for each in kept)
