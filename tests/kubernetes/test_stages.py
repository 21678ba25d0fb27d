# SPDX-License-Identifier: Apache-2.0
"""Every stage of the Kubernetes plugin on a real cluster, and the way back from each."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk import StageStatus
from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes_lab import KubernetesLab
from pipecd_test_support.kubernetes_site import (
    Object,
    make_config_map,
    make_deployment,
    make_service,
)

PRIMARY = {"pipecd.dev/variant": "primary"}


@pytest.fixture
async def lab(namespace: Namespace, tmp_path: Path) -> AsyncIterator[KubernetesLab]:
    made = KubernetesLab(folder=tmp_path, namespaces={"main": namespace})
    yield made
    await made.close()


def virtual_service(weight: int = 100, **extra: Any) -> Object:
    route = [{"destination": {"host": "web", "subset": "primary"}, "weight": weight}]
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "web"},
        "spec": {"hosts": ["web.example.com"], "http": [{"route": route}], **extra},
    }


def http_route() -> Object:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "web"},
        "spec": {"rules": [{"backendRefs": [{"name": "web", "port": 80}]}]},
    }


async def read(lab: KubernetesLab) -> dict[str, Object]:
    return await asyncio.to_thread(lab.read)


def image_of(objects: dict[str, Object], name: str) -> str:
    found = objects[f"Deployment/{name}"]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert isinstance(found, str)
    return found


async def test_a_quick_sync_applies_everything_as_this_applications(lab: KubernetesLab) -> None:
    lab.begin(make_deployment(config="web"), make_service(), make_config_map("web", a="1"))

    await lab.succeed("K8S_SYNC")

    found = await read(lab)
    labels = found["Deployment/web"]["metadata"]["labels"]
    assert labels["pipecd.dev/managed-by"] == "piped"
    assert labels["pipecd.dev/application"] == lab.harness.deployment.application_id
    assert labels["pipecd.dev/commit-hash"] == lab.harness.deployment.commit.hash
    assert labels["pipecd.dev/variant"] == "primary"
    template = found["Deployment/web"]["spec"]["template"]["metadata"]
    assert "pipecd.dev/config-hash" in template["annotations"]
    assert "pipecd.dev/variant" not in template["labels"]


async def test_a_sync_fails_and_says_why_when_pods_crash(lab: KubernetesLab) -> None:
    """Upstream succeeds when it has applied, whatever becomes of the pods."""
    lab.begin(make_deployment(image="web:v1-crash"), options={"readiness": {"timeout": "4s"}})

    result = await lab.run("K8S_SYNC")

    assert result.status is StageStatus.FAILURE
    assert "web" in result.reason
    assert "CrashLoopBackOff" in lab.harness.text + result.reason


async def test_the_wait_for_readiness_can_be_turned_off(lab: KubernetesLab) -> None:
    lab.begin(make_deployment(image="web:v1-crash"), options={"readiness": {"wait": False}})

    await lab.succeed("K8S_SYNC")


async def test_prune_removes_what_git_no_longer_has_and_nothing_else(lab: KubernetesLab) -> None:
    lab.begin(make_deployment(), make_config_map("old"), make_config_map("kept"))
    await lab.succeed("K8S_SYNC")
    theirs = {**make_config_map("theirs"), "metadata": {"name": "theirs"}}
    await asyncio.to_thread(lab.namespace.apply, theirs)
    lab.begin(make_deployment(), make_config_map("kept"))

    await lab.succeed("K8S_SYNC", {"prune": True})

    found = await read(lab)
    assert "ConfigMap/old" not in found
    assert {"ConfigMap/kept", "ConfigMap/theirs", "Deployment/web"} <= found.keys()


async def test_many_deletions_need_a_permission_that_is_named(lab: KubernetesLab) -> None:
    many = [make_config_map(f"map-{number}") for number in range(8)]
    lab.begin(make_deployment(), *many)
    await lab.succeed("K8S_SYNC")
    before = await read(lab)
    lab.begin(make_deployment())

    refused = await lab.run("K8S_SYNC", {"prune": True})
    after = await read(lab)
    lab.begin(make_deployment(), options={"deletion": {"allowMany": True}})
    await lab.succeed("K8S_SYNC", {"prune": True})

    assert refused.status is StageStatus.FAILURE
    assert "deletion.allowMany" in refused.reason
    assert "map-7" in refused.reason
    assert after.keys() == before.keys()
    assert not any(key.startswith("ConfigMap/map-") for key in await read(lab))


async def test_a_canary_and_a_baseline_stand_beside_the_primary_and_go(
    lab: KubernetesLab,
) -> None:
    first = make_deployment(image="web:v1", replicas=4, config="web")
    lab.begin(first, make_service(), make_config_map("web", a="1"))
    await lab.succeed("K8S_SYNC")
    before = await read(lab)
    second = make_deployment(image="web:v2", replicas=4, config="web")
    lab.begin(second, make_service(), make_config_map("web", a="2"))

    await lab.succeed("K8S_CANARY_ROLLOUT", {"replicas": "30%", "createService": True})
    await lab.succeed("K8S_BASELINE_ROLLOUT", {"replicas": 1})
    during = await read(lab)
    await lab.succeed("K8S_CANARY_CLEAN", {})
    await lab.succeed("K8S_BASELINE_CLEAN", {})

    canary, baseline = during["Deployment/web-canary"], during["Deployment/web-baseline"]
    assert image_of(during, "web-canary") == "web:v2"
    assert image_of(during, "web-baseline") == "web:v1"
    assert (canary["spec"]["replicas"], baseline["spec"]["replicas"]) == (2, 1)
    assert during["ConfigMap/web-canary"]["data"] == {"a": "2"}
    assert during["ConfigMap/web-baseline"]["data"] == {"a": "1"}
    selector = during["Service/web-canary"]["spec"]["selector"]
    assert selector == {"app": "web", "pipecd.dev/variant": "canary"}
    assert await read(lab) == before


async def test_a_baseline_of_a_first_deployment_is_a_sentence(lab: KubernetesLab) -> None:
    lab.begin(make_deployment())

    result = await lab.run("K8S_BASELINE_ROLLOUT", {})

    assert result.status is StageStatus.FAILURE
    assert "no earlier commit" in result.reason


async def test_weights_of_a_virtual_service_stay_while_the_primary_is_rolled_out(
    lab: KubernetesLab,
) -> None:
    """Upstream's second plugin resets them; and where there is none, the first applies nothing."""
    istio = {"trafficRouting": {"method": "istio"}}
    lab.begin(make_deployment(), make_service(), virtual_service(), options=istio)
    await lab.succeed("K8S_SYNC")
    before = await read(lab)
    lab.begin(make_deployment(image="web:v2"), make_service(), virtual_service(retries={}))

    await lab.succeed("K8S_CANARY_ROLLOUT", {})
    await lab.succeed("K8S_TRAFFIC_ROUTING", {"canary": 30})
    await lab.succeed("K8S_PRIMARY_ROLLOUT", {"prune": True})
    during = await read(lab)
    await lab.succeed("K8S_ROLLBACK")

    route = during["VirtualService/web"]["spec"]["http"][0]["route"]
    assert [(each["destination"]["subset"], each["weight"]) for each in route] == [
        ("primary", 70),
        ("canary", 30),
    ]
    assert image_of(during, "web") == "web:v2"
    assert await read(lab) == before


