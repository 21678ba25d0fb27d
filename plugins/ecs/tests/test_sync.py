# SPDX-License-Identifier: Apache-2.0
"""ECS_SYNC on a server that speaks as AWS does."""

import pytest

from pipecd_sdk import StageStatus
from pipecd_test_support.aws.ecs_lab import EcsLab, assert_success, make_task

pytestmark = pytest.mark.xdist_group("aws")


async def test_a_first_sync_makes_the_service_and_one_task_set(lab: EcsLab) -> None:
    await lab.deploy_first()

    service = lab.read_service()
    assert (service["desiredCount"], service["runningCount"]) == (4, 4)
    assert lab.read_sets() == [
        {"status": "PRIMARY", "image": "web:v1", "scale": 100.0, "commit": "v1"}
    ]
    assert {t["key"]: t["value"] for t in service["tags"]} == {
        "pipecd-dev-managed-by": "piped-ecs-plugin",
        "pipecd-dev-piped": "piped-1",
        "pipecd-dev-application": "application-1",
        "pipecd-dev-commit-hash": "v1",
    }


async def test_a_sync_replaces_the_task_set(lab: EcsLab) -> None:
    v1 = await lab.deploy_first()
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service())

    assert_success(await lab.open("second", v2, v1).run("ECS_SYNC"))

    assert lab.read_sets() == [
        {"status": "PRIMARY", "image": "web:v2", "scale": 100.0, "commit": "v2"}
    ]


async def test_the_old_tasks_run_until_the_new_ones_do(lab: EcsLab) -> None:
    v1 = await lab.deploy_first()
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service())
    lab.aws.forget()

    assert_success(await lab.open("second", v2, v1).run("ECS_SYNC"))

    order = [each["action"] for each in lab.aws.calls()]
    assert order.index("CreateTaskSet") < order.index("UpdateServicePrimaryTaskSet")
    assert order.index("UpdateServicePrimaryTaskSet") < order.index("DeleteTaskSet")
    assert "DescribeTaskSets" in order[order.index("CreateTaskSet") :]


async def test_earlier_revisions_stay_registered_for_a_fast_rollback(lab: EcsLab) -> None:
    v1 = await lab.deploy_first()
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service())

    assert_success(await lab.open("second", v2, v1).run("ECS_SYNC"))

    assert lab.aws.calls("DeregisterTaskDefinition") == []


async def test_tasks_that_never_run_fail_the_stage_in_time_with_the_reason(lab: EcsLab) -> None:
    v1 = await lab.deploy_first()
    v2 = lab.write("v2", make_task("web:broken"), lab.make_service())
    harness = lab.open("second", v2, v1)
    began = harness.clock.now()

    result = await harness.run("ECS_SYNC")

    assert result.status is StageStatus.FAILURE
    assert "0 of 4 tasks running after 2 minutes" in result.reason
    assert (harness.clock.now() - began).total_seconds() == pytest.approx(120, abs=10)
    statuses = {each["status"]: each["image"] for each in lab.read_sets()}
    assert statuses == {"PRIMARY": "web:v1", "ACTIVE": "web:broken"}


@pytest.mark.parametrize("manager", ["piped", "piped-ecs-plugin"])
async def test_task_sets_of_upstreams_agents_are_taken_over(lab: EcsLab, manager: str) -> None:
    v1 = await lab.deploy_first()
    lab.aws.ecs.create_task_set(
        cluster=lab.cluster,
        service="web",
        taskDefinition="web",
        launchType="FARGATE",
        tags=[{"key": "pipecd-dev-managed-by", "value": manager}],
    )
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service())

    assert_success(await lab.open("second", v2, v1).run("ECS_SYNC"))

    assert [each["image"] for each in lab.read_sets()] == ["web:v2"]


async def test_a_task_set_of_somebody_else_is_left_alone(lab: EcsLab) -> None:
    v1 = await lab.deploy_first()
    lab.aws.ecs.create_task_set(
        cluster=lab.cluster, service="web", taskDefinition="web", launchType="FARGATE"
    )
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service())
    harness = lab.open("second", v2, v1)

    assert_success(await harness.run("ECS_SYNC"))

    assert len(lab.read_sets()) == 2
    assert "left alone" in harness.text


@pytest.mark.parametrize("quick", [True, False])
async def test_recreate_stops_all_tasks_first(lab: EcsLab, quick: bool) -> None:
    v1 = await lab.deploy_first()
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service(count=None))
    lab.aws.forget()
    options = {**lab.make_options(), "quickSync": {"recreate": quick}}
    harness = lab.open("second", v2, v1, options)

    assert_success(await harness.run("ECS_SYNC", None if quick else {"recreate": True}))

    counts = [
        each["parameters"]["desiredCount"]
        for each in lab.aws.calls("UpdateService")
        if "desiredCount" in each["parameters"]
    ]
    assert counts == [0, 4], "what ran before comes back, when git leaves the count open"
    assert lab.read_service()["runningCount"] == 4


