# SPDX-License-Identifier: Apache-2.0
"""Services with rolling updates, and tasks without a service."""

from typing import Any

import pytest
from pipecd_plugin_ecs.provider import model
from pipecd_plugin_ecs.stages.steps import force_where_needed

from pipecd_sdk import StageStatus
from pipecd_test_support.aws.ecs_lab import EcsLab, assert_success, make_task

pytestmark = pytest.mark.xdist_group("aws")


async def test_a_rolling_service_is_made_and_updated(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(lab.make_rolling())
    [made] = lab.aws.calls("CreateService")
    assert made["parameters"]["launchType"] == "FARGATE"
    v2 = lab.write("v2", make_task("web:v2"), lab.make_rolling(count=6))

    assert_success(await lab.open("second", v2, v1).run("ECS_PRIMARY_ROLLOUT", {}))

    service = lab.read_service()
    assert lab.read_image(service["taskDefinition"]) == "web:v2"
    assert service["runningCount"] == 6
    assert lab.aws.calls("CreateTaskSet") == []


async def test_a_definition_without_a_controller_is_rolling(lab: EcsLab) -> None:
    await lab.deploy_first(lab.make_rolling(deploymentController=None))

    assert lab.read_service()["deploymentController"]["type"] == "ECS"


async def test_a_rolling_service_behind_a_load_balancer_has_the_primarys_group(lab: EcsLab) -> None:
    arns = lab.balance()
    await lab.deploy_first(lab.make_rolling())

    [made] = lab.aws.calls("CreateService")
    assert made["parameters"]["loadBalancers"][0]["targetGroupArn"] == arns["primary"]


async def test_a_classic_load_balancer_of_a_target_group_is_told_to_have_no_effect(
    lab: EcsLab,
) -> None:
    """Older files have the key; nothing is done with it."""
    lab.balance()
    options = lab.make_options()
    options["input"]["targetGroups"]["primary"]["loadBalancerName"] = "classic"
    harness = lab.open("first", lab.write("v1", make_task(), lab.make_rolling()), options=options)

    assert_success(await harness.run("ECS_SYNC"))

    assert "loadBalancerName classic of a target group has no effect" in harness.text
    [made] = lab.aws.calls("CreateService")
    assert "loadBalancerName" not in made["parameters"]["loadBalancers"][0]


async def test_a_broken_rolling_update_is_rolled_back(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(lab.make_rolling())
    v2 = lab.write("v2", make_task("web:broken"), lab.make_rolling(count=6))
    harness = lab.open("second", v2, v1)
    result = await harness.run("ECS_SYNC")
    assert "0 of 6 tasks running" in result.reason

    assert_success(await harness.run("ECS_ROLLBACK"))

    service = lab.read_service()
    assert lab.read_image(service["taskDefinition"]) == "web:v1"
    assert (service["desiredCount"], service["runningCount"]) == (4, 4)
    tags = {t["key"]: t["value"] for t in service["tags"]}
    assert tags["pipecd-dev-commit-hash"] == "v1"


async def test_an_answer_from_before_the_update_does_not_fail_it(lab: EcsLab) -> None:
    """What AWS tells of a service may be older than the change that it has just taken."""
    v1 = await lab.deploy_first(lab.make_rolling())
    v2 = lab.write("v2", make_task("web:v2"), lab.make_rolling())
    lab.aws.break_next("DescribeServices", "stale", after=2, count=3)

    assert_success(await lab.open("second", v2, v1).run("ECS_SYNC"))

    assert lab.read_image(lab.read_service()["taskDefinition"]) == "web:v2"


async def test_an_update_that_aws_has_taken_back_fails(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(lab.make_rolling())
    v2 = lab.write("v2", make_task("web:v2"), lab.make_rolling())
    lab.aws.break_next("DescribeServices", "stale", after=2, count=100)

    result = await lab.open("second", v2, v1).run("ECS_SYNC")

    assert "AWS has ended the update of web" in result.reason


async def test_a_rolling_service_whose_revision_was_deregistered_comes_back(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(lab.make_rolling())
    ran = lab.read_service()["taskDefinition"]
    harness = lab.open("second", lab.write("v2", make_task("web:v2"), lab.make_rolling()), v1)
    assert_success(await harness.run("ECS_SYNC"))
    lab.aws.ecs.deregister_task_definition(taskDefinition=ran)

    assert_success(await harness.run("ECS_ROLLBACK"))

    runs = lab.read_service()["taskDefinition"]
    assert (lab.read_image(runs), runs != ran) == ("web:v1", True)


def read_service(lab: EcsLab, cluster: str, name: str) -> dict[str, Any]:
    """Returns a service beside the lab's own."""
    found: dict[str, Any] = lab.aws.ecs.describe_services(cluster=cluster, services=[name])
    (service,) = found["services"]
    return dict(service)


async def test_a_rolling_service_that_was_renamed_comes_back(lab: EcsLab) -> None:
    """A service without task sets is not asked for them: AWS refuses that."""
    v1 = await lab.deploy_first(lab.make_rolling())
    v2 = lab.write("v2", make_task("web:v2"), lab.make_rolling(serviceName="shop"))
    harness = lab.open("second", v2, v1)
    assert_success(await harness.run("ECS_SYNC"))
    lab.aws.forget()

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert lab.read_image(lab.read_service()["taskDefinition"]) == "web:v1"
    assert lab.aws.calls("DescribeTaskSets") == []
    left = read_service(lab, lab.cluster, "shop")
    assert (left["desiredCount"], left["status"]) == (0, "ACTIVE")
    assert "runs no tasks now" in harness.text


async def test_a_rolling_service_that_was_moved_to_another_cluster_comes_back(
    lab: EcsLab,
) -> None:
    v1 = await lab.deploy_first(lab.make_rolling())
    other = f"{lab.cluster}-other"
    lab.aws.ecs.create_cluster(clusterName=other)
    v2 = lab.write("v2", make_task("web:v2"), lab.make_rolling(clusterArn=other, count=2))
    harness = lab.open("second", v2, v1)
    assert_success(await harness.run("ECS_SYNC"))

    assert_success(await harness.run("ECS_ROLLBACK"))

    service = lab.read_service()
    assert lab.read_image(service["taskDefinition"]) == "web:v1"
    assert (service["desiredCount"], service["runningCount"]) == (4, 4)
    assert f"the service web in {other} of the failed commit is left" in harness.text


async def test_what_ran_in_the_other_cluster_does_not_come_back_in_the_first(lab: EcsLab) -> None:
    """Somebody's service has the same name there: its tasks and their number are its own."""
    v1 = await lab.deploy_first(lab.make_rolling(count=None))
    lab.aws.ecs.update_service(cluster=lab.cluster, service="web", desiredCount=4)
    other = f"{lab.cluster}-other"
    lab.aws.ecs.create_cluster(clusterName=other)
    theirs = lab.aws.ecs.register_task_definition(**make_task("web:theirs"))["taskDefinition"]
    lab.aws.ecs.create_service(
        cluster=other,
        serviceName="web",
        taskDefinition=theirs["taskDefinitionArn"],
        desiredCount=1,
    )
    v2 = lab.write("v2", make_task("web:v2"), lab.make_rolling(clusterArn=other, count=2))
    harness = lab.open("second", v2, v1)
    assert_success(await harness.run("ECS_SYNC"))

    assert_success(await harness.run("ECS_ROLLBACK"))

    service = lab.read_service()
    assert (lab.read_image(service["taskDefinition"]), service["desiredCount"]) == ("web:v1", 4)
    assert f"web in {other}, which was there before the deployment, is left" in harness.text
    left = read_service(lab, other, "web")
    assert (lab.read_image(left["taskDefinition"]), left["desiredCount"]) == ("web:theirs", 1)


REGISTRIES = [{"registryArn": "arn:aws:servicediscovery:eu-central-1:123456789012:service/srv-1"}]
SPREAD = [{"type": "spread", "field": "attribute:ecs.availability-zone"}]


def read_last_update(lab: EcsLab) -> dict[str, Any]:
    """What AWS was told: moto does not keep all of it."""
    found: dict[str, Any] = lab.aws.calls("UpdateService")[-1]["parameters"]
    return found


async def test_lists_that_are_gone_from_git_are_cleared(lab: EcsLab) -> None:
    """AWS leaves them as they are unless it is told that they are empty."""
    v1 = await lab.deploy_first(
        lab.make_rolling(serviceRegistries=REGISTRIES, placementStrategy=SPREAD)
    )
    v2 = lab.write("v2", make_task("web:v2"), lab.make_rolling())

    assert_success(await lab.open("second", v2, v1).run("ECS_SYNC"))

    sent = read_last_update(lab)
    assert (sent["serviceRegistries"], sent["placementStrategy"]) == ([], [])
    assert "loadBalancers" not in sent, "git never had any: they are somebody's"
    assert "placementConstraints" not in sent


async def test_a_service_that_leaves_its_load_balancer_has_none(lab: EcsLab) -> None:
    arns = lab.balance()
    group = {"targetGroupArn": arns["primary"], "containerName": "web", "containerPort": 80}
    given = lab.make_rolling(loadBalancers=[group])
    alone = lab.make_options(accessType="SERVICE_DISCOVERY", targetGroups={})
    v1 = lab.write("v1", make_task(), given)
    assert_success(await lab.open("first", v1, options=alone).run("ECS_SYNC"))
    v2 = lab.write("v2", make_task("web:v2"), lab.make_rolling())

    assert_success(await lab.open("second", v2, v1, options=alone).run("ECS_SYNC"))

    assert read_last_update(lab)["loadBalancers"] == []


async def test_a_rollback_clears_the_lists_that_only_the_failed_commit_has(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(lab.make_rolling())
    given = lab.make_rolling(serviceRegistries=REGISTRIES)
    harness = lab.open("second", lab.write("v2", make_task("web:v2"), given), v1)
    assert_success(await harness.run("ECS_SYNC"))

    assert_success(await harness.run("ECS_ROLLBACK"))

    sent = read_last_update(lab)
    assert sent["serviceRegistries"] == []
    assert "loadBalancers" not in sent


async def test_a_rollback_gives_back_lists_that_others_had_set(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(lab.make_rolling())
    lab.aws.ecs.update_service(cluster=lab.cluster, service="web", placementStrategy=SPREAD)
    there = lab.read_service()["placementStrategy"]
    given = lab.make_rolling(placementStrategy=[{"type": "random"}])
    harness = lab.open("second", lab.write("v2", make_task("web:v2"), given), v1)
    assert_success(await harness.run("ECS_SYNC"))

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert there == SPREAD
    assert read_last_update(lab)["placementStrategy"] == SPREAD


async def test_there_is_no_canary_to_clean_of_a_rolling_service_or_a_task(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(lab.make_rolling())
    lab.aws.forget()

    assert_success(await lab.open("second", v1, v1).run("ECS_CANARY_CLEAN", {}))
    alone = lab.open("third", lab.write("v2", make_task("job:v1")), options=standalone(lab))
    assert_success(await alone.run("ECS_CANARY_CLEAN", {}))

    assert [each["action"] for each in lab.aws.calls()] == ["DescribeServices"]


async def test_recreate_stops_a_rolling_service_first(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(lab.make_rolling())
    v2 = lab.write("v2", make_task("web:v2"), lab.make_rolling(count=None))
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
    v1 = await lab.deploy_first(lab.make_rolling())

    result = await lab.open("second", v1, v1).run(stage, options)

    assert "needs a service with the deployment controller EXTERNAL" in result.reason


async def test_another_controller_than_the_services_is_refused(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(lab.make_rolling())
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


async def test_a_rollback_gives_back_fields_that_only_the_failed_commit_names(lab: EcsLab) -> None:
    """Somebody had set them, or AWS: no commit says what they were."""
    v1 = await lab.deploy_first(lab.make_rolling())
    set_up = {"maximumPercent": 150, "minimumHealthyPercent": 50}
    lab.aws.ecs.update_service(
        cluster=lab.cluster, service="web", deploymentConfiguration=set_up, propagateTags="SERVICE"
    )
    given = lab.make_rolling(
        deploymentConfiguration={"maximumPercent": 200, "minimumHealthyPercent": 0},
        propagateTags="NONE",
    )
    harness = lab.open("second", lab.write("v2", make_task("web:v2"), given), v1)
    assert_success(await harness.run("ECS_SYNC"))

    assert_success(await harness.run("ECS_ROLLBACK"))

    sent = read_last_update(lab)
    assert sent["propagateTags"] == "SERVICE"
    assert set_up.items() <= sent["deploymentConfiguration"].items()


async def test_a_rollback_of_task_sets_gives_back_fields_too(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(lab.make_service())
    lab.aws.ecs.update_service(cluster=lab.cluster, service="web", propagateTags="SERVICE")
    given = lab.make_service(propagateTags="NONE")
    harness = lab.open("second", lab.write("v2", make_task("web:v2"), given), v1)
    assert_success(await harness.run("ECS_SYNC"))

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert read_last_update(lab)["propagateTags"] == "SERVICE"


async def test_a_field_that_the_earlier_commit_names_is_as_it_says(lab: EcsLab) -> None:
    v1 = await lab.deploy_first(lab.make_rolling(propagateTags="TASK_DEFINITION"))
    lab.aws.ecs.update_service(cluster=lab.cluster, service="web", propagateTags="NONE")
    given = lab.make_rolling(propagateTags="SERVICE")
    harness = lab.open("second", lab.write("v2", make_task("web:v2"), given), v1)
    assert_success(await harness.run("ECS_SYNC"))

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert read_last_update(lab)["propagateTags"] == "TASK_DEFINITION"


async def test_a_field_that_the_service_never_had_is_named_after_the_rest_is_done(
    lab: EcsLab,
) -> None:
    v1 = await lab.deploy_first(lab.make_rolling())
    given = lab.make_rolling(count=6, healthCheckGracePeriodSeconds=9)
    harness = lab.open("second", lab.write("v2", make_task("web:v2"), given), v1)
    assert_success(await harness.run("ECS_SYNC"))

    result = await harness.run("ECS_ROLLBACK")

    assert result.status is StageStatus.FAILURE
    assert "but healthCheckGracePeriodSeconds stay as the failed commit has them" in result.reason
    assert lab.read_image(lab.read_service()["taskDefinition"]) == "web:v1"
    assert lab.read_service()["desiredCount"] == 4


@pytest.mark.parametrize(
    ("wanted", "is_forced"),
    [
        ([{"capacityProvider": "FARGATE", "weight": 1, "base": 0}], False),
        ([{"capacityProvider": "FARGATE", "weight": 1}], False),
        ([{"capacityProvider": "FARGATE_SPOT", "weight": 1}], True),
        ([{"capacityProvider": "FARGATE", "weight": 2}], True),
    ],
)
def test_only_another_capacity_provider_strategy_is_a_new_deployment(
    wanted: list[dict[str, Any]], is_forced: bool
) -> None:
    """Its defaults may be written or not. The server of the other tests keeps no strategy."""
    there = [{"capacityProvider": "FARGATE", "weight": 1, "base": 0}]
    service = model.read_service({"serviceName": "web", "capacityProviderStrategy": there})

    changes = force_where_needed(service, {"capacityProviderStrategy": wanted})

    assert changes.get("forceNewDeployment", False) is is_forced
    assert changes["capacityProviderStrategy"] == wanted


async def test_another_capacity_provider_strategy_is_a_new_deployment_both_ways(
    lab: EcsLab,
) -> None:
    """AWS takes it only as one."""

    def spread(provider: str, **more: int) -> Any:
        given = lab.make_rolling(capacityProviderStrategy=[{"capacityProvider": provider, **more}])
        given.pop("launchType", None)
        return given

    v1 = await lab.deploy_first(spread("FARGATE", weight=1))
    other = lab.write("v2", make_task("web:v2"), spread("FARGATE_SPOT", weight=1))
    harness = lab.open("second", other, v1)
    assert_success(await harness.run("ECS_SYNC"))
    assert read_last_update(lab)["forceNewDeployment"] is True

    assert_success(await harness.run("ECS_ROLLBACK"))

    sent = read_last_update(lab)
    assert sent["forceNewDeployment"] is True
    assert sent["capacityProviderStrategy"][0]["capacityProvider"] == "FARGATE"


async def test_a_service_without_tags_has_none_after_a_rollback_without_definitions(
    lab: EcsLab,
) -> None:
    v1 = await lab.deploy_first(lab.make_rolling())
    arn = lab.read_service()["serviceArn"]
    there = [each["key"] for each in lab.read_service()["tags"]]
    lab.aws.ecs.untag_resource(resourceArn=arn, tagKeys=there)
    (v1 / "servicedef.json").write_text("{")
    harness = lab.open("second", lab.write("v2", make_task("web:v2"), lab.make_rolling()), v1)
    assert_success(await harness.run("ECS_SYNC"))

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert lab.read_service().get("tags", []) == []
