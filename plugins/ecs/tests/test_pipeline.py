# SPDX-License-Identifier: Apache-2.0
"""A canary from its first task to 100 %, and the way back from every step."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_ecs.plugin import Ecs

from pipecd_sdk import StageStatus
from pipecd_sdk.testing import StageHarness
from pipecd_test_support.aws.ecs_lab import EcsLab, assert_success, make_task

pytestmark = pytest.mark.xdist_group("aws")

PIPELINE: list[tuple[str, Mapping[str, Any]]] = [
    ("ECS_CANARY_ROLLOUT", {"scale": "50%"}),
    ("ECS_TRAFFIC_ROUTING", {"canary": 20}),
    ("ECS_PRIMARY_ROLLOUT", {}),
    ("ECS_TRAFFIC_ROUTING", {"primary": 100}),
    ("ECS_CANARY_CLEAN", {}),
]


async def run_pipeline(harness: StageHarness[Ecs], upto: int = len(PIPELINE)) -> None:
    for index, (name, options) in enumerate(PIPELINE[:upto]):
        harness.metadata.values.clear()  # each stage has its own
        assert_success(await harness.run(name, options, index=index))


async def begin(
    lab: EcsLab, image: str = "web:v2", count: int = 6
) -> tuple[StageHarness[Ecs], Path]:
    """What runs is v1, with 4 tasks; the deployment wants another image and 6."""
    lab.balance()
    v1 = await lab.deploy_first()
    v2 = lab.write("v2", make_task(image), lab.make_service(count=count))
    lab.aws.forget()
    return lab.open("second", v2, v1), v2


async def test_task_sets_in_another_cluster_are_removed_by_the_rollback(lab: EcsLab) -> None:
    v1 = await lab.deploy_first()
    other = f"{lab.cluster}-other"
    lab.aws.ecs.create_cluster(clusterName=other)
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service(clusterArn=other))
    harness = lab.open("second", v2, v1)
    assert_success(await harness.run("ECS_CANARY_ROLLOUT", {"scale": 50}))
    harness.metadata.values.clear()
    assert_success(await harness.run("ECS_PRIMARY_ROLLOUT", {}, index=1))

    assert_success(await harness.run("ECS_ROLLBACK"))

    left = lab.aws.ecs.describe_task_sets(cluster=other, service="web")["taskSets"]
    assert left == []
    assert f"the service web in {other} of the failed commit is left" in harness.text


async def test_a_canary_goes_to_all_and_leaves_one_task_set(lab: EcsLab) -> None:
    harness, _ = await begin(lab)

    await run_pipeline(harness, upto=1)
    canary = {"status": "ACTIVE", "image": "web:v2", "scale": 50.0, "commit": "v2"}
    primary = {"status": "PRIMARY", "image": "web:v1", "scale": 100.0, "commit": "v1"}
    assert lab.read_sets() == [canary, primary]

    for index, (name, options) in enumerate(PIPELINE[1:], start=1):
        assert_success(await harness.run(name, options, index=index))

    assert lab.read_sets() == [{**primary, "image": "web:v2", "commit": "v2"}]
    weights = lab.read_weights()
    assert weights["default-80"] == weights["own"] == [("primary", 100), ("canary", 0)]
    assert lab.read_service()["runningCount"] == 6
    assert len(lab.aws.calls("RegisterTaskDefinition")) == 1, "canary and primary are one revision"


async def test_the_canary_has_its_own_target_group(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    await run_pipeline(harness, upto=1)

    [made] = lab.aws.calls("CreateTaskSet")
    [group] = made["parameters"]["loadBalancers"]
    assert "/canary-" in group["targetGroupArn"]
    assert made["parameters"]["scale"] == {"value": 50.0, "unit": "PERCENT"}


async def test_a_canary_that_is_rolled_out_again_gets_its_new_share(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    await run_pipeline(harness, upto=1)

    assert_success(await harness.run("ECS_CANARY_ROLLOUT", {"scale": 100}, index=1))

    assert [(each["status"], each["scale"]) for each in lab.read_sets()] == [
        ("ACTIVE", 100.0),
        ("PRIMARY", 100.0),
    ]
    assert len(lab.aws.calls("CreateTaskSet")) == 1


async def test_a_canary_that_was_removed_can_be_rolled_out_again(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    await run_pipeline(harness, upto=1)
    assert_success(await harness.run("ECS_CANARY_CLEAN", {}, index=1))
    assert [each["status"] for each in lab.read_sets()] == ["PRIMARY"]

    assert_success(await harness.run("ECS_CANARY_ROLLOUT", {"scale": 25}, index=2))

    assert [(each["status"], each["scale"]) for each in lab.read_sets()] == [
        ("ACTIVE", 25.0),
        ("PRIMARY", 100.0),
    ]


async def test_a_canary_stays_when_the_primary_is_rolled_out(lab: EcsLab) -> None:
    harness, _ = await begin(lab)

    await run_pipeline(harness, upto=3)

    assert [(each["status"], each["scale"]) for each in lab.read_sets()] == [
        ("ACTIVE", 50.0),
        ("PRIMARY", 100.0),
    ]


async def test_a_canary_that_still_gets_traffic_is_not_removed(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    await run_pipeline(harness, upto=3)

    result = await harness.run("ECS_CANARY_CLEAN", {}, index=4)

    assert result.status is StageStatus.FAILURE
    assert "the canary still gets traffic" in result.reason
    assert len(lab.read_sets()) == 2


async def test_cleaning_without_a_canary_is_fine(lab: EcsLab) -> None:
    harness, _ = await begin(lab)

    assert_success(await harness.run("ECS_CANARY_CLEAN", {}))
    assert_success(await harness.run("ECS_CANARY_CLEAN", {}))


async def test_a_canary_behind_a_load_balancer_needs_its_group(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    harness.options["input"]["targetGroups"].pop("canary")

    result = await harness.run("ECS_CANARY_ROLLOUT", {"scale": 10})

    assert "needs input.targetGroups.canary" in result.reason
    assert lab.aws.calls("CreateTaskSet") == []


async def test_routing_touches_only_rules_of_both_groups_and_keeps_stickiness(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    before = lab.read_weights()
    await run_pipeline(harness, upto=2)

    after = lab.read_weights()
    assert after["default-80"] == after["own"] == [("primary", 80), ("canary", 20)]
    assert {k: after[k] for k in ("default-8080", "foreign")} == {
        k: before[k] for k in ("default-8080", "foreign")
    }
    [rule] = lab.aws.calls("ModifyRule")
    assert len(lab.aws.calls("ModifyListener")) == 1
    assert any("StickinessConfig.Enabled" in key for key in rule["parameters"])
    kept = lab.aws.elb.describe_rules(RuleArns=[rule["parameters"]["RuleArn"]])["Rules"][0]
    sticky = kept["Actions"][0]["ForwardConfig"]["TargetGroupStickinessConfig"]
    assert sticky["DurationSeconds"] == 300


async def test_routing_reaches_every_load_balancer_of_the_primarys_group(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    listener = lab.add_load_balancer()

    await run_pipeline(harness, upto=2)

    assert lab.read_default_weights(listener) == {"primary": 80, "canary": 20}
    assert lab.read_weights()["default-80"] == [("primary", 80), ("canary", 20)]

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert lab.read_default_weights(listener) == {"primary": 100, "canary": 0}


async def test_routing_that_is_so_already_changes_nothing(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    await run_pipeline(harness, upto=2)
    lab.aws.forget()

    assert_success(await harness.run("ECS_TRAFFIC_ROUTING", {"canary": 20}, index=1))

    assert lab.aws.calls("ModifyRule") + lab.aws.calls("ModifyListener") == []


async def test_routing_keeps_what_upstream_keeps(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    await run_pipeline(harness, upto=2)

    kept = harness.deployment_metadata.values
    assert kept["primary-percentage"] == "80"
    assert kept["canary-percentage"] == "20"
    assert "canary" in kept["canary-target-group-arn"]
    assert kept["current-listeners"].count(",") == 1
    assert "taskSetArn" in kept["canary-task-set"]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong in which stage."""

    stage: int
    action: str
    kind: str = "deny"
    after: int = 0


