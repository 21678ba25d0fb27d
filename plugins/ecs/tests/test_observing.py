# SPDX-License-Identifier: Apache-2.0
"""Live state, drift, details and preview."""

import gc
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from pipecd_plugin_ecs.definition import Definitions
from pipecd_plugin_ecs.observing import ServiceDescriptions
from pipecd_plugin_ecs.plugin import Ecs
from pipecd_plugin_ecs.provider.ecs import EcsClient

from pipecd_aws import AwsAccounts, AwsError
from pipecd_sdk import Health, ResourceGoneError, SyncStatus
from pipecd_sdk.testing import FakeClock, StageHarness
from pipecd_test_support.aws.ecs_lab import EcsLab, make_task

pytestmark = pytest.mark.xdist_group("aws")


async def begin(lab: EcsLab, **more: Any) -> StageHarness[Ecs]:
    v1 = await lab.deploy_first(lab.make_service(**more))
    return lab.open("second", v1, v1)


async def test_what_runs_is_shown_as_a_tree(lab: EcsLab) -> None:
    harness = await begin(lab)

    seen = await harness.live_state()

    kinds = [resource.kind for _, resource in seen.resources]
    assert kinds[:2] == ["ECS:Service", "ECS:TaskSet"]
    service, task_set = (resource for _, resource in seen.resources[:2])
    assert service.health is Health.HEALTHY
    assert service.metadata["runningCount"] == "4"
    assert task_set.parents == [service.id]
    assert task_set.metadata["commit"] == "v1"
    assert seen.sync.status is SyncStatus.SYNCED, seen.sync.reason


async def test_a_service_whose_tasks_do_not_run_is_unhealthy(lab: EcsLab) -> None:
    v1 = lab.write("v1", make_task("web:broken"), lab.make_service())
    harness = lab.open("first", v1)
    await harness.run("ECS_SYNC")

    seen = await harness.live_state()

    assert Health.UNHEALTHY in seen.healths


async def test_another_commit_with_the_same_definitions_is_no_drift(lab: EcsLab) -> None:
    v1 = await lab.deploy_first()
    v2 = lab.write("v2", make_task(), lab.make_service())

    seen = await lab.open("second", v2, v1).live_state()

    assert seen.sync.status is SyncStatus.SYNCED


async def test_another_image_and_count_are_drift_that_names_the_fields(lab: EcsLab) -> None:
    v1 = await lab.deploy_first()
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service(count=5))

    seen = await lab.open("second", v2, v1).live_state()

    assert seen.sync.status is SyncStatus.OUT_OF_SYNC
    assert seen.sync.short_reason == (
        "2 fields differ from git: service.desiredCount, task.containerDefinitions.0.image"
    )
    assert "-       image: web:v1" in seen.sync.reason
    assert "+       image: web:v2" in seen.sync.reason


async def test_a_count_that_git_leaves_open_is_no_drift(lab: EcsLab) -> None:
    harness = await begin(lab)
    lab.aws.ecs.update_service(cluster=lab.cluster, service="web", desiredCount=9)
    assert (await harness.live_state()).sync.status is SyncStatus.OUT_OF_SYNC
    lab.write("v1", make_task(), lab.make_service(count=None))

    assert (await harness.live_state()).sync.status is SyncStatus.SYNCED


async def test_the_files_of_a_commit_are_read_once_wherever_they_are_checked_out(
    lab: EcsLab,
) -> None:
    v1 = await lab.deploy_first()
    harness = lab.open("look", v1)
    states = []
    for number, service in enumerate([lab.make_service(), lab.make_service(count=7)]):
        tree = lab.folder / f"tree-{number}"
        copytree(v1, tree / "web")
        (tree / "web" / "servicedef.json").write_text(json.dumps(service))
        harness.directory, harness.shared_config_directory = tree / "web", tree / ".pipe"
        states.append((await harness.live_state()).sync.status)

    assert states == [SyncStatus.SYNCED, SyncStatus.SYNCED], "it is the same commit"
    harness.shared_config_directory = lab.folder / ".pipe"
    assert (await harness.live_state()).sync.status is SyncStatus.OUT_OF_SYNC, "another folder"


