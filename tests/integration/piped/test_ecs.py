# SPDX-License-Identifier: Apache-2.0
"""A canary on ECS through a real control plane, piped and plugin; AWS is moto, a process too."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipecd_test_support.aws.ecs_lab import EcsLab, make_task
from pipecd_test_support.aws.lab import run_aws_lab
from pipecd_test_support.piped_site import PipedSite, SiteClient, application
from pipecd_wire.model import deployment_pb2 as pb

pytestmark = [pytest.mark.xdist_group("aws"), pytest.mark.timeout(300)]

STAGES: list[dict[str, Any]] = [
    {"name": "ECS_CANARY_ROLLOUT", "with": {"scale": "50%"}},
    {"name": "ECS_TRAFFIC_ROUTING", "with": {"canary": 20}},
    {"name": "ECS_PRIMARY_ROLLOUT"},
    {"name": "ECS_TRAFFIC_ROUTING", "with": {"primary": 100}},
    {"name": "ECS_CANARY_CLEAN"},
]


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EcsLab]:
    folder = tmp_path_factory.mktemp("aws")
    with run_aws_lab(folder) as aws:
        yield EcsLab(aws, folder)


def write_commit(site: PipedSite, lab: EcsLab, image: str, folder: Path) -> str:
    options = lab.make_options(stableTimeout="3s")
    return site.commit(
        {
            f"{folder}/app.pipecd.yaml": application(str(folder), STAGES, plugins={"ecs": options}),
            f"{folder}/taskdef.json": json.dumps(make_task(image)),
            f"{folder}/servicedef.json": json.dumps(lab.make_service()),
        }
    )


def list_stages(deployment: pb.Deployment) -> list[tuple[str, str]]:
    return [(each.name, pb.StageStatus.Name(each.status)) for each in deployment.stages]


async def test_a_broken_canary_is_rolled_back_to_what_the_first_one_brought(
    site: PipedSite, client: SiteClient, lab: EcsLab
) -> None:
    lab.balance()
    targets: dict[str, Any] = {"targets": {"ecs": ["aws"]}}
    site.configure({"name": "ecs", "deployTargets": [{"name": "aws", "config": lab.aws.target}]})
    first = write_commit(site, lab, "web:v1", Path("web"))
    site.start()
    application_id = await client.register("web", ecs=["aws"])

    ended = await client.completed(await client.deploy("web", first, application_id, **targets))

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended
    assert [(each.name, each.version) for each in ended.versions] == [("web", "v1")]
    before = (lab.read_sets(), lab.read_weights())
    assert before[0] == [{"status": "PRIMARY", "image": "web:v1", "scale": 100.0, "commit": first}]

    second = write_commit(site, lab, "web:broken", Path("web"))
    ended = await client.completed(await client.deploy("web", second, application_id, **targets))

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert list_stages(ended)[0] == ("ECS_CANARY_ROLLOUT", "STAGE_FAILURE")
    assert list_stages(ended)[-1] == ("ECS_ROLLBACK", "STAGE_SUCCESS")
    assert "0 of 2 tasks running" in ended.stages[0].status_reason
    assert (lab.read_sets(), lab.read_weights()) == before