async def test_a_rollback_leaves_routes_that_the_deployment_has_not_touched(
    lab: KubernetesLab,
) -> None:
    """A pipeline that ended at other weights than git's is no reason to change them now."""
    istio = {"trafficRouting": {"method": "istio"}}
    lab.begin(make_deployment(), make_service(), virtual_service(), options=istio)
    await lab.succeed("K8S_SYNC")
    lab.begin(make_deployment(image="web:v2"), make_service(), virtual_service())
    await lab.succeed("K8S_PRIMARY_ROLLOUT", {})
    await lab.succeed("K8S_TRAFFIC_ROUTING", {"canary": 5})
    before = await read(lab)
    lab.begin(make_deployment(image="web:v3"), make_service(), virtual_service())

    await lab.succeed("K8S_PRIMARY_ROLLOUT", {})
    await lab.succeed("K8S_ROLLBACK")
    untouched = await read(lab)
    await lab.succeed("K8S_TRAFFIC_ROUTING", {"canary": 50})
    await lab.succeed("K8S_ROLLBACK")

    assert untouched == before
    assert await read(lab) == before


async def test_a_pipeline_without_a_virtual_service_applies_the_rest(lab: KubernetesLab) -> None:
    lab.begin(make_deployment(), options={"trafficRouting": {"method": "istio"}})

    await lab.succeed("K8S_PRIMARY_ROLLOUT", {"prune": True})

    assert "Deployment/web" in await read(lab)


async def test_all_traffic_moves_by_the_selector_and_comes_back(lab: KubernetesLab) -> None:
    first = make_deployment(labels=PRIMARY)
    lab.begin(first, make_service(labels=PRIMARY))
    await lab.succeed("K8S_SYNC")
    before = await read(lab)
    lab.begin(make_deployment(image="web:v2", labels=PRIMARY), make_service(labels=PRIMARY))

    await lab.succeed("K8S_CANARY_ROLLOUT", {"replicas": "100%"})
    await lab.succeed("K8S_TRAFFIC_ROUTING", {"all": "canary"})
    during = await read(lab)
    await lab.succeed("K8S_ROLLBACK")

    assert during["Service/web"]["spec"]["selector"]["pipecd.dev/variant"] == "canary"
    assert await read(lab) == before


