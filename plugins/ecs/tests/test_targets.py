# SPDX-License-Identifier: Apache-2.0
"""One application in two regions: each has its own record, and both come back together."""

from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_ecs.plugin import Ecs

from pipecd_sdk import StageStatus
from pipecd_sdk.testing import StageHarness, deploy_target
from pipecd_test_support.aws.ecs_lab import EcsLab, assert_success, make_task
from pipecd_test_support.aws.lab import REGION

pytestmark = pytest.mark.xdist_group("aws")
OTHER = "us-east-1"


class TwoRegions:
    """The service `web` in two regions of one account."""

    def __init__(self, lab: EcsLab) -> None:
        self.lab = lab
        self.clients = {each: lab.aws.make_client("ecs", each) for each in (REGION, OTHER)}
        self.clients[OTHER].create_cluster(clusterName=lab.cluster)

    def write(self, commit: str) -> Path:
        return self.lab.write(commit, make_task(f"web:{commit}"), self.lab.make_service())

    def deploy(self, name: str, to: Path, running: Path | None = None) -> StageHarness[Ecs]:
        harness = self.lab.open(name, to, running)
        harness.targets = [
            deploy_target(Ecs, region, {**self.lab.aws.target, "region": region})
            for region in self.clients
        ]
        return harness

    def read(self) -> dict[str, list[dict[str, Any]]]:
        return {
            region: self.lab.read_sets(client=client) for region, client in self.clients.items()
        }


async def test_both_regions_are_deployed_and_named_in_the_log(lab: EcsLab) -> None:
    regions = TwoRegions(lab)
    harness = regions.deploy("first", regions.write("v1"))

    assert_success(await harness.run("ECS_SYNC"))

    only = [{"status": "PRIMARY", "image": "web:v1", "scale": 100.0, "commit": "v1"}]
    assert regions.read() == {REGION: only, OTHER: only}
    assert f"[{REGION}] " in harness.text
    assert f"[{OTHER}] " in harness.text


async def test_one_region_that_fails_fails_the_stage_and_both_come_back(lab: EcsLab) -> None:
    regions = TwoRegions(lab)
    v1, v2 = regions.write("v1"), regions.write("v2")
    assert_success(await regions.deploy("first", v1).run("ECS_SYNC"))
    before = regions.read()
    harness = regions.deploy("second", v2, v1)
    lab.aws.break_next("UpdateServicePrimaryTaskSet", "deny")

    failed = await harness.run("ECS_SYNC")
    between = regions.read()
    undone = await harness.run("ECS_ROLLBACK")

    assert failed.status is StageStatus.FAILURE
    assert failed.reason.startswith("1 of 2 deploy targets failed: ")
    assert between != before, "the other region was deployed"
    assert_success(undone)
    assert {
        region: [(each["status"], each["image"]) for each in sets]
        for region, sets in regions.read().items()
    } == {region: [("PRIMARY", "web:v1")] for region in (REGION, OTHER)}
