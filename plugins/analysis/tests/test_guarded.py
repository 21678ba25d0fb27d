# SPDX-License-Identifier: Apache-2.0
"""Addresses that an application names reach no private host: checks, numbers, templates."""

from typing import Any

import pytest
from pipecd_plugin_analysis.plugin import Analysis

from pipecd_sdk.testing import StageHarness
from pipecd_test_support.web_server import Answer, WebServer

HINT = "is not an allowed host (add it to allowedHosts"


def make_check(url: str) -> dict[str, Any]:
    return {"https": [{"url": url, "interval": "1m"}]}


def make_numbers(url: str) -> dict[str, Any]:
    return {"metrics": [{"url": url, "interval": "1m", "expected": {"max": 1}}]}


@pytest.mark.parametrize("make", [make_check, make_numbers], ids=["check", "numbers"])
async def test_a_stage_says_which_setting_opens_the_host(make: Any, web: WebServer) -> None:
    result = await StageHarness(Analysis()).run("ANALYSIS", {"duration": "1m", **make(web.url)})

    assert f"127.0.0.1 {HINT}" in result.reason
    assert web.asked == []


@pytest.mark.parametrize("make", [make_check, make_numbers], ids=["check", "numbers"])
async def test_nor_does_a_redirect_lead_there(make: Any, web: WebServer) -> None:
    """As to the service of a cloud that gives secrets away."""
    place = "http://[::ffff:169.254.169.254]/latest/meta-data/"
    web.give("/", Answer(302, headers={"Location": place}))
    harness = StageHarness(Analysis(), config={"allowedHosts": ["127.0.0.1"]})

    result = await harness.run("ANALYSIS", {"duration": "1m", **make(f"{web.url}/")})

    assert HINT in result.reason
    assert web.asked == ["GET /"]


async def test_a_system_that_the_operator_names_may_be_anywhere(web: WebServer) -> None:
    web.give("/numbers", Answer(body=b"[0.1]"))
    provider = {
        "name": "it",
        "type": "HTTP",
        "config": {"address": web.url, "jsonPath": "$[*]"},
    }
    harness = StageHarness(Analysis(), config={"analysisProviders": [provider]})
    entry = {"provider": "it", "query": "/numbers", "interval": "1m", "expected": {"max": 1}}

    result = await harness.run("ANALYSIS", {"duration": "1m", "metrics": [entry]})

    assert not result.reason
    assert web.asked == ["GET /numbers"]
