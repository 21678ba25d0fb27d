# SPDX-License-Identifier: Apache-2.0
"""The plugin, or piped with it, is killed at each thing that it asks the cluster to do.

The stage is carried on by the next process: everything is there once, nothing else is gone.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipecd_test_support.kubernetes.faults import LOST_ANSWER, RESET
from pipecd_test_support.kubernetes.killing_api_server import KillingApiServer, KillPlan
from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster
from pipecd_test_support.kubernetes_site import (
    KubernetesSite,
    configure,
    make_application,
    make_config_map,
    make_deployment,
    make_manifests,
    make_service,
    read_objects,
    read_uids,
)
from pipecd_test_support.piped_site import PipedSite
from pipecd_wire.model import deployment_pb2 as pb

PRIMARY = {"pipecd.dev/variant": "primary"}
STAGES: list[dict[str, Any]] = [
    {"name": "K8S_CANARY_ROLLOUT", "with": {"createService": True}},
    {"name": "K8S_TRAFFIC_ROUTING", "with": {"all": "canary"}},
    {"name": "K8S_BASELINE_ROLLOUT"},
    {"name": "K8S_PRIMARY_ROLLOUT", "with": {"prune": True}},
    {"name": "K8S_TRAFFIC_ROUTING", "with": {"all": "primary"}},
    {"name": "K8S_BASELINE_CLEAN"},
    {"name": "K8S_CANARY_CLEAN"},
]
WRITES = 20
"""What the pipeline asks the cluster to do, once all of it."""
STEP = 5
BYSTANDER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "bystander"},
    "data": {"of": "somebody else"},
}
FIRST = make_manifests(
    make_deployment(labels=PRIMARY, config="web"),
    make_service(labels=PRIMARY),
    make_config_map("web", greeting="hello"),
    make_config_map("old", of="the first commit"),
)
SECOND = make_manifests(
    make_deployment(labels=PRIMARY, config="web", image="web:v2"),
    make_service(labels=PRIMARY),
    make_config_map("web", greeting="hello again"),
    make_config_map("new", of="the second commit"),
)


@pytest.fixture
def plan() -> KillPlan:
    return KillPlan()


@pytest.fixture
def site(
    own_piped: PipedSite, cluster: RealCluster, plan: KillPlan, tmp_path: Path
) -> Iterator[PipedSite]:
    with KillingApiServer(cluster, plan) as killer:
        kubeconfig = killer.write_kubeconfig(tmp_path / "kubeconfig")
        configure(own_piped, {"main": kubeconfig}, "scriptrun")
        own_piped.start()
        yield own_piped
        own_piped.close()


def make_options(namespace: Namespace) -> dict[str, Any]:
    return {"input": {"namespace": namespace.name}, "service": {"name": "web"}}


async def begin(app: KubernetesSite, namespace: Namespace) -> dict[str, Any]:
    """Deploy the first commit beside what somebody else has; answers what is there then."""
    await asyncio.to_thread(namespace.apply, BYSTANDER)
    quick = make_application(app.path, options=make_options(namespace))
    await app.succeed(app.commit(quick, manifests__yaml=FIRST))
    return await asyncio.to_thread(read_objects, namespace)


async def deploy_all(app: KubernetesSite, namespace: Namespace) -> None:
    """Run the whole pipeline, whoever dies, and look at what it has left."""
    before = await asyncio.to_thread(read_uids, namespace)
    text = make_application(app.path, STAGES, options=make_options(namespace))
    deployment_id = await app.start(app.commit(text, manifests__yaml=SECOND))
    ended = await app.wait_completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, await app.explain(ended)
    after = await asyncio.to_thread(read_uids, namespace)
    kept = {"Deployment/web", "Service/web", "ConfigMap/web", "ConfigMap/bystander"}
    assert {name: after.get(name) for name in kept} == {name: before[name] for name in kept}
    assert after.keys() - before.keys() == {"ConfigMap/new"}
    assert before.keys() - after.keys() == {"ConfigMap/old"}
    objects = await asyncio.to_thread(read_objects, namespace)
    assert objects["Service/web"]["spec"]["selector"] == {"app": "web", **PRIMARY}
    sets = await asyncio.to_thread(namespace.find_all, "apps/v1", "ReplicaSet")
    assert len(sets) == 2, "pods were made more often than there were versions"


async def test_the_pipeline_writes_as_often_as_these_tests_believe(
    site: PipedSite, plan: KillPlan, namespace: Namespace
) -> None:
    async with site.client() as person:
        app = KubernetesSite(site, person, "whole")
        await begin(app, namespace)
        plan.count()
        await deploy_all(app, namespace)
    assert len(plan.writes) == WRITES, plan.writes


@pytest.mark.parametrize("first", range(1, STEP + 1))
async def test_deaths_in_a_pipeline(
    first: int, site: PipedSite, plan: KillPlan, namespace: Namespace
) -> None:
    """Tests that die at every fifth change, each from another one on, have died at each."""
    at = range(first, WRITES + 1, STEP)
    async with site.client() as person:
        app = KubernetesSite(site, person, "whole")
        await begin(app, namespace)
        fault = RESET if first % 2 else LOST_ANSWER
        plan.kill(site, at=at, fault=fault, is_piped_killed=first % 3 == 0)
        await deploy_all(app, namespace)
    assert plan.deaths == len(at)
