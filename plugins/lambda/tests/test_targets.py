# SPDX-License-Identifier: Apache-2.0
"""One function in two regions: each has its own record, and both come back together."""

from typing import Any

import pytest
from pipecd_plugin_lambda.plugin import Lambda

from pipecd_sdk import StageStatus
from pipecd_sdk.testing import StageHarness, deploy_target
from pipecd_test_support.aws.lab import REGION
from pipecd_test_support.aws.lambda_lab import LambdaLab, succeeded

pytestmark = pytest.mark.xdist_group("lambda")
REGIONS = (REGION, "us-east-1")


def deploy(lab: LambdaLab, commit: str) -> StageHarness[Lambda]:
    lab.write(commit)
    harness = lab.deploy(commit)
    harness.targets = [
        deploy_target(Lambda, region, {**lab.aws.target, "region": region}) for region in REGIONS
    ]
    return harness


def read(lab: LambdaLab) -> dict[str, tuple[Any, ...]]:
    found = {}
    for region in REGIONS:
        client = lab.aws.make_client("lambda", region)
        function = client.get_function(FunctionName=lab.name)
        alias = client.get_alias(FunctionName=lab.name, Name="Service")
        routing = (alias.get("RoutingConfig") or {}).get("AdditionalVersionWeights") or {}
        found[region] = (alias["FunctionVersion"], routing, function["Code"]["ImageUri"])
    return found


async def test_both_regions_are_deployed_and_named_in_the_log(lab: LambdaLab) -> None:
    harness = deploy(lab, "v1")

    assert succeeded(await harness.run("LAMBDA_SYNC"))

    assert read(lab) == dict.fromkeys(REGIONS, ("1", {}, "shop:v1"))
    assert all(f"[{region}] " in harness.text for region in REGIONS)


async def test_one_region_that_fails_fails_the_stage_and_both_come_back(lab: LambdaLab) -> None:
    assert succeeded(await deploy(lab, "v1").run("LAMBDA_SYNC"))
    lab.running = "v1"
    before = read(lab)
    harness = deploy(lab, "v2")
    lab.aws.break_next("UpdateAlias", "deny")

    assert succeeded(await harness.run("LAMBDA_CANARY_ROLLOUT"))
    failed = await harness.run("LAMBDA_PROMOTE", {"percent": 20}, index=1)
    between = read(lab)
    undone = await harness.run("LAMBDA_ROLLBACK")

    assert failed.status is StageStatus.FAILURE
    assert failed.reason.startswith("1 of 2 deploy targets failed: ")
    assert sorted(len(routing) for _, routing, _ in between.values()) == [0, 1]
    assert succeeded(undone)
    assert read(lab) == before