async def test_fields_may_be_left_out_of_the_comparison(lab: EcsLab) -> None:
    harness = await begin(lab)
    lab.aws.ecs.update_service(cluster=lab.cluster, service="web", desiredCount=9)
    harness.options = {**lab.make_options(), "ignoreDrift": ["service.desiredCount"]}

    assert (await harness.live_state()).sync.status is SyncStatus.SYNCED


async def test_the_order_of_variables_numbers_as_texts_and_host_ports_are_no_drift(
    lab: EcsLab,
) -> None:
    ports = [{"containerPort": 80, "hostPort": 80}]
    names = [{"name": "B", "value": "1"}, {"name": "A", "value": "2"}]
    v1 = lab.write(
        "v1",
        make_task(cpu=256, container={"environment": names, "portMappings": ports}),
        lab.make_service(),
    )
    assert (await lab.open("first", v1).run("ECS_SYNC")).reason == ""
    ports = [{"containerPort": 80, "hostPort": 0}]
    v2 = lab.write(
        "v2",
        make_task(cpu="256", container={"environment": names[::-1], "portMappings": ports}),
        lab.make_service(),
    )

    seen = await lab.open("second", v2, v1).live_state()

    assert seen.sync.status is SyncStatus.SYNCED, seen.sync.reason


async def test_a_service_that_is_not_there_is_out_of_sync(lab: EcsLab) -> None:
    v1 = lab.write("v1", make_task(), lab.make_service())

    seen = await lab.open("first", v1).live_state()

    assert seen.sync.status is SyncStatus.OUT_OF_SYNC
    assert "the service web is not there" in seen.sync.reason


async def test_an_account_that_cannot_be_read_is_unknown_and_no_drift(lab: EcsLab) -> None:
    harness = await begin(lab)
    lab.aws.break_next("DescribeServices", "deny")

    seen = await harness.live_state()

    assert seen.sync.status is SyncStatus.UNKNOWN
    assert "ecs:DescribeServices" in seen.sync.reason


async def test_a_task_without_a_service_is_shown_and_not_compared(lab: EcsLab) -> None:
    v1 = lab.write("v1", make_task("job:v1"))
    options = {"input": {"clusterArn": lab.cluster}}
    harness = lab.open("first", v1, options=options)
    assert (await harness.run("ECS_SYNC")).reason == ""

    seen = await harness.live_state()

    assert [resource.kind for _, resource in seen.resources] == ["ECS:Task"]
    assert seen.sync.status is SyncStatus.UNKNOWN


async def test_two_deploy_targets_are_both_read(lab: EcsLab) -> None:
    harness = await begin(lab)
    other = lab.target
    harness.targets = [lab.target, type(other)(name="other", labels={}, config=other.config)]

    seen = await harness.live_state()

    assert {target.name for target, _ in seen.resources} == {"aws", "other"}


async def test_a_service_is_opened_with_its_difference(lab: EcsLab) -> None:
    v1 = await lab.deploy_first()
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service())
    harness = lab.open("second", v2, v1)
    arn = lab.read_service()["serviceArn"]

    details = await harness.open_resource(arn)

    assert "serviceName: web" in details.manifest
    assert "web:v2" in (details.difference or "")


async def test_a_task_set_is_opened_and_one_that_is_gone_is_told(lab: EcsLab) -> None:
    harness = await begin(lab)
    [(_, found)] = [
        each for each in (await harness.live_state()).resources if each[1].kind == "ECS:TaskSet"
    ]
    assert "taskSetArn" in (await harness.open_resource(found.id)).manifest
    lab.aws.ecs.delete_task_set(cluster=lab.cluster, service="web", taskSet=found.id)

    with pytest.raises(ResourceGoneError, match="not there any more"):
        await harness.open_resource(found)


