# SPDX-License-Identifier: Apache-2.0
"""Files of the kind ECSApp through a real control plane, piped and plugin; AWS is moto.

They are as upstream's users have them: options under `input`, shares with a percent sign.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pipecd_test_support.aws.ecs_lab import EcsLab, make_task
from pipecd_test_support.aws.lab import run_aws_lab
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.model import deployment_pb2 as pb

pytestmark = [pytest.mark.xdist_group("aws"), pytest.mark.timeout(300)]

STAGES: list[dict[str, Any]] = [
    {"name": "ECS_CANARY_ROLLOUT", "with": {"scale": "50%"}},
    {"name": "ECS_TRAFFIC_ROUTING", "with": {"canary": "20%"}},
    {"name": "ECS_PRIMARY_ROLLOUT"},
    {"name": "ECS_TRAFFIC_ROUTING", "with": {"primary": 100}},
    {"name": "ECS_CANARY_CLEAN"},
]


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EcsLab]:
    folder = tmp_path_factory.mktemp("aws")
    with run_aws_lab(folder) as aws:
        yield EcsLab(aws, folder)


def write_commit(
    site: PipedSite, lab: EcsLab, image: str, stages: list[dict[str, Any]] | None = None
) -> str:
    spec = {
        "name": "web",
        "quickSync": {"recreate": False},
        **lab.make_options(stableTimeout="3s"),
        **({"pipeline": {"stages": stages}} if stages else {}),
    }
    document = {"apiVersion": "pipecd.dev/v1beta1", "kind": "ECSApp", "spec": spec}
    return site.commit(
        {
            "web/app.pipecd.yaml": json.dumps(document),
            "web/taskdef.json": json.dumps(make_task(image)),
            "web/servicedef.json": json.dumps(lab.make_service()),
        }
    )


def list_stages(deployment: pb.Deployment) -> list[tuple[str, str]]:
    return [(each.name, pb.StageStatus.Name(each.status)) for each in deployment.stages]


async def test_the_older_kind_is_synced_goes_through_its_pipeline_and_comes_back(
    site: PipedSite, client: SiteClient, lab: EcsLab
) -> None:
    lab.balance()
    site.configure({"name": "ecs", "deployTargets": [{"name": "aws", "config": lab.aws.target}]})
    first = write_commit(site, lab, "web:v1")
    site.start()
    application_id = await client.register_older("web", "aws")

    quick = await client.wait_deployed(application_id, first)

    assert quick.status == pb.DEPLOYMENT_SUCCESS, quick.status_reason
    assert [each.name for each in quick.stages] == ["ECS_SYNC", "ECS_ROLLBACK"]
    assert [(each.name, each.version) for each in quick.versions] == [("web", "v1")]

    second = write_commit(site, lab, "web:v2", STAGES)
    whole = await client.wait_deployed(application_id, second)

    assert whole.status == pb.DEPLOYMENT_SUCCESS, whole.status_reason
    assert [each.name for each in whole.stages] == [
        *(each["name"] for each in STAGES),
        "ECS_ROLLBACK",
    ]
    before = (lab.read_sets(), lab.read_weights())
    assert before[0] == [{"status": "PRIMARY", "image": "web:v2", "scale": 100.0, "commit": second}]

    third = write_commit(site, lab, "web:broken", STAGES)
    broken = await client.wait_deployed(application_id, third)

    assert broken.status == pb.DEPLOYMENT_FAILURE
    assert list_stages(broken)[0] == ("ECS_CANARY_ROLLOUT", "STAGE_FAILURE")
    assert list_stages(broken)[-1] == ("ECS_ROLLBACK", "STAGE_SUCCESS")
    assert "0 of 2 tasks running" in broken.stages[0].status_reason
    assert (lab.read_sets(), lab.read_weights()) == before
