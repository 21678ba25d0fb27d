# SPDX-License-Identifier: Apache-2.0
"""The services of the example deploy as they are written, with the names of an account.

Its task does not: moto answers RunTask with 500 for a network of such a task.
"""

from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk.kit import yaml
from pipecd_test_support.aws.ecs_lab import EcsLab, assert_success

pytestmark = pytest.mark.xdist_group("aws")

EXAMPLE = Path(__file__).parents[3] / "examples" / "07-ecs" / "repository"
CLUSTER = "arn:aws:ecs:eu-central-1:123456789012:cluster/example"


def read(lab: EcsLab, name: str) -> Any:
    """Returns a file of the example, with the names of the account in the place of its own."""
    ec2 = lab.aws.ec2
    own = {CLUSTER: lab.cluster}
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    for number, subnet in enumerate(("subnet-11111111", "subnet-22222222")):
        made = ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.1.{number}.0/24")
        own[subnet] = made["Subnet"]["SubnetId"]
    own["sg-11111111"] = ec2.create_security_group(
        GroupName="tasks", Description="of the example", VpcId=vpc
    )["GroupId"]
    text = (EXAMPLE / name).read_text()
    for there, here in own.items():
        text = text.replace(there, here)
    return yaml.load(text)


def write(lab: EcsLab, name: str, commit: str) -> tuple[Path, dict[str, Any]]:
    """Writes an application of the example; returns its folder and its specification."""
    spec = read(lab, f"{name}/app.pipecd.yaml")["spec"]
    folder = lab.folder / commit
    folder.mkdir()
    task = read(lab, f"{name}/taskdef.yaml")
    for container in task["containerDefinitions"]:
        container |= {"memory": 128, "image": f"{container['name']}:{commit}"}  # moto wants memory
    (folder / "taskdef.yaml").write_text(yaml.dump(task))
    (folder / "servicedef.yaml").write_text(yaml.dump(read(lab, f"{name}/servicedef.yaml")))
    return folder, spec


async def test_the_rolling_service_is_synced(lab: EcsLab) -> None:
    folder, spec = write(lab, "rolling", "v1")

    assert_success(await lab.open("first", folder, options=spec["plugins"]["ecs"]).run("ECS_SYNC"))

    assert lab.read_service("rolling")["runningCount"] == 2


async def test_the_canary_runs_its_pipeline(lab: EcsLab) -> None:
    arns = lab.balance()
    v1, spec = write(lab, "canary", "v1")
    options = spec["plugins"]["ecs"]
    for variant, group in options["input"]["targetGroups"].items():
        group["targetGroupArn"] = arns[variant]
    assert_success(await lab.open("first", v1, options=options).run("ECS_SYNC"))
    v2, _ = write(lab, "canary", "v2")
    harness = lab.open("second", v2, v1, options=options)

    for index, stage in enumerate(spec["pipeline"]["stages"]):
        if stage["name"].startswith("ECS_"):
            assert_success(await harness.run(stage["name"], stage.get("with", {}), index=index))

    assert [(s["status"], s["image"]) for s in lab.read_sets("canary")] == [("PRIMARY", "web:v2")]
