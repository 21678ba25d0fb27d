# SPDX-License-Identifier: Apache-2.0
"""Live state, drift, details, preview, versions and strategy."""

import json
from datetime import timedelta
from typing import Any

import pytest
from pipecd_plugin_lambda.config import LambdaOptions
from pipecd_plugin_lambda.manifest import FunctionManifest
from pipecd_plugin_lambda.planning import find_version
from pipecd_plugin_lambda.traffic import Traffic, VersionShare, parse_kept, send_all, shift

from pipecd_sdk import Health, ResourceGoneError, SyncStatus, SyncStrategy
from pipecd_sdk.testing import FakeClock
from pipecd_test_support.aws.lambda_lab import LambdaLab

pytestmark = pytest.mark.xdist_group("lambda")


async def test_function_alias_and_versions_are_shown(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.write("v2")
    harness = lab.deploy("v2")
    await harness.run("LAMBDA_CANARY_ROLLOUT", {})
    await harness.run("LAMBDA_PROMOTE", {"percent": 10}, index=1)

    seen = await harness.live_state()

    found = [(each.kind, each.name, each.health) for _, each in seen.resources]
    assert found == [
        ("Function", lab.name, Health.HEALTHY),
        ("Alias", "Service", Health.HEALTHY),
        ("Version", "2", Health.HEALTHY),
        ("Version", "1", Health.HEALTHY),
    ]
    assert seen.resources[1][1].description == "version 2 10 %, version 1 90 %"
    assert seen.sync.status is SyncStatus.OUT_OF_SYNC
    assert "split" in seen.sync.short_reason


async def test_a_function_as_git_has_it_is_in_sync(lab: LambdaLab) -> None:
    await lab.sync(
        "v1",
        environments={"A": "1"},
        vpcConfig={"subnetIds": ["b", "a"], "securityGroupIds": ["s"]},
        tracingConfig={"mode": "Active"},
        tags={"team": "shop"},
        provisionedConcurrency=2,
        functionUrl={"authType": "NONE"},
        reservedConcurrency="5",
    )

    seen = await lab.deploy("v1").live_state()

    assert seen.sync.status is SyncStatus.SYNCED, seen.sync.reason


async def test_drift_is_told_field_by_field_and_without_values_of_variables(
    lab: LambdaLab,
) -> None:
    await lab.sync("v1", environments={"PASSWORD": "wanted-secret"})
    lab.client.update_function_configuration(
        FunctionName=lab.name,
        MemorySize=512,
        Environment={"Variables": {"PASSWORD": "live-secret"}},
    )

    seen = await lab.deploy("v1").live_state()

    assert seen.sync.status is SyncStatus.OUT_OF_SYNC
    assert "2 fields changed" in seen.sync.short_reason
    assert "MemorySize: 512" in seen.sync.reason
    assert "PASSWORD: '*****'" in seen.sync.reason
    assert "secret" not in seen.sync.reason


async def test_tags_that_may_not_be_read_are_no_drift(lab: LambdaLab) -> None:
    """AWS answers without them where the right lambda:ListTags is missing."""
    await lab.sync("v1", tags={"team": "shop"})
    lab.aws.break_next("GetFunction", "untagged", count=10)

    seen = await lab.deploy("v1").live_state()

    assert seen.sync.status is SyncStatus.UNKNOWN
    assert "allow the action lambda:ListTags" in seen.sync.short_reason


async def test_ignored_fields_may_differ(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.client.update_function_configuration(FunctionName=lab.name, MemorySize=512)

    seen = await lab.deploy("v1", options={"ignoreDrift": ["MemorySize"]}).live_state()

    assert seen.sync.status is SyncStatus.SYNCED, seen.sync.reason


async def test_a_function_that_is_not_there_is_told(lab: LambdaLab) -> None:
    lab.write("v1")

    seen = await lab.deploy("v1").live_state()

    assert seen.resources[0][1].health is Health.UNHEALTHY
    assert seen.sync.reason == f"there is no function {lab.name}"


async def test_a_function_that_stays_as_it_is_is_read_less_and_less(lab: LambdaLab) -> None:
    await lab.sync("v1")
    harness = lab.deploy("v1")
    assert isinstance(harness.clock, FakeClock)
    await harness.live_state()
    lab.aws.forget()

    for _ in range(20):
        await harness.clock.advance(timedelta(minutes=1))
        await harness.live_state()

    reads = len(lab.aws.calls("GetAlias"))
    assert 4 <= reads <= 9, "after 1 to 2 minutes, 2 to 4, then 2 ½ to 5"
    assert len(lab.aws.calls()) == 3 * reads
    lab.client.update_function_configuration(FunctionName=lab.name, MemorySize=512)
    assert (await harness.open_resource(lab.name)).difference, "a person sees what is there now"
    lab.client.update_function_configuration(FunctionName=lab.name, MemorySize=640)
    await harness.clock.advance(timedelta(minutes=5))
    seen = await harness.live_state()
    assert "MemorySize: 640" in seen.sync.reason


async def test_what_a_stage_has_changed_is_seen_at_once(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.write("v2", memory=512)
    harness = lab.deploy("v2")
    assert (await harness.live_state()).sync.status is SyncStatus.OUT_OF_SYNC

    await harness.run("LAMBDA_SYNC")

    seen = await harness.live_state()
    assert seen.sync.status is SyncStatus.SYNCED, seen.sync.reason


async def test_a_throttled_account_is_asked_less_and_less(lab: LambdaLab) -> None:
    await lab.sync("v1")
    harness = lab.deploy("v1")
    assert isinstance(harness.clock, FakeClock)
    lab.aws.break_next("GetFunction", "throttle", count=1000, service="lambda")
    counts = []

    for _ in range(8):
        seen = await harness.live_state()
        assert seen.sync.status is SyncStatus.UNKNOWN
        assert "Rate exceeded" in seen.sync.reason
        counts.append(len(lab.aws.calls("GetFunction")))
        await harness.clock.advance(timedelta(minutes=1))

    assert len(set(counts)) <= 5, counts


async def test_details_show_the_function_without_values_of_variables(lab: LambdaLab) -> None:
    await lab.sync("v1", environments={"PASSWORD": "hidden-secret"})
    harness = lab.deploy("v1")

    for resource in (lab.name, f"{lab.name}:Service", f"{lab.name}:1"):
        details = await harness.open_resource(resource)
        assert details.manifest
        assert "hidden-secret" not in details.manifest
    assert (await harness.open_resource(lab.name)).difference == ""
    with pytest.raises(ResourceGoneError):
        await harness.open_resource(f"{lab.name}:9")


async def test_a_preview_shows_the_change_and_asks_nobody(lab: LambdaLab) -> None:
    lab.write("v1", timeout=5)
    lab.running = "v1"
    lab.write("v2", timeout=6)

    preview = (await lab.deploy("v2").plan_preview())["main"]

    assert preview.summary == f"2 fields of {lab.name} would change"
    assert "+timeout: 6" in preview.details
    assert lab.aws.calls() == []
    assert (await lab.deploy("v1").plan_preview())["main"].no_change


async def test_a_preview_of_a_first_deployment_is_all_new(lab: LambdaLab) -> None:
    """Upstream has an error there."""
    lab.write("v1")

    preview = (await lab.deploy("v1").plan_preview())["main"]

    assert "for the first time" in preview.summary
    assert "+image: shop:v1" in preview.details


async def test_values_of_opened_secrets_are_not_previewed(lab: LambdaLab) -> None:
    document = {"spec": {"encryption": {"decryptionTargets": ["function.yaml"]}}}
    for commit, value in (("v1", "secret-a"), ("v2", "secret-b")):
        folder = lab.write(commit, environments={"PASSWORD": value})
        (folder / "app.pipecd.yaml").write_text(json.dumps(document))
    lab.running = "v1"

    preview = (await lab.deploy("v2").plan_preview())["main"]

    assert preview.summary == f"2 fields of {lab.name} would change"
    assert "secret-" not in preview.details


async def test_the_password_of_a_source_is_not_previewed(lab: LambdaLab) -> None:
    for commit in ("v1", "v2"):
        source = {"git": f"https://me:{commit}-secret@git.example.com/a.git", "ref": commit}
        lab.write(commit, source=source, handler="a.b", runtime="python3.12")
    lab.running = "v1"

    preview = (await lab.deploy("v2").plan_preview())["main"]

    assert "git.example.com/a.git" in preview.details
    assert "-secret" not in preview.details


async def test_an_opened_secret_in_the_command_of_an_image_is_shown_nowhere(
    lab: LambdaLab,
) -> None:
    document = {"spec": {"encryption": {"decryptionTargets": ["function.yaml"]}}}
    for commit in ("v1", "v2"):
        folder = lab.write(commit, imageConfig={"command": ["run", f"secret-{commit}"]})
        (folder / "app.pipecd.yaml").write_text(json.dumps(document))
    assert (await lab.deploy("v1").run("LAMBDA_SYNC")).reason == ""
    lab.running = "v1"
    harness = lab.deploy("v2")

    preview = (await harness.plan_preview())["main"]
    seen = await harness.live_state()
    details = [await harness.open_resource(each.id) for _, each in seen.resources]

    assert seen.sync.status is SyncStatus.OUT_OF_SYNC
    assert "secret-" not in f"{preview} {seen.sync} {details}"
    assert len(harness.plugin._states) == 0, "what follows from secrets is not kept"


async def test_the_strategy_is_the_pipeline_but_for_a_first_deployment(lab: LambdaLab) -> None:
    lab.write("v1")
    assert (await lab.deploy("v1").strategy()).sync is SyncStrategy.QUICK_SYNC
    lab.running = "v1"
    lab.write("v2")

    strategy = await lab.deploy("v2").strategy()

    assert strategy.sync is SyncStrategy.PIPELINE
    assert strategy.summary == "Pipeline sync, from v1 to v2"


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"image": "registry:5000/team/shop:v1"}, ("shop", "v1", "registry:5000/team/shop:v1")),
        (
            {"source": {"git": "git@github.com:org/shop.git", "ref": "abc"}},
            ("org/shop", "abc", "https://github.com/org/shop/commit/abc"),
        ),
        (
            {"source": {"git": "https://gitlab.com/org/shop", "ref": "abc"}},
            ("org/shop", "abc", "https://gitlab.com/org/shop/-/commit/abc"),
        ),
    ],
)
def test_the_version_of_a_commit(spec: dict[str, Any], found: tuple[str, str, str]) -> None:
    version = find_version(FunctionManifest(spec=spec, options=LambdaOptions(), commit="c"))

    assert (version.name, version.version, version.url) == found


