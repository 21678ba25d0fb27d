# SPDX-License-Identifier: Apache-2.0
"""Application files of the older kinds, deployed as they are through the plugin of their stages."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.model import deployment_pb2 as pb

PLUGIN = f'''#!{sys.executable}
"""A cluster on paper: it writes down what it was given."""
import json
import os

from pipecd_sdk import (
    DeploymentPlugin, StageConfig, StageContext, TargetConfig, serve, stage,
)


class Target(TargetConfig):
    record: str


class Rollout(StageConfig):
    prune: bool = False


class Cluster(DeploymentPlugin):
    target_config = Target

    @stage("K8S_SYNC", quick_sync=True)
    async def sync(self, ctx: StageContext) -> None:
        self._write(ctx, None)

    @stage("K8S_PRIMARY_ROLLOUT")
    async def roll_out(self, ctx: StageContext, config: Rollout) -> None:
        self._write(ctx, config.prune)

    @stage("K8S_ROLLBACK", rollback=True)
    async def roll_back(self, ctx: StageContext) -> None:
        self._write(ctx, None)

    def _write(self, ctx: StageContext, prune: object) -> None:
        document = json.loads(ctx.source.target.config)
        line = [ctx.stage.name, prune, document["kind"], document["spec"].get("plugins")]
        with open(ctx.targets[0].config.record, "a") as record:
            record.write(json.dumps(line) + "\\n")


serve(Cluster(), version="0.1.0")
'''


@pytest.fixture
def cluster(site: PipedSite) -> dict[str, Any]:
    """The plugin under a name of its own, with a deploy target."""
    file: Path = site.folder / "cluster.py"
    file.write_text(PLUGIN)
    file.chmod(0o755)
    target = {"name": "dev", "config": {"record": str(site.record)}}
    return {
        "name": "cluster",
        "url": f"file://{file}",
        "port": pick_port(),
        "deployTargets": [target],
    }


def older(stages: list[dict[str, Any]], **spec: Any) -> str:
    document = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "KubernetesApp",
        "spec": {
            "name": "shop",
            "input": {"namespace": "shop", "manifests": ["deploy.yaml"]},
            "quickSync": {"prune": True},
            **({"pipeline": {"stages": stages}} if stages else {}),
            "planner": {"alwaysUsePipeline": bool(stages)},
            **spec,
        },
    }
    return json.dumps(document, indent=1)


SECTION = {
    "cluster": {
        "input": {"namespace": "shop", "manifests": ["deploy.yaml"]},
        "quickSync": {"prune": True},
    }
}


async def deployed(site: PipedSite, client: SiteClient, text: str) -> pb.Deployment:
    """Register an application as older clients do, with its provider, and wait for its end."""
    site.commit({"shop/app.pipecd.yaml": text, "shop/deploy.yaml": "{}"})
    return await client.wait_deployed(await client.register_older("shop", "dev"))


async def test_a_pipeline_of_an_older_kind_runs_through_the_plugin_of_its_stages(
    site: PipedSite, client: SiteClient, cluster: dict[str, Any]
) -> None:
    site.commit({"README": "an example"})
    site.configure(cluster, "wait")
    site.start()
    stages = [
        {"name": "K8S_PRIMARY_ROLLOUT", "with": {"prune": True, "timeout": "5m"}},
        {"name": "WAIT", "with": {"duration": "10ms", "timeout": "1m"}},
    ]

    ended = await deployed(site, client, older(stages))

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert [stage.name for stage in ended.stages] == [
        "K8S_PRIMARY_ROLLOUT",
        "WAIT",
        "K8S_ROLLBACK",
    ]
    (line,) = site.records()
    assert json.loads(line) == ["K8S_PRIMARY_ROLLOUT", True, "Application", SECTION]


async def test_so_does_its_quick_sync(
    site: PipedSite, client: SiteClient, cluster: dict[str, Any]
) -> None:
    site.commit({"README": "an example"})
    site.configure(cluster)
    site.start()

    ended = await deployed(site, client, older([]))

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    (line,) = site.records()
    assert json.loads(line) == ["K8S_SYNC", None, "Application", SECTION]


async def test_a_rollback_that_its_input_turned_off_stays_off(
    site: PipedSite, client: SiteClient, cluster: dict[str, Any]
) -> None:
    site.commit({"README": "an example"})
    site.configure(cluster)
    site.start()
    stages = [{"name": "K8S_PRIMARY_ROLLOUT", "with": {}}]

    ended = await deployed(site, client, older(stages, input={"autoRollback": False}))

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert [stage.name for stage in ended.stages] == ["K8S_PRIMARY_ROLLOUT"]


async def test_what_the_plugin_finds_wrong_is_told_where_it_stands(
    site: PipedSite, client: SiteClient, cluster: dict[str, Any]
) -> None:
    site.commit({"README": "an example"})
    site.configure(cluster, "wait")
    site.start()
    stages = [
        {"name": "K8S_PRIMARY_ROLLOUT", "with": {"prune": "yes"}},
        {"name": "WAIT", "with": {"duration": "1d"}},
    ]

    ended = await deployed(site, client, older(stages))

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "spec.pipeline.stages[0].with.prune" in ended.status_reason
    assert "spec.pipeline.stages[1].with.duration" in ended.status_reason
    assert "units are h, m, s" in ended.status_reason
    assert list(ended.stages) == []


async def test_a_custom_sync_deploys_and_goes_back_with_the_script_before(
    site: PipedSite, client: SiteClient
) -> None:
    site.commit({"README": "an example"})
    site.configure("scriptrun")
    site.start()

    def custom(run: str) -> str:
        stage = {"name": "CUSTOM_SYNC", "with": {"timeout": "5m", "run": run, "envs": {"X": "y"}}}
        spec = {
            "name": "shop",
            "input": {"functionManifestFile": "function.yaml"},
            "planner": {"alwaysUsePipeline": True},
            "trigger": {"onCommit": {"disabled": True}},
            "pipeline": {"stages": [stage]},
        }
        head = {"apiVersion": "pipecd.dev/v1beta1", "kind": "LambdaApp"}
        return json.dumps({**head, "spec": spec})

    one = f"cat version >> {site.record}; echo $X >> {site.record}"
    first = site.commit({"shop/app.pipecd.yaml": custom(one), "shop/version": "one\n"})
    second = site.commit({"shop/app.pipecd.yaml": custom("exit 7"), "shop/version": "two\n"})
    application_id = await client.register("shop")

    deployed = await client.completed(await client.deploy("shop", first, application_id))
    failed = await client.completed(await client.deploy("shop", second, application_id))

    assert deployed.status == pb.DEPLOYMENT_SUCCESS, deployed.status_reason
    assert failed.status == pb.DEPLOYMENT_FAILURE
    assert failed.status_reason.endswith("rolled back"), failed.status_reason
    assert [stage.name for stage in failed.stages] == ["CUSTOM_SYNC", "CUSTOM_SYNC_ROLLBACK"]
    assert site.records() == ["one", "y", "one", "y"]