FAULTS = [
    Fault(stage=0, action="RegisterTaskDefinition"),
    Fault(stage=0, action="UpdateService"),
    Fault(stage=0, action="CreateTaskSet"),
    Fault(stage=1, action="ModifyListener"),
    Fault(stage=1, action="ModifyRule"),
    Fault(stage=2, action="CreateTaskSet"),
    Fault(stage=2, action="UpdateServicePrimaryTaskSet"),
    Fault(stage=2, action="DeleteTaskSet"),
    Fault(stage=3, action="ModifyRule"),
    Fault(stage=4, action="DeleteTaskSet"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda it: f"{it.stage}-{it.action}")
async def test_a_rollback_brings_back_what_ran(lab: EcsLab, fault: Fault) -> None:
    harness, _ = await begin(lab)
    before = lab.read_all()
    await run_pipeline(harness, upto=fault.stage)
    lab.aws.break_next(fault.action, fault.kind, after=fault.after)
    name, options = PIPELINE[fault.stage]
    result = await harness.run(name, options, index=fault.stage)
    assert result.status is StageStatus.FAILURE
    assert fault.action in result.reason

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert lab.read_all() == before


async def test_a_rollback_of_a_broken_canary_brings_back_what_ran(lab: EcsLab) -> None:
    harness, _ = await begin(lab, image="web:broken")
    before = lab.read_all()
    result = await harness.run(*PIPELINE[0])
    assert "0 of 3 tasks running" in result.reason

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert lab.read_all() == before
    assert len(lab.aws.calls("CreateTaskSet")) == 1, "what ran still runs: nothing is made anew"


async def test_a_rollback_after_the_end_makes_the_earlier_task_set_anew(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    before = lab.read_all()
    await run_pipeline(harness)

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert lab.read_all() == before, "with the commit that runs, not the one that failed"
    assert len(lab.aws.calls("RegisterTaskDefinition")) == 1, "the revision that ran is used again"


async def test_a_rollback_may_be_repeated(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    before = lab.read_all()
    await run_pipeline(harness, upto=3)
    lab.aws.break_next("DeleteTaskSet", "deny")
    assert (await harness.run("ECS_ROLLBACK")).status is StageStatus.FAILURE

    assert_success(await harness.run("ECS_ROLLBACK"))
    assert_success(await harness.run("ECS_ROLLBACK"))

    assert lab.read_all() == before


async def test_a_rollback_that_cannot_move_the_traffic_keeps_the_canary(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    await run_pipeline(harness, upto=2)
    lab.aws.break_next("ModifyListener", "deny")

    result = await harness.run("ECS_ROLLBACK")

    assert "ModifyListener" in result.reason
    assert [each["scale"] for each in lab.read_sets()] == [50.0, 100.0]
    assert_success(await harness.run("ECS_ROLLBACK"))
    assert len(lab.read_sets()) == 1


async def test_a_rollback_before_any_change_does_nothing(lab: EcsLab) -> None:
    harness, _ = await begin(lab)

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert {each["action"] for each in lab.aws.calls()} == set()


async def test_a_rollback_of_a_first_deployment_says_what_is_left(lab: EcsLab) -> None:
    v1 = lab.write("v1", make_task("web:broken"), lab.make_service())
    harness = lab.open("first", v1)
    assert (await harness.run("ECS_SYNC")).status is StageStatus.FAILURE

    result = await harness.run("ECS_ROLLBACK")

    assert result.status is StageStatus.FAILURE
    assert "there is no earlier commit to go back to" in result.reason
    assert "the service web" in result.reason


async def test_a_revision_that_was_deregistered_is_registered_anew(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    await run_pipeline(harness)
    for arn in lab.aws.ecs.list_task_definitions(familyPrefix="web")["taskDefinitionArns"]:
        if lab.read_image(arn) == "web:v1":
            lab.aws.ecs.deregister_task_definition(taskDefinition=arn)

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert [each["image"] for each in lab.read_sets()] == ["web:v1"]


async def test_a_revision_that_was_deleted_is_registered_anew(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    await run_pipeline(harness)
    said = "Unable to describe task definition."
    lab.aws.break_next("DescribeTaskDefinition", "refuse", code="ClientException", message=said)

    assert_success(await harness.run("ECS_ROLLBACK"))

    assert [each["image"] for each in lab.read_sets()] == ["web:v1"]
    assert len(lab.aws.calls("RegisterTaskDefinition")) == 2


async def test_a_rollback_whose_tasks_do_not_run_fails(lab: EcsLab) -> None:
    """What ran is not back before its tasks run: success would hide an outage."""
    harness, _ = await begin(lab)
    await run_pipeline(harness)
    for arn in lab.aws.ecs.list_task_definitions(familyPrefix="web")["taskDefinitionArns"]:
        lab.aws.ecs.deregister_task_definition(taskDefinition=arn)
    lab.write("v1", make_task("web:broken"), lab.make_service())  # so it is registered anew

    result = await harness.run("ECS_ROLLBACK")

    assert result.status is StageStatus.FAILURE
    assert "0 of 4 tasks running" in result.reason


async def test_a_lost_answer_makes_no_second_task_set(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    lab.aws.break_next("CreateTaskSet", "lost")

    assert_success(await harness.run(*PIPELINE[0]))

    assert len(lab.read_sets()) == 2


async def test_a_second_run_of_every_stage_changes_nothing(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    for index, (name, options) in enumerate(PIPELINE):
        assert_success(await harness.run(name, options, index=index))
        once = (lab.read_sets(), lab.read_weights(), lab.read_service()["desiredCount"])
        assert_success(await harness.run(name, options, index=index))

        assert (lab.read_sets(), lab.read_weights(), lab.read_service()["desiredCount"]) == once
    assert len(lab.aws.calls("CreateTaskSet")) == 2


async def test_throttled_calls_are_told_in_the_log(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    lab.aws.break_next("CreateTaskSet", "throttle", count=2)

    assert_success(await harness.run(*PIPELINE[0]))

    assert harness.text.count("Rate exceeded") == 2


async def test_what_aws_does_not_list_yet_is_waited_for(lab: EcsLab) -> None:
    harness, _ = await begin(lab)
    lab.aws.break_next("DescribeTaskSets", "hide", count=2, after=2)

    assert_success(await harness.run(*PIPELINE[0]))

    assert "is not there yet" in harness.text


async def test_draining_task_sets_do_not_count(lab: EcsLab) -> None:
    lab.aws.keep_draining(drains=True)
    harness, _ = await begin(lab)

    await run_pipeline(harness)
    assert_success(await harness.run("ECS_CANARY_CLEAN", {}))

    assert lab.read_service()["runningCount"] == 6