SECRET = "hunter2hunter2"  # noqa: S105 - an example
APPLICATION = (
    "apiVersion: pipecd.dev/v1beta1\nkind: Application\n"
    "spec: {encryption: {decryptionTargets: [taskdef.json]}}\n"
)


def write_secret(lab: EcsLab, commit: str, value: str) -> Path:
    variables = [{"name": "PASSWORD", "value": value}]
    mount = {"scope": "task", "driver": "local", "driverOpts": {"o": f"password={value}"}}
    task = make_task(
        container={"environment": variables, "dockerLabels": {"key": value}},
        volumes=[{"name": "share", "dockerVolumeConfiguration": mount}],
    )
    folder = lab.write(commit, task, lab.make_service())
    (folder / "app.pipecd.yaml").write_text(APPLICATION)
    return folder


async def test_definitions_with_opened_secrets_do_not_stay_in_memory(lab: EcsLab) -> None:
    value = f"{SECRET}-of-this-test"
    harness = lab.open("first", write_secret(lab, "v1", value))
    await harness.run("ECS_SYNC")

    for _ in range(2):
        assert (await harness.live_state()).sync.status is SyncStatus.SYNCED

    gc.collect()
    left = [each for each in gc.get_objects() if isinstance(each, Definitions)]
    assert [each for each in left if value in repr(each.task)] == []


async def test_values_of_opened_secrets_are_shown_nowhere(lab: EcsLab) -> None:
    v1 = write_secret(lab, "v1", "old-" + SECRET)
    assert (await lab.open("first", v1).run("ECS_SYNC")).reason == ""
    harness = lab.open("second", write_secret(lab, "v2", SECRET), v1)

    seen = await harness.live_state()
    [preview] = (await harness.plan_preview()).values()
    details = await harness.open_resource(lab.read_service()["serviceArn"])

    assert seen.sync.status is SyncStatus.OUT_OF_SYNC
    shown = f"{seen} {preview} {details}"
    assert SECRET not in shown
    assert "*****" in shown


async def test_a_preview_shows_both_definitions_and_asks_nobody(lab: EcsLab) -> None:
    v1 = lab.write("v1", make_task(), lab.make_service())
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service(count=5))
    lab.aws.forget()

    [preview] = (await lab.open("second", v2, v1).plan_preview()).values()

    assert preview.summary == "task definition and service definition changed"
    assert "-  image: web:v1" in preview.details
    assert "+desiredCount: 5" in preview.details
    assert lab.aws.calls() == []


async def test_a_preview_of_no_change_says_so(lab: EcsLab) -> None:
    v1 = lab.write("v1", make_task(), lab.make_service())

    [preview] = (await lab.open("second", v1, v1).plan_preview()).values()

    assert preview.no_change


async def test_a_preview_of_the_first_commit_shows_all(lab: EcsLab) -> None:
    v1 = lab.write("v1", make_task(), lab.make_service())

    [preview] = (await lab.open("first", v1).plan_preview()).values()

    assert preview.summary == "task definition and service definition new"


MINUTE = timedelta(minutes=1)


async def advance(harness: StageHarness[Ecs], length: timedelta) -> None:
    assert isinstance(harness.clock, FakeClock)
    await harness.clock.advance(length)


async def test_nothing_but_the_service_is_read_while_it_does_not_change(lab: EcsLab) -> None:
    harness = await begin(lab)
    await harness.live_state()
    lab.aws.forget()

    for _ in range(3):
        await advance(harness, MINUTE)
        seen = await harness.live_state()

    assert seen.sync.status is SyncStatus.SYNCED, seen.sync.reason
    assert [each["action"] for each in lab.aws.calls()] == ["DescribeServices"] * 3
    await advance(harness, 3 * MINUTE)
    await harness.live_state()
    assert lab.aws.calls("DescribeTaskSets"), "they are read after five minutes anyway"


