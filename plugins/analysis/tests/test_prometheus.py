# SPDX-License-Identifier: Apache-2.0
"""The provider PROMETHEUS on a real Prometheus, which reads the metrics of a real target."""

import asyncio
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


async def test_a_real_prometheus_is_asked(prometheus: PrometheusProcess, web: WebServer) -> None:
    async with asyncio.timeout(60):
        while web.asked.count("GET /metrics") < 3:  # noqa: ASYNC110 - another process asks
            await asyncio.sleep(0.05)
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
