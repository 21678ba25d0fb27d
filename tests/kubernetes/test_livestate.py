# SPDX-License-Identifier: Apache-2.0
"""What runs in a real cluster: the tree with its health, and how soon a change is seen."""

import asyncio
from pathlib import Path

from pipecd_plugin_kubernetes.plugin import Kubernetes

from pipecd_sdk import Health, Resource, SyncStatus
from pipecd_sdk.testing import deploy_target
from pipecd_test_support.kubernetes.faults import ALWAYS, FORBIDDEN, GONE_EVENT
from pipecd_test_support.kubernetes.faulty_api_server import FaultyApiServer
from pipecd_test_support.kubernetes.live_lab import LiveLab, find_pods, watching
from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes.tokens import ADMIN_TOKEN
from pipecd_test_support.kubernetes.workloads import make_deployment

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
}


def is_healthy(resources: list[Resource]) -> bool:
    return len(find_pods(resources, Health.HEALTHY)) == 2 and all(
        each.health is Health.HEALTHY for each in resources
    )


async def test_a_healthy_rollout_is_a_tree_of_all_levels(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web"), SERVICE)
        resources = await lab.wait_until(is_healthy)
        assert (await lab.find_drift()).status is SyncStatus.SYNCED

    by_id = {each.id: each for each in resources}
    (deployment,) = (each for each in resources if each.kind == "Deployment")
    (replicas,) = (each for each in resources if each.kind == "ReplicaSet")
    pods = [each for each in resources if each.kind == "Pod"]
    assert list(deployment.parents) == []
    assert list(replicas.parents) == [deployment.id]
    assert [list(each.parents) for each in pods] == [[replicas.id]] * 2
    assert deployment.metadata == {
        "Namespace": namespace.name,
        "API Version": "apps/v1",
        "Kind": "Deployment",
    }
    slices = [each for each in resources if each.kind == "EndpointSlice"]
    assert [by_id[each.parents[0]].kind for each in slices] == ["Service"]


async def test_a_crashing_rollout_says_which_pod_and_why(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web", image="web:2-crash"))
        resources = await lab.wait_until(
            lambda found: (
                any("CrashLoopBackOff" in each.description for each in found if each.kind == "Pod")
                # The controller notices a moment after the node.
                and any("of 2 replicas" in each.description for each in found)
            )
        )

    (deployment,) = (each for each in resources if each.kind == "Deployment")
    assert deployment.health is Health.UNHEALTHY
    assert "of 2 replicas" in deployment.description


async def test_a_pending_rollout_is_unhealthy_and_says_that_nothing_takes_it(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web", nodeSelector={"no": "node"}))
        resources = await lab.wait_until(
            lambda found: any(
                "nodes are available" in each.description for each in found if each.kind == "Pod"
            )
        )

    assert len(find_pods(resources, Health.UNHEALTHY)) == 2
    assert all(
        each.description.startswith("it is Pending") for each in resources if each.kind == "Pod"
    )


async def test_a_change_in_the_cluster_is_announced(namespace: Namespace, tmp_path: Path) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web"), SERVICE)
        await lab.wait_until(is_healthy)
        lab.announced.clear()

        await asyncio.to_thread(namespace.api.delete, "v1", "Service", "web", namespace.name)
        await lab.wait_until(lambda found: all(each.kind != "Service" for each in found))

        state = await lab.find_drift()
    assert lab.announced
    assert (state.status, "1 missing in the cluster" in state.short_reason) == (
        SyncStatus.OUT_OF_SYNC,
        True,
    )


async def test_three_hundred_objects_are_read_and_compared(
    namespace: Namespace, tmp_path: Path
) -> None:
    maps = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"settings-{number}"},
            "data": {"number": str(number)},
        }
        for number in range(300)
    ]
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(*maps)
        await lab.wait_until(lambda found: len(found) == 300)
        assert (await lab.find_drift()).status is SyncStatus.SYNCED

        changed = {**maps[7], "data": {"number": "7", "more": "x"}}
        await asyncio.to_thread(namespace.apply, changed, manager="somebody")
        assert (await lab.find_drift()).status is SyncStatus.SYNCED

        await lab.patch("v1", "ConfigMap", "settings-7", {"data": {"number": "8"}})
        state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)
    assert state.short_reason == "1 object differs from git: 1 changed"


