# SPDX-License-Identifier: Apache-2.0
"""A rollback to a commit whose definitions cannot be read: what was kept of the service counts."""

import json
from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_ecs.plugin import Ecs

from pipecd_sdk import StageStatus
from pipecd_sdk.testing import StageHarness
from pipecd_test_support.aws.ecs_lab import EcsLab, assert_success, make_task

pytestmark = pytest.mark.xdist_group("aws")


def spoil(folder: Path) -> None:
    """Makes the definitions of a commit unreadable."""
    (folder / "servicedef.json").write_text("{")


async def begin(lab: EcsLab, service: dict[str, Any], failed: dict[str, Any]) -> StageHarness[Ecs]:
    """A deployment of v2 where v1 runs, whose service definition cannot be read any more."""
    v1 = await lab.deploy_first(service)
    spoil(v1)
    return lab.open("second", lab.write("v2", make_task("web:v2"), failed), v1)


NETWORK = {"awsvpcConfiguration": {"subnets": ["subnet-1"], "securityGroups": ["sg-1"]}}


@pytest.mark.parametrize("stage", ["ECS_CANARY_ROLLOUT", "ECS_PRIMARY_ROLLOUT"])
async def test_task_sets_number_and_tags_come_back_without_the_definitions(
    lab: EcsLab, stage: str
) -> None:
    """With the primary task set still there, and where it has to be made anew."""
    lab.balance()
    v1 = await lab.deploy_first(lab.make_service(networkConfiguration=NETWORK))
    before = lab.read_all()
    spoil(v1)
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service(count=6))
    harness = lab.open("second", v2, v1)
    assert_success(await harness.run(stage, {"scale": 50} if "CANARY" in stage else {}))
    lab.aws.forget()

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert lab.read_all() == before
    assert "the definitions of the commit that ran cannot be read: servicedef.json" in harness.text
    for made in lab.aws.calls("CreateTaskSet"):
        sent = made["parameters"]
        assert (sent["networkConfiguration"], sent["launchType"]) == (NETWORK, "FARGATE")
        assert "/primary-" in sent["loadBalancers"][0]["targetGroupArn"]


async def test_such_a_rollback_may_be_repeated(lab: EcsLab) -> None:
    harness = await begin(lab, lab.make_service(), lab.make_service(count=6))
    before = lab.read_all()
    assert_success(await harness.run("ECS_SYNC"))
    lab.aws.break_next("DeleteTaskSet", "deny")
    assert (await harness.run("ECS_ROLLBACK")).status is StageStatus.FAILURE

    assert_success(await harness.run("ECS_ROLLBACK"))
    assert_success(await harness.run("ECS_ROLLBACK"))

    assert lab.read_all() == before


async def test_traffic_comes_back_without_the_definitions(lab: EcsLab) -> None:
    lab.balance()
    harness = await begin(lab, lab.make_service(), lab.make_service())
    weights = lab.read_weights()
    assert_success(await harness.run("ECS_CANARY_ROLLOUT", {"scale": 50}))
    assert_success(await harness.run("ECS_TRAFFIC_ROUTING", {"canary": 20}, index=1))

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert lab.read_weights() == weights


async def test_a_rolling_service_comes_back_without_its_definition(lab: EcsLab) -> None:
    failed = lab.make_rolling(count=6, propagateTags="SERVICE")
    failed["placementStrategy"] = [{"type": "random"}]
    harness = await begin(lab, lab.make_rolling(propagateTags="TASK_DEFINITION"), failed)
    before = lab.read_service()
    assert_success(await harness.run("ECS_SYNC"))

    assert_success(await harness.run("ECS_ROLLBACK"))

    after = lab.read_service()
    for key in ("taskDefinition", "desiredCount", "runningCount", "tags"):
        assert after[key] == before[key], key
    sent = lab.aws.calls("UpdateService")[-1]["parameters"]
    assert (sent["placementStrategy"], sent["propagateTags"]) == ([], "TASK_DEFINITION")


async def test_a_field_that_was_not_kept_is_named_after_the_rest_is_done(lab: EcsLab) -> None:
    """The service had none, and AWS has no way back to none."""
    harness = await begin(
        lab, lab.make_rolling(), lab.make_rolling(count=6, healthCheckGracePeriodSeconds=9)
    )
    assert_success(await harness.run("ECS_SYNC"))

    result = await harness.run("ECS_ROLLBACK")

    assert result.status is StageStatus.FAILURE
    assert "runs what ran before the deployment, but healthCheckGracePeriodSeconds" in result.reason
    assert lab.read_image(lab.read_service()["taskDefinition"]) == "web:v1"
    assert lab.read_service()["desiredCount"] == 4


