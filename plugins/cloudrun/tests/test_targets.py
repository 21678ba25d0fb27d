# SPDX-License-Identifier: Apache-2.0
"""One service in two places: each has its own record, and both come back together."""

from collections.abc import Iterator
from typing import Any

import pytest
from pipecd_plugin_cloudrun.plugin import CloudRunPlugin

from pipecd_sdk import StageStatus
from pipecd_sdk.testing import StageHarness, deploy_target
from pipecd_test_support.google_cloud.cloud_run_lab import CloudRunLab, make_service
from pipecd_test_support.google_cloud.fake_cloud_run import FakeCloudRun, PlannedFault, make_error
from pipecd_test_support.google_cloud.key_files import write_key_file

V1, V2 = make_service("gcr.io/shop/web:v1"), make_service("gcr.io/shop/web:v2")


@pytest.fixture
def osaka() -> Iterator[FakeCloudRun]:
    with FakeCloudRun() as server:
        yield server


def spread(
    lab: CloudRunLab, osaka: FakeCloudRun, harness: StageHarness[CloudRunPlugin]
) -> StageHarness[CloudRunPlugin]:
    key = write_key_file(lab.folder / "osaka.json", osaka.token_address)
    there = {
        "project": "shop",
        "region": "asia-northeast2",
        "credentialsFile": str(key),
        "endpoint": osaka.url,
    }
    harness.targets = [*harness.targets, deploy_target(CloudRunPlugin, "osaka", there)]
    return harness


def read(cloud: FakeCloudRun) -> dict[str, Any]:
    counted = {"etag", "generation", "observedGeneration", "trafficStatuses"}
    service = cloud.state.services["web"]
    return {key: value for key, value in service.items() if key not in counted}


async def test_one_place_that_fails_fails_the_stage_and_both_come_back(
    lab: CloudRunLab, osaka: FakeCloudRun
) -> None:
    first = spread(lab, osaka, lab(V1, number=1))
    created = await first.run("CLOUDRUN_SYNC")
    before = (read(lab.cloud), read(osaka))
    harness = spread(lab, osaka, lab(V2, running=V1))
    refusal = make_error(403, "PERMISSION_DENIED", "not allowed")
    osaka.faults.append(PlannedFault(matches="PATCH", answer=refusal))

    failed = await harness.run("CLOUDRUN_PROMOTE", {"percent": 30})
    between = (read(lab.cloud), read(osaka))
    undone = await harness.run("CLOUDRUN_ROLLBACK")

    assert created.status is StageStatus.SUCCESS, created.reason
    assert "[tokyo] " in first.text
    assert "[osaka] " in first.text
    assert failed.reason.startswith("1 of 2 deploy targets failed: osaka: ")
    assert between[0] != before[0]
    assert between[1] == before[1]
    assert undone.status is StageStatus.SUCCESS, undone.reason
    assert (read(lab.cloud), read(osaka)) == before
