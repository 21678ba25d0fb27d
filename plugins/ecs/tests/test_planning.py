# SPDX-License-Identifier: Apache-2.0
"""Planning, options, versions and strategy: nobody is asked."""

import json
from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_ecs.config import EcsOptions, EcsTrafficConfig, read_shares
from pipecd_plugin_ecs.definition import list_containers
from pipecd_plugin_ecs.plugin import Ecs

from pipecd_sdk import Percentage, StageStatus, SyncStrategy
from pipecd_sdk.application import read_section
from pipecd_sdk.config import OptionFaultsError
from pipecd_sdk.testing import StageHarness, deploy_target

TARGET = deploy_target(Ecs, "aws", {"region": "eu-central-1"})
SERVICE = {"serviceName": "web", "clusterArn": "c"}


def write(folder: Path, *images: str, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    containers = [{"name": f"c{n}", "image": image} for n, image in enumerate(images)]
    (folder / "taskdef.json").write_text(
        json.dumps({"family": "web", "containerDefinitions": containers, **more})
    )
    (folder / "servicedef.yaml").write_text(json.dumps(SERVICE))
    return folder


def open_harness(target: Path, running: Path | None = None, **given: Any) -> StageHarness[Ecs]:
    options = {"input": {"serviceDefinitionFile": "servicedef.yaml", **given}}
    return StageHarness(
        Ecs(), directory=target, running_directory=running, options=options, targets=[TARGET]
    )


def test_the_rollback_stage_has_the_lowest_index() -> None:
    planned = StageHarness(Ecs()).plan(
        ("ECS_CANARY_ROLLOUT", {"scale": 30}),
        ("ECS_TRAFFIC_ROUTING", {"canary": 10}),
        ("ECS_PRIMARY_ROLLOUT", {}),
        ("ECS_TRAFFIC_ROUTING", {"primary": 100}),
        ("ECS_CANARY_CLEAN", {}),
    )

    assert [(each.name, each.index) for each in planned if each.rollback] == [("ECS_ROLLBACK", 0)]
    assert [each.index for each in planned if not each.rollback] == [0, 1, 2, 3, 4]


def test_the_shares_of_the_traffic_are_shown_beside_the_stage() -> None:
    planned = StageHarness(Ecs()).plan(("ECS_TRAFFIC_ROUTING", {"canary": "10%"}))

    assert planned[0].metadata == {"pipecd/stage-display-metadata": "Primary: 90%, Canary: 10%"}


def test_a_quick_sync_is_a_sync_and_its_rollback() -> None:
    assert [each.name for each in StageHarness(Ecs()).quick_sync()] == ["ECS_SYNC", "ECS_ROLLBACK"]


@pytest.mark.parametrize(
    ("given", "shares"),
    [
        ({}, (100, 0)),
        ({"canary": 10}, (90, 10)),
        ({"primary": 30}, (30, 70)),
        ({"primary": 30, "canary": 10}, (30, 70)),
        ({"canary": 100}, (0, 100)),
        ({"primary": 0, "canary": 0}, (100, 0)),
    ],
)
def test_the_options_of_routing_mean_what_upstreams_mean(
    given: dict[str, int], shares: tuple[int, int]
) -> None:
    config = EcsTrafficConfig(**{key: Percentage(value) for key, value in given.items()})

    assert read_shares(config) == shares


@pytest.mark.parametrize("scale", [30, 30.0, "30", "30%", 12.5, 0])
def test_a_scale_may_be_written_in_both_ways(scale: Any) -> None:
    assert StageHarness(Ecs()).faults(("ECS_CANARY_ROLLOUT", {"scale": scale})) == []


@pytest.mark.parametrize(
    ("stage", "options", "sentence"),
    [
        ("ECS_CANARY_ROLLOUT", {"scale": 101}, "not a share"),
        ("ECS_CANARY_ROLLOUT", {"scale": "much"}, "not a share"),
        ("ECS_TRAFFIC_ROUTING", {"primary": 101}, "not a share of the traffic"),
        ("ECS_SYNC", {"recreate": "maybe"}, "recreate"),
    ],
)
def test_wrong_options_of_stages_are_told_at_planning(
    stage: str, options: Any, sentence: str
) -> None:
    [fault] = StageHarness(Ecs()).faults((stage, options))

    assert sentence in fault


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"accessType": "DNS"}, "accessType"),
        ({"taskDefinitionFile": "/etc/taskdef.json"}, "not a path within"),
        ({"launchType": "MAGIC"}, "launchType"),
        ({"awsvpcConfiguration": {"subnets": ["s"] * 17}}, "16 at most"),
        (
            {"targetGroups": {name: {"targetGroupArn": "a"} for name in ("primary", "canary")}},
            "is the target group of the primary, too",
        ),
        ({"stableTimeout": "-1s"}, "stableTimeout"),
    ],
)
def test_wrong_options_of_applications_are_told(given: Any, sentence: str) -> None:
    text = json.dumps({"kind": "Application", "spec": {"plugins": {"ecs": {"input": given}}}})

    with pytest.raises(OptionFaultsError, match=sentence):
        read_section(EcsOptions, text.encode(), plugin="ecs")