async def test_after_a_cut_and_a_410_the_tree_is_right_again(
    namespace: Namespace, tmp_path: Path, faulty_api_server: FaultyApiServer
) -> None:
    kubeconfig = faulty_api_server.write_kubeconfig(tmp_path / "kubeconfig")
    lab = LiveLab(tmp_path, namespace, kubeconfig=kubeconfig)
    async with watching(lab):
        await lab.deploy(make_deployment("web"), SERVICE)
        await lab.wait_until(is_healthy)

        gone = faulty_api_server.fail(GONE_EVENT, path="/services.*watch=true", times=1)
        await asyncio.to_thread(faulty_api_server.cut_streams)
        await asyncio.to_thread(namespace.api.delete, "v1", "Service", "web", namespace.name)
        await lab.wait_until(lambda found: all(each.kind != "Service" for each in found))
        assert gone.done == 1

        await lab.patch("apps/v1", "Deployment", "web", {"spec": {"replicas": 1}})
        await lab.wait_until(lambda found: len(find_pods(found, Health.HEALTHY)) == 1)


async def test_a_kind_that_may_not_be_read_is_unknown_and_said(
    namespace: Namespace, tmp_path: Path, faulty_api_server: FaultyApiServer
) -> None:
    kubeconfig = faulty_api_server.write_kubeconfig(tmp_path / "kubeconfig")
    lab = LiveLab(tmp_path, namespace, kubeconfig=kubeconfig)
    async with watching(lab):
        await lab.deploy(SERVICE, make_deployment("web"))
        faulty_api_server.fail(FORBIDDEN, path="/services", times=ALWAYS)
        state = await lab.find_drift()
        tree = await lab.find_tree()

    assert state.status is SyncStatus.UNKNOWN
    assert "Service (v1) cannot be compared" in state.reason
    assert tree["Service", "services cannot be read"].health is Health.UNKNOWN
    assert ("Deployment", "web") in tree


async def test_several_clusters_are_read_and_compared_each_for_itself(
    namespace: Namespace, second_namespace: Namespace, tmp_path: Path
) -> None:
    """One cluster that does not answer makes only itself unknown."""
    away = namespace.cluster.write_kubeconfig(
        tmp_path / "away", token=ADMIN_TOKEN, server="https://127.0.0.1:1"
    )
    second_namespace.cluster.api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace.name}}
    )
    lab = LiveLab(tmp_path, namespace)
    second = {"kubeConfigPath": str(second_namespace.cluster.kubeconfig)}
    lab.harness.targets = [
        *lab.harness.targets,
        deploy_target(Kubernetes, "second", second),
    ]
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        "data": {"colour": "green"},
    }
    async with watching(lab):
        await lab.deploy(settings)
        observed = await lab.harness.live_state()
        assert observed.sync.status is SyncStatus.SYNCED
        assert sorted((target.name, each.name) for target, each in observed.resources) == [
            ("main", "settings"),
            ("second", "settings"),
        ]

        await asyncio.to_thread(
            second_namespace.cluster.api.delete, "v1", "ConfigMap", "settings", namespace.name
        )
        state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)
        assert state.short_reason.startswith("second: 1 object differs")

        lab.harness.targets = [
            lab.harness.targets[0],
            deploy_target(Kubernetes, "away", {"kubeConfigPath": str(away)}),
        ]
        observed = await lab.harness.live_state()
    assert {(target.name, each.health) for target, each in observed.resources} == {
        ("main", Health.HEALTHY),
        ("away", Health.UNKNOWN),
    }
    assert observed.sync.status is SyncStatus.UNKNOWN
    assert observed.sync.short_reason.startswith("away: the cluster cannot be read")