async def test_traffic_is_split_by_an_http_route_and_comes_back(lab: KubernetesLab) -> None:
    gateway = {"trafficRouting": {"method": "gateway"}}
    objects = (make_service(labels=PRIMARY), http_route())
    lab.begin(make_deployment(labels=PRIMARY), *objects, options=gateway)
    await lab.succeed("K8S_SYNC")
    before = await read(lab)
    lab.begin(make_deployment(image="web:v2", labels=PRIMARY), *objects)

    early = await lab.run("K8S_TRAFFIC_ROUTING", {"canary": 20})
    await lab.succeed("K8S_CANARY_ROLLOUT", {"createService": True})
    await lab.succeed("K8S_TRAFFIC_ROUTING", {"canary": 20})
    await lab.succeed("K8S_PRIMARY_ROLLOUT", {})
    during = await read(lab)
    await lab.succeed("K8S_ROLLBACK")

    assert early.status is StageStatus.FAILURE
    assert "createService" in early.reason
    backends = during["HTTPRoute/web"]["spec"]["rules"][0]["backendRefs"]
    assert [(each["name"], each["weight"]) for each in backends] == [
        ("web", 80),
        ("web-canary", 20),
    ]
    assert await read(lab) == before


async def test_a_rollback_keeps_selectors_and_the_primarys_own_service(
    lab: KubernetesLab,
) -> None:
    """Upstream adds the label only if the quick sync does, and fails: a selector cannot change."""
    options = {"addVariantLabelToSelector": True, "createService": True}
    lab.begin(make_deployment(), make_service())
    await lab.succeed("K8S_PRIMARY_ROLLOUT", options)
    before = await read(lab)
    lab.begin(make_deployment(image="web:v2"), make_service(), make_config_map("new"))

    await lab.succeed("K8S_PRIMARY_ROLLOUT", options)
    during = await read(lab)
    await lab.succeed("K8S_ROLLBACK")

    assert "Service/web-primary" in before
    assert "ConfigMap/new" in during
    assert await read(lab) == before


async def test_a_rollback_deletes_only_what_the_deployment_has_made(lab: KubernetesLab) -> None:
    """What was there before without being in git, or was somebody else's, stays."""
    lab.begin(make_deployment(), make_config_map("left", a="1"))
    await lab.succeed("K8S_SYNC")
    lab.begin(make_deployment())
    await lab.succeed("K8S_SYNC")
    await asyncio.to_thread(lab.namespace.apply, make_config_map("theirs", a="1"))
    before = await read(lab)
    lab.begin(make_deployment(image="web:v2"), make_config_map("theirs", a="2"))

    await lab.succeed("K8S_PRIMARY_ROLLOUT", {})
    await lab.succeed("K8S_ROLLBACK")

    after = await read(lab)
    assert after.keys() == before.keys()
    assert after["ConfigMap/left"] == before["ConfigMap/left"]
    assert image_of(after, "web") == "web:v1"


async def test_a_first_deployment_has_nothing_to_go_back_to(lab: KubernetesLab) -> None:
    lab.begin(make_deployment())
    await lab.succeed("K8S_SYNC")
    await lab.succeed("K8S_CANARY_ROLLOUT", {})

    result = await lab.run("K8S_ROLLBACK")

    assert result.status is StageStatus.FAILURE
    assert "no earlier deployment" in result.reason
    found = await read(lab)
    assert "Deployment/web" in found
    assert "Deployment/web-canary" not in found


async def test_an_autoscalers_replicas_survive_every_stage(lab: KubernetesLab) -> None:
    lab.begin(make_deployment(replicas=2), make_service())
    await lab.succeed("K8S_SYNC")
    api, name = lab.namespace.api, lab.namespace.name
    path = f"/apis/apps/v1/namespaces/{name}/deployments/web/scale"
    change = {"spec": {"replicas": 5}}
    await asyncio.to_thread(
        api.request, "PATCH", path, change, content_type="application/merge-patch+json"
    )
    lab.begin(make_deployment(image="web:v2", replicas=2), make_service())
    seen = []
    stages: list[tuple[str, dict[str, Any] | None]] = [
        ("K8S_CANARY_ROLLOUT", {}),
        ("K8S_BASELINE_ROLLOUT", {}),
        ("K8S_PRIMARY_ROLLOUT", {"prune": True}),
        ("K8S_CANARY_CLEAN", {}),
        ("K8S_BASELINE_CLEAN", {}),
        ("K8S_SYNC", None),
        ("K8S_ROLLBACK", None),
    ]

    for stage, options in stages:
        await lab.succeed(stage, options)
        seen.append((await read(lab))["Deployment/web"]["spec"]["replicas"])

    assert seen == [5] * len(stages)


async def test_an_unknown_deploy_target_is_a_sentence(lab: KubernetesLab) -> None:
    lab.begin(make_deployment())

    result = await lab.run("K8S_SYNC", {"multiTargets": ["nowhere"]})

    assert result.status is StageStatus.FAILURE
    assert result.reason == (
        "there is no deploy target 'nowhere' of this application (it has main)"
    )
    assert "Deployment/web" not in await read(lab)


async def test_a_cluster_that_cannot_be_reached_is_a_sentence(
    lab: KubernetesLab, tmp_path: Path
) -> None:
    lab.begin(make_deployment())
    targets = lab.harness.targets
    lab.harness.targets = [
        type(targets[0])(
            name="main",
            labels={},
            config=type(targets[0].config)(kube_config_path=str(tmp_path / "missing")),
        )
    ]

    result = await lab.run("K8S_SYNC")

    assert result.status is StageStatus.FAILURE
    assert "missing" in result.reason
