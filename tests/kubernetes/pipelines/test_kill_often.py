# SPDX-License-Identifier: Apache-2.0
"""The plugin, or piped with it, dies at each change of a rollback, and of stages of two clusters.

What was begun is carried on by the next process: nothing is doubled, nothing else is gone.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipecd_test_support.kubernetes.faults import LOST_ANSWER, RESET
from pipecd_test_support.kubernetes.killing_api_server import KillingApiServer, KillPlan
from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster
from pipecd_test_support.kubernetes_site import (
    KubernetesSite,
    Object,
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

WRITES = 8
"""What a rollback asks one cluster to do."""
MULTI_WRITES = 26
"""What the pipeline of two clusters asks both of them to do."""
ROLLOUT: dict[str, Any] = {"name": "K8S_CANARY_ROLLOUT", "with": {"createService": True}}
CLEAN: dict[str, Any] = {"name": "K8S_CANARY_CLEAN"}
BYSTANDER = make_config_map("bystander", of="somebody else")
FIRST = make_manifests(
    make_deployment(config="web"),
    make_service(),
    make_config_map("web", greeting="hello"),
    make_config_map("old", of="the first commit"),
)
SECOND = make_manifests(
    make_deployment(config="web", image="web:v2"),
    make_service(),
    make_config_map("web", greeting="hello again"),
    make_config_map("new", of="the second commit"),
)


@dataclass(kw_only=True)
class Running:
    """An application that runs on all clusters, and what there is of it."""

    app: KubernetesSite
    plan: KillPlan
    namespaces: list[Namespace]
    before: list[dict[str, Object]]

    def kill(self, first: int, last: int) -> None:
        """Plan a death at every fourth change, in one of the ways to die."""
        fault = LOST_ANSWER if first % 2 else RESET
        at = range(first, last + 1, 4)
        self.plan.kill(self.app.site, at=at, fault=fault, is_piped_killed=first > 2)

    @property
    def options(self) -> dict[str, Any]:
        return {"input": {"namespace": self.namespaces[0].name}, "service": {"name": "web"}}

    async def start(self, stages: Sequence[Mapping[str, Any]], manifests: str) -> str:
        """Begin a deployment; answers its id."""
        prefix = "K8S_MULTI" if self.plan.is_multicluster else "K8S"
        named = [{**each, "name": each["name"].replace("K8S", prefix)} for each in stages]
        text = make_application(self.app.path, named, plugin=self.plan.plugin, options=self.options)
        return await self.app.start(self.app.commit(text, manifests__yaml=manifests))

    async def deploy_all(self) -> None:
        """Run the whole pipeline, whoever dies, and look at what it has left."""
        uids = [await asyncio.to_thread(read_uids, each) for each in self.namespaces]
        stages = [ROLLOUT, {"name": "K8S_PRIMARY_ROLLOUT", "with": {"prune": True}}, CLEAN]
        ended = await self.app.wait_completed(await self.start(stages, SECOND))
        told = await self.app.explain(ended)
        assert ended.status == pb.DEPLOYMENT_SUCCESS, told
        for namespace, before in zip(self.namespaces, uids, strict=True):
            after = await asyncio.to_thread(read_uids, namespace)
            assert after.keys() - before.keys() == {"ConfigMap/new"}, told
            assert before.keys() - after.keys() == {"ConfigMap/old"}, told
            kept = after.keys() & before.keys()
            assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
            sets = await asyncio.to_thread(namespace.find_all, "apps/v1", "ReplicaSet")
            assert len(sets) == 2, "pods were made more often than there were versions"


@dataclass(kw_only=True)
class Broken(Running):
    """An application whose deployment is about to fail."""

    deployment_id: str
    gate: Path
    """The deployment fails when this file is there."""

    async def roll_back(self) -> None:
        """Let the deployment fail, and look at what the rollback has left."""
        self.gate.touch()
        ended = await self.app.wait_completed(self.deployment_id)
        told = await self.app.explain(ended)
        assert ended.status == pb.DEPLOYMENT_FAILURE, told
        assert ended.status_reason.endswith("rolled back"), ended.status_reason
        assert [each.status for each in ended.stages if each.rollback] == [pb.STAGE_SUCCESS], told
        assert await read_all(self.namespaces) == self.before, told


async def read_all(namespaces: list[Namespace]) -> list[dict[str, Object]]:
    return [await asyncio.to_thread(read_objects, each) for each in namespaces]


@pytest.fixture
def plan(request: pytest.FixtureRequest) -> KillPlan:
    return KillPlan(request.param)


@pytest.fixture
def namespaces(
    plan: KillPlan, namespace: Namespace, request: pytest.FixtureRequest
) -> Iterator[list[Namespace]]:
    """One for each cluster, all of the same name."""
    if not plan.is_multicluster:
        yield [namespace]
        return
    second: RealCluster = request.getfixturevalue("second_cluster")
    twin = Namespace(cluster=second, name=namespace.name)
    second.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": twin.name}})
    yield [namespace, twin]
    second.api.delete("v1", "Namespace", twin.name)


@pytest.fixture
async def running(
    own_piped: PipedSite, plan: KillPlan, namespaces: list[Namespace], tmp_path: Path
) -> AsyncIterator[Running]:
    """The first commit, beside what somebody else has."""
    with ExitStack() as stack:
        servers = [stack.enter_context(KillingApiServer(each.cluster, plan)) for each in namespaces]
        kubeconfigs = {
            f"cluster-{number}": server.write_kubeconfig(tmp_path / f"kubeconfig-{number}")
            for number, server in enumerate(servers)
        }
        configure(own_piped, kubeconfigs, "scriptrun")
        own_piped.start()
        stack.callback(own_piped.close)
        async with own_piped.client() as person:
            app = KubernetesSite(
                own_piped, person, "killed", plugin=plan.plugin, targets=list(kubeconfigs)
            )
            made = Running(app=app, plan=plan, namespaces=namespaces, before=[])
            for each in namespaces:
                await asyncio.to_thread(each.apply, BYSTANDER)
            quick = make_application(app.path, plugin=plan.plugin, options=made.options)
            await app.succeed(app.commit(quick, manifests__yaml=FIRST))
            made.before = await read_all(namespaces)
            yield made


@pytest.fixture
async def broken(running: Running, tmp_path: Path) -> Broken:
    """The second commit beside it and over it, before a script that is about to fail."""
    gate = tmp_path / "gate"
    script = f"until [ -e '{gate}' ]; do sleep 0.05; done; exit 3"
    stages = [
        ROLLOUT,
        {"name": "K8S_PRIMARY_ROLLOUT"},
        {"name": "SCRIPT_RUN", "with": {"run": script}},
    ]
    deployment_id = await running.start(stages, SECOND)
    await running.app.client.stage_running(deployment_id, len(stages) - 1)
    return Broken(
        app=running.app,
        plan=running.plan,
        namespaces=running.namespaces,
        before=running.before,
        deployment_id=deployment_id,
        gate=gate,
    )


one_cluster = pytest.mark.parametrize("plan", ["kubernetes"], indirect=True)
every_fourth = pytest.mark.parametrize("first", [1, 2, 3, 4])
"""Four tests that die at every fourth change have died at each of them."""
two_clusters = pytest.mark.parametrize("plan", ["kubernetes_multicluster"], indirect=True)


@one_cluster
async def test_a_rollback_writes_as_often_as_these_tests_believe(broken: Broken) -> None:
    broken.plan.count()
    await broken.roll_back()
    assert len(broken.plan.writes) == WRITES, broken.plan.writes


@one_cluster
@every_fourth
async def test_deaths_in_a_rollback(first: int, broken: Broken) -> None:
    broken.kill(first, WRITES)
    await broken.roll_back()
    assert broken.plan.deaths == WRITES // 4


@two_clusters
@every_fourth
async def test_deaths_in_a_rollback_of_two_clusters(first: int, broken: Broken) -> None:
    broken.kill(first, 2 * WRITES)
    await broken.roll_back()
    assert broken.plan.deaths == 2 * WRITES // 4


@two_clusters
@every_fourth
async def test_deaths_in_the_stages_of_two_clusters(first: int, running: Running) -> None:
    """The whole pipeline: canary, primary and cleaning, on both clusters."""
    running.kill(first, MULTI_WRITES)
    await running.deploy_all()
    assert running.plan.deaths >= MULTI_WRITES // 4


@two_clusters
async def test_the_stages_of_two_clusters_write_as_often_as_these_tests_believe(
    running: Running,
) -> None:
    running.plan.count()
    await running.deploy_all()
    assert len(running.plan.writes) == MULTI_WRITES, running.plan.writes