async def test_a_change_outside_is_seen_within_a_minute(lab: EcsLab) -> None:
    harness = await begin(lab)
    await harness.live_state()
    lab.aws.ecs.update_service(cluster=lab.cluster, service="web", desiredCount=9)

    await advance(harness, MINUTE)
    seen = await harness.live_state()

    assert seen.sync.status is SyncStatus.OUT_OF_SYNC
    assert seen.resources[0][1].metadata["desiredCount"] == "9"


async def test_what_a_stage_has_changed_is_seen_at_once(lab: EcsLab) -> None:
    v1 = await lab.deploy_first()
    v2 = lab.write("v2", make_task("web:v2"), lab.make_service(count=2))
    harness = lab.open("second", v2, v1)
    assert (await harness.live_state()).sync.status is SyncStatus.OUT_OF_SYNC

    assert (await harness.run("ECS_SYNC")).reason == ""

    seen = await harness.live_state()
    assert seen.sync.status is SyncStatus.SYNCED, seen.sync.reason
    assert seen.resources[0][1].metadata["runningCount"] == "2"


def open_client(lab: EcsLab, clock: FakeClock) -> EcsClient:
    account = AwsAccounts().get(lab.target.config)
    account = replace(account, clock=clock, retry_time=timedelta(seconds=1))
    return EcsClient(account=account, cluster=lab.cluster)


def make_services(lab: EcsLab, count: int) -> list[str]:
    """Services of which nothing runs."""
    names = [f"web-{number:02}" for number in range(count)]
    for name in names:
        controller = {"type": "EXTERNAL"}
        lab.aws.ecs.create_service(
            cluster=lab.cluster, serviceName=name, deploymentController=controller
        )
    lab.aws.forget()
    return names


async def test_the_services_of_a_cluster_are_described_ten_in_a_call(lab: EcsLab) -> None:
    names = make_services(lab, 23)
    clock = FakeClock()
    client, known = open_client(lab, clock), ServiceDescriptions()
    for name in [*names, "missing"]:
        await known.find(client, name)
        await clock.advance(timedelta(seconds=1))
    lab.aws.forget()

    await clock.advance(MINUTE)
    found = [await known.find(client, name) for name in [*names, "missing"]]

    assert [each.name if each else None for each in found] == [*names, None]
    assert len(lab.aws.calls("DescribeServices")) == 3


async def test_a_service_that_nobody_asks_for_any_more_is_not_described(lab: EcsLab) -> None:
    names = make_services(lab, 2)
    clock = FakeClock()
    client, known = open_client(lab, clock), ServiceDescriptions()
    for name in names:
        await known.find(client, name)
    lab.aws.forget()

    for _ in range(12):
        await clock.advance(MINUTE)
        await known.find(client, names[0])

    asked = [each["parameters"]["services"] for each in lab.aws.calls("DescribeServices")]
    assert asked[0] == names
    assert asked[-1] == names[:1]


async def test_one_service_that_may_not_be_read_hides_no_other(lab: EcsLab) -> None:
    names = make_services(lab, 2)
    clock = FakeClock()
    client, known = open_client(lab, clock), ServiceDescriptions()
    for name in names:
        await known.find(client, name)
    await clock.advance(MINUTE)
    lab.aws.break_next("DescribeServices", "deny")

    assert await known.find(client, names[0]) is not None


async def test_a_throttled_cluster_is_asked_less_and_less(lab: EcsLab) -> None:
    [name] = make_services(lab, 1)
    clock = FakeClock()
    client, known = open_client(lab, clock), ServiceDescriptions()
    client = replace(client, account=client.account.limit_retries(timedelta()))
    lab.aws.break_next("DescribeServices", "throttle", count=1000)

    for _ in range(20):
        with pytest.raises(AwsError, match="Rate exceeded"):
            await known.find(client, name)
        await clock.advance(MINUTE)

    assert 5 <= len(lab.aws.calls("DescribeServices")) <= 12
    lab.aws.forget()
    await clock.advance(5 * MINUTE)
    assert await known.find(client, name) is not None