async def test_a_count_that_git_leaves_open_is_not_touched(lab: EcsLab) -> None:
    v1 = await lab.deploy_first()
    lab.aws.ecs.update_service(cluster=lab.cluster, service="web", desiredCount=9)
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service(count=None))

    assert_success(await lab.open("second", v2, v1).run("ECS_SYNC"))

    assert lab.read_service()["desiredCount"] == 9


async def test_every_field_of_the_definitions_is_passed_on(lab: EcsLab) -> None:
    task = make_task(
        pidMode="task",
        ephemeralStorage={"sizeInGiB": 30},
        tags=[{"key": "team", "value": "shop"}],
        runtimePlatform={"CpuArchitecture": "ARM64"},
        container={"StopTimeout": 30, "dockerLabels": {"A.b": "c"}},
    )
    service = lab.make_service(
        healthCheckGracePeriodSeconds=30,
        enableECSManagedTags=True,
        enableExecuteCommand=True,
        propagateTags="SERVICE",
        deploymentConfiguration={"maximumPercent": 200},
        platformVersion="1.4.0",
        tags=[{"key": "team", "value": "shop"}],
        colour="blue",
    )
    harness = lab.open("first", lab.write("v1", task, service))

    assert_success(await harness.run("ECS_SYNC"))

    [registered] = lab.aws.calls("RegisterTaskDefinition")
    assert registered["parameters"]["pidMode"] == "task"
    assert registered["parameters"]["tags"] == [{"key": "team", "value": "shop"}]
    assert registered["parameters"]["runtimePlatform"] == {"cpuArchitecture": "ARM64"}
    assert registered["parameters"]["containerDefinitions"][0]["stopTimeout"] == 30
    [made] = lab.aws.calls("CreateService")
    sent = made["parameters"]
    assert sent["healthCheckGracePeriodSeconds"] == 30
    assert sent["propagateTags"] == "SERVICE"
    assert sent["deploymentConfiguration"] == {"maximumPercent": 200}
    assert {"key": "team", "value": "shop"} in sent["tags"]
    assert "launchType" not in sent, "AWS takes it of the task set"
    [task_set] = lab.aws.calls("CreateTaskSet")
    assert task_set["parameters"]["platformVersion"] == "1.4.0"
    assert task_set["parameters"]["launchType"] == "FARGATE"
    assert "colour" in harness.text, "what AWS does not know is named"


async def test_foreign_tags_of_the_service_go_and_its_own_come(lab: EcsLab) -> None:
    v1 = await lab.deploy_first()
    arn = lab.read_service()["serviceArn"]
    lab.aws.ecs.tag_resource(resourceArn=arn, tags=[{"key": "old", "value": "x"}])
    service = lab.make_service(tags=[{"key": "team", "value": "shop"}])

    assert_success(
        await lab.open("second", lab.write("v2", make_task(), service), v1).run("ECS_SYNC")
    )

    tags = {t["key"]: t["value"] for t in lab.read_service()["tags"]}
    assert tags["team"] == "shop"
    assert tags["pipecd-dev-commit-hash"] == "v2"
    assert "old" not in tags


async def test_tags_may_be_written_in_any_case(lab: EcsLab) -> None:
    await lab.deploy_first(lab.make_service(Tags=[{"Key": "team", "Value": "shop"}]))

    tags = {t["key"]: t["value"] for t in lab.read_service()["tags"]}
    assert tags["team"] == "shop"
    [made] = lab.aws.calls("CreateTaskSet")
    assert {"key": "team", "value": "shop"} in made["parameters"]["tags"]


async def test_a_wrong_controller_is_refused_before_anything_changes(lab: EcsLab) -> None:
    service = lab.make_service(deploymentController={"type": "CODE_DEPLOY"})
    lab.aws.forget()

    result = await lab.open("first", lab.write("v1", make_task(), service)).run("ECS_SYNC")

    assert "CODE_DEPLOY" in result.reason
    assert lab.aws.calls() == []


async def test_a_missing_right_ends_the_stage_with_its_name(lab: EcsLab) -> None:
    lab.aws.break_next("CreateService", "deny")

    result = await lab.open("first", lab.write("v1", make_task(), lab.make_service())).run(
        "ECS_SYNC"
    )

    assert "has not the right ecs:CreateService" in result.reason


async def test_behind_a_load_balancer_the_task_set_has_the_primarys_group(lab: EcsLab) -> None:
    arns = lab.balance()

    await lab.deploy_first()

    [made] = lab.aws.calls("CreateTaskSet")
    assert made["parameters"]["loadBalancers"] == [
        {"targetGroupArn": arns["primary"], "containerName": "web", "containerPort": 80}
    ]


async def test_service_discovery_passes_the_registries_on(lab: EcsLab) -> None:
    registries = [{"registryArn": "arn:aws:servicediscovery:eu-central-1:1:service/s"}]

    await lab.deploy_first(lab.make_service(serviceRegistries=registries))

    [made] = lab.aws.calls("CreateTaskSet")
    assert made["parameters"]["serviceRegistries"] == registries
    assert "loadBalancers" not in made["parameters"]
