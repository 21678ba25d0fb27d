# SPDX-License-Identifier: Apache-2.0
"""The plugin `cloudrun` under a real piped and control plane: traffic by steps, and back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk.kit import yaml
from pipecd_test_support.google_cloud.cloud_run_lab import make_service
from pipecd_test_support.google_cloud.fake_cloud_run import FakeCloudRun
from pipecd_test_support.google_cloud.key_files import write_key_file
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.model import deployment_pb2 as pb

STEPS: list[dict[str, Any]] = [
    {"name": "CLOUDRUN_PROMOTE", "with": {"percent": 10}},
    {"name": "CLOUDRUN_PROMOTE", "with": {"percent": "50%"}},
    {"name": "CLOUDRUN_PROMOTE", "with": {"percent": 100}},
]


@pytest.fixture
def cloud() -> Iterator[FakeCloudRun]:
    with FakeCloudRun() as server:
        server.polls_until_ready = 1
        yield server


def start(site: PipedSite, cloud: FakeCloudRun) -> None:
    key = write_key_file(site.folder / "key.json", cloud.token_address)
    target = {
        "project": "shop",
        "region": "asia-northeast1",
        "credentialsFile": str(key),
        "endpoint": cloud.url,
    }
    site.commit({"README": "an example"})
    site.configure(
        {"name": "cloudrun", "deployTargets": [{"name": "tokyo", "config": target}]}, "scriptrun"
    )
    site.start()


def make_files(image: str, stages: list[dict[str, Any]] | None = None) -> dict[str, str]:
    """A commit of an application of the older kind, as files of upstream's users are."""
    spec: dict[str, Any] = {
        "name": "web",
        "input": {"serviceManifestFile": "service.yaml"},
    }
    if stages:
        spec["pipeline"] = {"stages": stages}
    document = {"apiVersion": "pipecd.dev/v1beta1", "kind": "CloudRunApp", "spec": spec}
    return {
        "web/app.pipecd.yaml": json.dumps(document),
        "web/service.yaml": yaml.dump(make_service(image)),
    }


def describe(cloud: FakeCloudRun) -> dict[str, Any]:
    """What a rollback must restore."""
    counted = {"etag", "generation", "observedGeneration", "trafficStatuses"}
    service = cloud.state.services["web"]
    return {key: value for key, value in service.items() if key not in counted}


def list_stages(deployment: pb.Deployment) -> list[tuple[str, int]]:
    return [(each.name, each.status) for each in deployment.stages]


async def test_promote_by_steps_fails_comes_back_and_then_succeeds(
    site: PipedSite, client: SiteClient, cloud: FakeCloudRun, tmp_path: Path
) -> None:
    start(site, cloud)
    shares: list[list[int]] = []
    cloud.on_change = lambda _: shares.append(
        sorted(each.get("percent", 0) for each in cloud.state.services["web"]["traffic"])
    )
    first = site.commit(make_files("gcr.io/shop/web:v1"))
    application = await client.register_older("web", "tokyo")

    created = await client.wait_deployed(application, first)
    before = describe(cloud)
    failing = [*STEPS[:2], {"name": "SCRIPT_RUN", "with": {"run": "exit 1"}}, STEPS[2]]
    second = site.commit(make_files("gcr.io/shop/web:v2", failing))
    failed = await client.wait_deployed(application, second)
    after = describe(cloud)
    broken_steps = list(shares)
    third = site.commit(make_files("gcr.io/shop/web:v3", STEPS))
    whole = await client.wait_deployed(application, third)

    assert created.status == pb.DEPLOYMENT_SUCCESS, created.status_reason
    assert [each.name for each in created.stages] == ["CLOUDRUN_SYNC", "CLOUDRUN_ROLLBACK"]
    assert failed.status == pb.DEPLOYMENT_FAILURE
    assert list_stages(failed) == [
        ("CLOUDRUN_PROMOTE", pb.STAGE_SUCCESS),
        ("CLOUDRUN_PROMOTE", pb.STAGE_SUCCESS),
        ("SCRIPT_RUN", pb.STAGE_FAILURE),
        ("CLOUDRUN_PROMOTE", pb.STAGE_NOT_STARTED_YET),
        ("CLOUDRUN_ROLLBACK", pb.STAGE_SUCCESS),
    ]
    assert after == before, "traffic, template and labels are those that ran"
    assert broken_steps[:3] == [[100], [10, 90], [50, 50]]
    assert whole.status == pb.DEPLOYMENT_SUCCESS, whole.status_reason
    assert list_stages(whole)[:3] == [("CLOUDRUN_PROMOTE", pb.STAGE_SUCCESS)] * 3
    assert shares[-3:] == [[10, 90], [50, 50], [100]]
    assert cloud.list_revisions("web") == [
        f"web-v1-{first[:7]}",
        f"web-v2-{second[:7]}",
        f"web-v3-{third[:7]}",
    ]
    assert [(each.name, each.version) for each in whole.versions] == [("web", "v3")]