async def test_an_order_to_deploy_anew_is_no_field_that_has_to_come_back(lab: EcsLab) -> None:
    harness = await begin(lab, lab.make_rolling(), lab.make_rolling(forceNewDeployment=True))
    assert_success(await harness.run("ECS_SYNC"))
    assert lab.aws.calls("UpdateService")[-1]["parameters"]["forceNewDeployment"] is True

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert "forceNewDeployment" not in lab.aws.calls("UpdateService")[-1]["parameters"]


async def test_what_aws_tells_of_deployments_alone_comes_back(lab: EcsLab) -> None:
    """A service has these fields only there."""
    had = {
        "serviceConnectConfiguration": {"enabled": True, "namespace": "shop"},
        "volumeConfigurations": [
            {
                "name": "data",
                "managedEBSVolume": {"roleArn": "arn:aws:iam::1:role/r", "sizeInGiB": 9},
            }
        ],
        "vpcLatticeConfigurations": [
            {"roleArn": "arn:aws:iam::1:role/r", "targetGroupArn": "arn:tg", "portName": "web"}
        ],
    }
    failed = {
        "serviceConnectConfiguration": {"enabled": False},
        "volumeConfigurations": [],
        "vpcLatticeConfigurations": [],
    }
    harness = await begin(lab, lab.make_rolling(**had), lab.make_rolling(**failed))
    assert_success(await harness.run("ECS_SYNC"))

    assert_success(await harness.run("ECS_ROLLBACK"))

    sent = lab.aws.calls("UpdateService")[-1]["parameters"]
    assert {key: sent[key] for key in had} == had


async def test_a_list_that_the_failed_commit_has_cleared_comes_back(lab: EcsLab) -> None:
    """Only the commit that ran names it, and that was still read when the deployment began."""
    spread = [{"type": "spread", "field": "attribute:ecs.availability-zone"}]
    v1 = await lab.deploy_first(lab.make_rolling(placementStrategy=spread))
    lab.aws.ecs.update_service(cluster=lab.cluster, service="web", placementStrategy=spread)
    harness = lab.open("second", lab.write("v2", make_task("web:v2"), lab.make_rolling()), v1)
    assert_success(await harness.run("ECS_SYNC"))
    assert lab.aws.calls("UpdateService")[-1]["parameters"]["placementStrategy"] == []
    spoil(v1)

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert lab.aws.calls("UpdateService")[-1]["parameters"]["placementStrategy"] == spread


def deregister(lab: EcsLab, image: str) -> None:
    """Deregisters the revisions that have an image."""
    for arn in lab.aws.ecs.list_task_definitions(familyPrefix="web")["taskDefinitionArns"]:
        if lab.read_image(arn) == image:
            lab.aws.ecs.deregister_task_definition(taskDefinition=arn)


async def test_a_revision_that_is_registered_anew_counts_before_the_one_that_the_service_had(
    lab: EcsLab,
) -> None:
    """A service definition may name one, which is kept as the service had it."""
    service = lab.make_rolling(taskDefinition="web")
    harness = await begin(lab, service, service)
    assert_success(await harness.run("ECS_SYNC"))
    deregister(lab, "web:v1")
    gone = json.loads(harness.deployment_metadata["before"])["task_definition"]

    assert_success(await harness.run("ECS_ROLLBACK"))

    runs = lab.read_service()["taskDefinition"]
    assert (lab.read_image(runs), runs != gone) == ("web:v1", True)


async def test_a_rollback_that_is_repeated_registers_a_revision_once(lab: EcsLab) -> None:
    harness = await begin(lab, lab.make_rolling(), lab.make_rolling())
    assert_success(await harness.run("ECS_SYNC"))
    deregister(lab, "web:v1")
    lab.aws.forget()
    lab.aws.break_next("UpdateService", "deny")
    assert (await harness.run("ECS_ROLLBACK")).status is StageStatus.FAILURE

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert len(lab.aws.calls("RegisterTaskDefinition")) == 1


