# SPDX-License-Identifier: Apache-2.0
"""What is wrong in a stage or in the piped file is told before anything runs, all at once."""

from typing import Any

import pytest
from pipecd_plugin_analysis.plugin import Analysis

from pipecd_sdk import Operation, PlannedStage
from pipecd_sdk.testing import StageHarness

PROMETHEUS = {"name": "prom", "type": "PROMETHEUS", "config": {"address": "http://prom:9090"}}
LOKI = {"name": "loki", "type": "LOKI", "config": {"address": "http://loki:3100"}}
STAGE = "stages[0].with"
CHECK = {"url": "https://a", "interval": "1m"}
METRIC = {"provider": "prom", "query": "up", "interval": "1m", "expected": {"min": 1}}


def make(*providers: dict[str, Any]) -> StageHarness[Analysis]:
    return StageHarness(
        Analysis(), config={"analysisProviders": list(providers or (PROMETHEUS, LOKI))}
    )


def faults_of(**options: Any) -> list[str]:
    return make().faults(("ANALYSIS", {"duration": "10m", **options}))


def test_the_stage_can_be_skipped_and_has_no_rollback() -> None:
    planned = make().plan(("ANALYSIS", {"duration": "10m", "metrics": [METRIC]}))

    assert planned == [PlannedStage(name="ANALYSIS", index=0, operation=Operation.SKIP)]


def test_all_that_a_metric_lacks_is_told_at_once() -> None:
    found = make().faults(("ANALYSIS", {"metrics": [{}]}))

    assert sorted(each.partition(":")[0] for each in found) == [
        "stages[0].with.duration",
        "stages[0].with.metrics[0].expected",
        "stages[0].with.metrics[0].interval",
        "stages[0].with.metrics[0].provider",
        "stages[0].with.metrics[0].query",
    ]


def test_logs_and_checks_must_be_whole_too() -> None:
    found = faults_of(logs=[{}], https=[{}])

    assert sorted(each.partition(":")[0] for each in found) == [
        "stages[0].with.https[0].interval",
        "stages[0].with.https[0].url",
        "stages[0].with.logs[0].interval",
        "stages[0].with.logs[0].provider",
        "stages[0].with.logs[0].query",
    ]


def test_a_limit_of_zero_is_a_limit() -> None:
    assert faults_of(metrics=[{**METRIC, "expected": {"max": 0}}]) == []


def test_a_range_that_nothing_is_in_is_refused() -> None:
    [fault] = faults_of(metrics=[{**METRIC, "expected": {"min": 2, "max": 1}}])

    assert "no value is at least 2 and at most 1" in fault


@pytest.mark.parametrize(
    "item",
    [
        ("metrics", {**METRIC, "interval": "11m"}),
        ("logs", {"provider": "loki", "query": "{a=~`b`}", "interval": "11m"}),
        ("https", {"url": "https://example.com", "interval": "11m"}),
    ],
    ids=["metrics", "logs", "https"],
)
def test_a_duration_that_ends_before_the_first_look_is_refused(
    item: tuple[str, dict[str, Any]],
) -> None:
    """Such a stage would pass without having looked once."""
    [fault] = faults_of(**{item[0]: [item[1]]})

    assert "11m0s is longer than the duration of the stage, 10m0s" in fault


def test_a_provider_that_the_piped_does_not_have_is_told_when_a_deployment_is_planned() -> None:
    found = faults_of(
        metrics=[{**METRIC, "provider": "prm"}],
        logs=[{"provider": "prom", "query": "x", "interval": "1m"}],
    )

    missing = "the piped has no analysis provider 'prm' (it has prom, loki)"
    without = "the provider 'prom' has no logs (those of LOKI and STACKDRIVER have)"
    assert found == [
        f"{STAGE}.metrics[0].provider: {missing}",
        f"{STAGE}.logs[0].provider: {without}",
    ]


def test_a_template_is_used_in_place_of_all_that_is_written_beside_it() -> None:
    assert faults_of(metrics=[{"provider": "none", "template": {"name": "errors"}}]) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"metrics": [{**METRIC, "strategy": "CANARY"}]}, "unknown value 'CANARY'"),
        ({"metrics": [{**METRIC, "deviation": "BOTH"}]}, "one of EITHER, HIGH, LOW"),
        ({"metrics": [{**METRIC, "failureLimit": -1}]}, "must not be negative"),
        ({"metrics": [{**METRIC, "expected": {"max": float("nan")}}]}, "not a number that a value"),
        (
            {"metrics": [{**METRIC, "expected": {"min": float("-inf")}}]},
            "not a number that a value",
        ),
        ({"metrics": [{**METRIC, "interval": "-1m"}]}, "must be positive"),
        ({"metrics": [{**METRIC, "url": "https://a.example"}]}, "is asked without a provider"),
        (
            {"metrics": [{**CHECK, "jsonPath": "a", "expected": {"min": 1}}]},
            "a path begins with $",
        ),
        ({"https": [{**CHECK, "expectedResponsePattern": "("}]}, "not a regular expression"),
        ({"https": [{**CHECK, "expectedCode": 99}]}, "not a status"),
        ({"https": [{**CHECK, "method": "FETCH"}]}, "unknown value"),
        ({"metrics": [METRIC] * 51}, "51 analyses are too many"),
    ],
)
def test_wrong_values_are_refused(options: dict[str, Any], says: str) -> None:
    [fault] = faults_of(**options)

    assert says in fault


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        ({"name": "a", "type": "GRAPHITE", "config": {}}, "unknown value 'GRAPHITE'"),
        ({"name": "a", "type": "PROMETHEUS", "config": {}}, "address: missing"),
        (
            {"name": "a", "type": "PROMETHEUS", "config": {"address": "prom:9090"}},
            "not an address: 'prom:9090'",
        ),
        (
            {"name": "a", "type": "DATADOG", "config": {"apiKeyFile": "/a", "apiKeyData": "YQ=="}},
            "exactly one of apiKeyFile and apiKeyData",
        ),
        (
            {"name": "a", "type": "NEW_RELIC", "config": {"accountID": 1, "apiKeyData": "%"}},
            "not base64",
        ),
        (
            {"name": "a", "type": "CLOUDWATCH", "config": {"region": "x", "tokenFile": "/t"}},
            "tokenFile: needs roleARN",
        ),
    ],
)
def test_a_wrong_provider_keeps_the_plugin_from_starting(
    provider: dict[str, Any], says: str
) -> None:
    with pytest.raises(Exception, match="analysisProviders") as caught:
        make(provider)

    assert says in str(caught.value)


def test_a_role_of_cloudwatch_is_taken_on_with_a_token_or_without() -> None:
    """Without one, it is by the other credentials, as for a deploy target on AWS."""
    config = {"region": "x", "roleARN": "arn:a"}

    for more in ({}, {"tokenFile": "/t"}):
        make({"name": "a", "type": "CLOUDWATCH", "config": {**config, **more}})


def test_two_providers_of_one_name_are_refused() -> None:
    with pytest.raises(Exception, match="'prom' is used already"):
        make(PROMETHEUS, PROMETHEUS)
