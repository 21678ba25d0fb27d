# SPDX-License-Identifier: Apache-2.0
"""Services with rolling updates, and tasks without a service."""

from typing import Any

import pytest

from pipecd_sdk import StageStatus
from pipecd_test_support.aws.ecs_lab import EcsLab, assert_success, make_task

pytestmark = pytest.mark.xdist_group("aws")


def make_rolling(lab: EcsLab, **more: Any) -> dict[str, Any]:
    return lab.make_service(**{"deploymentController": {"type": "ECS"}, **more})


async def test_a_rolling_service_is_made_and_updated(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(make_rolling(lab))
    [made] = lab.aws.calls("CreateService")
    assert made["parameters"]["launchType"] == "FARGATE"
    v2 = lab.write("v2", make_task("web:v2"), make_rolling(lab, count=6))

    assert_success(await lab.open("second", v2, v1).run("ECS_PRIMARY_ROLLOUT", {}))

    service = lab.read_service()
    assert lab.read_image(service["taskDefinition"]) == "web:v2"
    assert service["runningCount"] == 6
    assert lab.aws.calls("CreateTaskSet") == []


async def test_a_definition_without_a_controller_is_rolling(lab: EcsLab) -> None:
    await lab.deploy_first(make_rolling(lab, deploymentController=None))

    assert lab.read_service()["deploymentController"]["type"] == "ECS"


async def test_a_rolling_service_behind_a_load_balancer_has_the_primarys_group(lab: EcsLab) -> None:
    arns = lab.balance()
    await lab.deploy_first(make_rolling(lab))

    [made] = lab.aws.calls("CreateService")
    assert made["parameters"]["loadBalancers"][0]["targetGroupArn"] == arns["primary"]


async def test_a_broken_rolling_update_is_rolled_back(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(make_rolling(lab))
    v2 = lab.write("v2", make_task("web:broken"), make_rolling(lab, count=6))
    harness = lab.open("second", v2, v1)
    result = await harness.run("ECS_SYNC")
    assert "0 of 6 tasks running" in result.reason

    assert_success(await harness.run("ECS_ROLLBACK"))

    service = lab.read_service()
    assert lab.read_image(service["taskDefinition"]) == "web:v1"
    assert (service["desiredCount"], service["runningCount"]) == (4, 4)
    tags = {t["key"]: t["value"] for t in service["tags"]}
    assert tags["pipecd-dev-commit-hash"] == "v1"


async def test_recreate_stops_a_rolling_service_first(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(make_rolling(lab))
    v2 = lab.write("v2", make_task("web:v2"), make_rolling(lab, count=None))
    lab.aws.forget()

    assert_success(await lab.open("second", v2, v1).run("ECS_SYNC", {"recreate": True}))

    sent = [each["parameters"].get("desiredCount") for each in lab.aws.calls("UpdateService")]
    assert sent == [0, 4]


@pytest.mark.parametrize(
    ("stage", "options"),
    [("ECS_CANARY_ROLLOUT", {"scale": 10}), ("ECS_TRAFFIC_ROUTING", {"canary": 10})],
)
async def test_a_rolling_service_has_no_canary(lab: EcsLab, stage: str, options: Any) -> None:
    lab.balance()
    v1 = await lab.deploy_first(make_rolling(lab))

    result = await lab.open("second", v1, v1).run(stage, options)

    assert "needs a service with the deployment controller EXTERNAL" in result.reason


async def test_another_controller_than_the_services_is_refused(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(make_rolling(lab))
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service())

    result = await lab.open("second", v2, v1).run("ECS_SYNC")

    assert "AWS cannot change it" in result.reason


def standalone(lab: EcsLab, **more: Any) -> dict[str, Any]:
    network = {"subnets": ["subnet-1"], "securityGroups": ["sg-1"], "assignPublicIp": "ENABLED"}
    return {
        "input": {
            "taskDefinitionFile": "taskdef.json",
            "clusterArn": lab.cluster,
            "awsvpcConfiguration": network,
            **more,
        }
    }


async def test_a_task_without_a_service_is_run_once(lab: EcsLab) -> None:
    v1 = lab.write("v1", make_task("job:v1"))
    harness = lab.open("first", v1, options=standalone(lab))

    assert_success(await harness.run("ECS_SYNC"))
    assert_success(await harness.run("ECS_SYNC"))

    sent = lab.aws.calls("RunTask")[0]["parameters"]
    assert sent["launchType"] == "FARGATE"
    assert sent["networkConfiguration"]["awsvpcConfiguration"] == {
        "subnets": ["subnet-1"],
        "securityGroups": ["sg-1"],
        "assignPublicIp": "ENABLED",
    }
    tasks = lab.aws.ecs.list_tasks(cluster=lab.cluster)["taskArns"]
    assert len(tasks) == 1, "a continued stage runs no second one"
    [task] = lab.aws.ecs.describe_tasks(cluster=lab.cluster, tasks=tasks, include=["TAGS"])["tasks"]
    assert {t["key"]: t["value"] for t in task["tags"]}["pipecd-dev-commit-hash"] == "v1"


async def test_a_task_may_only_be_registered(lab: EcsLab) -> None:
    v1 = lab.write("v1", make_task("job:v1"))
    harness = lab.open("first", v1, options=standalone(lab, runStandaloneTask=False))

    assert_success(await harness.run("ECS_SYNC"))

    assert lab.aws.calls("RegisterTaskDefinition")
    assert lab.aws.calls("RunTask") == []


async def test_a_rollback_of_a_task_without_a_service_does_nothing(lab: EcsLab) -> None:
    v1 = lab.write("v1", make_task("job:v1"))
    harness = lab.open("second", v1, v1, options=standalone(lab))

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert lab.aws.calls() == []


async def test_a_task_that_cannot_be_placed_fails_with_the_reason(lab: EcsLab) -> None:
    v1 = lab.write("v1", make_task("job:v1"))
    harness = lab.open("first", v1, options=standalone(lab))
    lab.aws.break_next("RunTask", "refuse", code="InvalidParameterException", message="no subnet")

    result = await harness.run("ECS_SYNC")

    assert result.status is StageStatus.FAILURE
    assert "no subnet" in result.reason