def test_the_version_of_an_object_in_s3() -> None:
    spec = {"s3Bucket": "code", "s3Key": "shop.zip", "s3ObjectVersion": "7"}

    version = find_version(FunctionManifest(spec=spec, options=LambdaOptions(), commit="c"))

    assert (version.name, version.version) == ("shop.zip", "7")
    assert version.url.endswith("/code?prefix=shop.zip&versionId=7")


def two(first: str, share: float, second: str) -> Traffic:
    return Traffic(
        primary=VersionShare(version=first, percent=share),
        secondary=VersionShare(version=second, percent=100 - share),
    )


@pytest.mark.parametrize(
    ("before", "version", "percent", "after"),
    [
        (send_all("5"), "6", 10, two("6", 10, "5")),
        (two("6", 10, "5"), "6", 50, two("6", 50, "5")),
        (two("6", 50, "5"), "6", 100, two("6", 100, "5")),
        (two("6", 100, "5"), "7", 100, two("7", 100, "6")),
        (two("6", 100, "5"), "5", 100, two("5", 100, "6")),
        (send_all("6"), "6", 10, send_all("6")),
        (two("6", 10, "5"), "6", 0, two("6", 0, "5")),
        (two("6", 10, "5"), "7", 0, two("6", 10, "5")),
    ],
)
def test_traffic_shifts_as_upstreams_does(
    before: Traffic, version: str, percent: int, after: Traffic
) -> None:
    assert shift(before, version, percent) == after


def test_a_version_without_traffic_is_not_named_to_aws() -> None:
    """AWS refuses two versions with different roles, whatever their shares."""
    assert two("6", 100, "5").to_api() == {
        "FunctionVersion": "6",
        "RoutingConfig": {"AdditionalVersionWeights": {}},
    }
    assert parse_kept(two("6", 10, "5").to_json()) == two("6", 10, "5")