@pytest.mark.parametrize("stage", ["ECS_CANARY_ROLLOUT", "ECS_PRIMARY_ROLLOUT"])
async def test_a_service_that_had_no_primary_task_set_loses_only_what_the_deployment_made(
    lab: EcsLab, stage: str
) -> None:
    """There is nothing to wait for: it has a number of tasks, and none ran."""
    v1 = await lab.deploy_first()
    [first] = lab.aws.ecs.describe_task_sets(cluster=lab.cluster, service="web")["taskSets"]
    lab.aws.ecs.delete_task_set(
        cluster=lab.cluster, service="web", taskSet=first["taskSetArn"], force=True
    )
    other = {"externalId": "canary-other", "taskDefinition": first["taskDefinition"]}
    tags = [{"key": "pipecd-dev-managed-by", "value": "piped-ecs-plugin"}]
    if stage == "ECS_CANARY_ROLLOUT":  # a new primary replaces it
        lab.aws.ecs.create_task_set(cluster=lab.cluster, service="web", tags=tags, **other)
    spoil(v1)
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service())
    harness = lab.open("second", v2, v1)
    assert_success(await harness.run(stage, {"scale": 50} if "CANARY" in stage else {}))
    began = harness.clock.now()

    assert_success(await harness.run("ECS_ROLLBACK"))

    left = lab.aws.ecs.describe_task_sets(cluster=lab.cluster, service="web")["taskSets"]
    assert [each.get("externalId") for each in left] == ["canary-other"] * ("CANARY" in stage)
    assert harness.clock.now() == began
    assert "had no primary task set before the deployment" in harness.text


async def test_a_preview_against_definitions_that_cannot_be_read_shows_all_as_new(
    lab: EcsLab,
) -> None:
    v1 = lab.write("v1", make_task(), lab.make_service())
    spoil(v1)
    harness = lab.open("second", lab.write("v2", make_task("web:v2"), lab.make_service()), v1)

    [preview] = (await harness.plan_preview()).values()

    assert preview.summary.startswith("all is shown as new, the running commit cannot be read")
    assert "web:v2" in preview.details


@pytest.mark.parametrize("is_rolling", [False, True])
async def test_a_revision_that_was_deregistered_comes_back_as_aws_has_it(
    lab: EcsLab, *, is_rolling: bool
) -> None:
    service = lab.make_rolling() if is_rolling else lab.make_service()
    harness = await begin(lab, service, service)
    assert_success(await harness.run("ECS_SYNC"))
    deregister(lab, "web:v1")

    assert_success(await harness.run("ECS_ROLLBACK"))

    runs = lab.read_service()["taskDefinition"] if is_rolling else ""
    images = [lab.read_image(runs)] if is_rolling else [each["image"] for each in lab.read_sets()]
    assert images == ["web:v1"]
    assert "is registered anew" in harness.text


async def test_a_service_that_was_not_there_before_is_ended_and_the_rest_is_told(
    lab: EcsLab,
) -> None:
    """The commit that ran has another one, whose name cannot be read: it was not touched."""
    harness = await begin(lab, lab.make_rolling(), lab.make_rolling(serviceName="shop"))
    assert_success(await harness.run("ECS_SYNC"))

    result = await harness.run("ECS_ROLLBACK")

    assert result.status is StageStatus.FAILURE
    assert "the service shop was not there before the deployment" in result.reason
    left = lab.read_service("shop")
    assert (left["desiredCount"], lab.read_service()["desiredCount"]) == (0, 4)


async def test_what_an_earlier_release_has_kept_is_used_and_the_rest_is_named(lab: EcsLab) -> None:
    harness = await begin(lab, lab.make_service(), lab.make_service(count=6))
    assert_success(await harness.run("ECS_CANARY_ROLLOUT", {"scale": 50}))
    kept = json.loads(harness.deployment_metadata["before"])
    for name in ("fields", "tags", "task_set"):
        del kept[name]
    harness.deployment_metadata["before"] = json.dumps(kept)

    result = await harness.run("ECS_ROLLBACK")

    assert "its other fields and its tags stay as the failed commit has them" in result.reason
    assert [each["image"] for each in lab.read_sets()] == ["web:v1"]
    assert lab.read_service()["desiredCount"] == 4


async def test_definitions_of_both_commits_that_cannot_be_read_fail_with_why(lab: EcsLab) -> None:
    harness = await begin(lab, lab.make_service(), lab.make_service())
    spoil(lab.folder / "v2")

    result = await harness.run("ECS_ROLLBACK")

    assert "servicedef.json" in result.reason
    assert len(lab.read_sets()) == 1