def test_a_file_of_the_older_kind_is_read() -> None:
    text = json.dumps(
        {
            "apiVersion": "pipecd.dev/v1beta1",
            "kind": "ECSApp",
            "spec": {
                "name": "web",
                "input": {
                    "taskDefinitionFile": "t.yaml",
                    "serviceDefinitionFile": "s.yaml",
                    "autoRollback": True,
                    "targetGroups": {
                        "primary": {
                            "targetGroupArn": "arn",
                            "containerName": "web",
                            "containerPort": 80,
                            "loadBalancerName": "",
                        }
                    },
                },
                "quickSync": {"recreate": True},
            },
        }
    )

    read = read_section(EcsOptions, text.encode(), plugin="ecs")

    assert read.input.task_definition_file == "t.yaml"
    assert read.input.target_groups.primary is not None
    assert read.quick_sync.recreate


def test_a_task_of_the_older_kind_is_run() -> None:
    text = json.dumps({"kind": "ECSApp", "spec": {"name": "job", "input": {"clusterArn": "c"}}})

    assert read_section(EcsOptions, text.encode(), plugin="ecs").input.run_standalone_task


async def test_versions_are_the_distinct_images(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "registry:5000/web:v1", "web@sha256:ab", "registry:5000/web:v1")

    found = await open_harness(folder).versions()

    assert [(each.name, each.version) for each in found] == [("web", "v1"), ("web", "sha256:ab")]


@pytest.mark.parametrize(
    ("before", "after", "strategy", "said"),
    [
        (["web:1"], ["web:1"], SyncStrategy.QUICK_SYNC, "no image"),
        (["web:1"], ["web:2"], SyncStrategy.PIPELINE, "image of c0 from web:1 to web:2"),
        (["web:1"], ["web:1", "side:1"], SyncStrategy.PIPELINE, "side:1 of c1 added"),
        (["web:1", "side:1"], ["web:1"], SyncStrategy.PIPELINE, "side:1 of c1 removed"),
    ],
)
async def test_another_image_is_worth_the_pipeline(
    tmp_path: Path, before: list[str], after: list[str], strategy: SyncStrategy, said: str
) -> None:
    harness = open_harness(write(tmp_path / "b", *after), write(tmp_path / "a", *before))

    decided = await harness.strategy()

    assert decided.sync is strategy
    assert said in decided.summary


async def test_a_running_commit_that_cannot_be_read_means_the_pipeline(tmp_path: Path) -> None:
    running = write(tmp_path / "a", "web:1")
    (running / "taskdef.json").write_text("{")

    decided = await open_harness(write(tmp_path / "b", "web:1"), running).strategy()

    assert decided.sync is SyncStrategy.PIPELINE
    assert "cannot be read" in decided.summary


async def test_the_running_task_definition_is_the_one_its_own_commit_names(tmp_path: Path) -> None:
    running = write(tmp_path / "a", "web:1")
    (running / "taskdef.json").rename(running / "old.json")
    harness = open_harness(write(tmp_path / "b", "web:1"), running)
    harness.running_options = {"input": {"taskDefinitionFile": "old.json"}}
    harness.running_options["input"]["serviceDefinitionFile"] = "servicedef.yaml"

    assert (await harness.strategy()).sync is SyncStrategy.QUICK_SYNC


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("[]", "must be an object"),
        ("a: [1", "line 1"),
        ("{}", "has no family"),
        (None, "is not in the repository"),
    ],
)
async def test_a_bad_definition_fails_the_stage_with_a_sentence(
    tmp_path: Path, task: str | None, sentence: str
) -> None:
    folder = write(tmp_path / "a", "web:1")
    (folder / "taskdef.json").unlink()
    if task is not None:
        (folder / "taskdef.json").write_text(task)

    result = await open_harness(folder).run("ECS_SYNC")

    assert result.status is StageStatus.FAILURE
    assert sentence in result.reason


async def test_a_definition_that_is_a_link_out_of_the_repository_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "web:1")
    (tmp_path / "secret").write_text('{"family": "x"}')
    (folder / "taskdef.json").unlink()
    (folder / "taskdef.json").symlink_to(tmp_path / "secret")

    result = await open_harness(folder).run("ECS_SYNC")

    assert "leads out of the repository" in result.reason


async def test_a_task_without_a_service_needs_a_cluster(tmp_path: Path) -> None:
    harness = open_harness(write(tmp_path / "a", "web:1"))
    harness.options = {}

    assert "needs input.clusterArn" in (await harness.run("ECS_SYNC")).reason


def test_containers_of_any_shape_are_read() -> None:
    odd: Any = {"ContainerDefinitions": [1, {"Image": "a:1", "Name": "a"}, {"image": 3}]}

    assert list(list_containers(odd)) == [("a", "a:1")]
    assert list(list_containers({"containerDefinitions": "x"})) == []
