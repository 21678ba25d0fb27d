# SPDX-License-Identifier: Apache-2.0
"""The plugin for several clusters, on two real ones."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pipecd_plugin_kubernetes.config import KubernetesTarget
from pipecd_plugin_kubernetes.multicluster import KubernetesMulticluster

from pipecd_sdk import DeployTarget, StageStatus
from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster
from pipecd_test_support.kubernetes_lab import KubernetesLab
from pipecd_test_support.kubernetes_site import (
    Object,
    make_config_map,
    make_deployment,
    make_manifests,
    read_objects,
)

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture
async def lab(
    namespace: Namespace, second_cluster: RealCluster, tmp_path: Path
) -> AsyncIterator[KubernetesLab]:
    twin = Namespace(cluster=second_cluster, name=namespace.name)
    made = KubernetesLab(
        folder=tmp_path,
        namespaces={"a": namespace, "b": twin},
        plugin=KubernetesMulticluster(),
        options={"input": {"autoCreateNamespace": True}},
    )
    yield made
    await made.close()
    if second_cluster.api.get("v1", "Namespace", twin.name) is not None:
        second_cluster.api.delete("v1", "Namespace", twin.name)


async def read(lab: KubernetesLab, target: str) -> dict[str, Object]:
    return await asyncio.to_thread(read_objects, lab.namespaces[target])


def only(*names: str, **manifests: str) -> dict[str, Any]:
    """Options that choose deploy targets, some with a file of their own."""
    entries: list[dict[str, Any]] = [{"target": {"name": name}} for name in names]
    for name, file in manifests.items():
        entries.append({"target": {"labels": {"name": name}}, "manifests": [file]})
    return {"input": {"autoCreateNamespace": True, "multiTargets": entries}}


async def test_all_clusters_get_the_commit_and_each_its_own_files(lab: KubernetesLab) -> None:
    files = {
        "a.yaml": make_manifests(make_deployment(), make_config_map("a")),
        "b.yaml": make_manifests(make_deployment(), make_config_map("b")),
    }
    lab.begin(files=files, options=only(a="a.yaml", b="b.yaml"))

    await lab.succeed("K8S_MULTI_SYNC")

    a, b = await read(lab, "a"), await read(lab, "b")
    assert {"Deployment/web", "ConfigMap/a"} <= a.keys()
    assert {"Deployment/web", "ConfigMap/b"} <= b.keys()
    assert "ConfigMap/b" not in a
    assert json.loads(lab.harness.metadata.values["pipecd/stage-targets"]).keys() == {"a", "b"}


async def test_waves_go_over_clusters_and_all_come_back(lab: KubernetesLab) -> None:
    lab.begin(make_deployment())
    await lab.succeed("K8S_MULTI_SYNC")
    before = [await read(lab, name) for name in ("a", "b")]
    lab.begin(make_deployment(image="web:v2"))

    await lab.succeed("K8S_MULTI_CANARY_ROLLOUT", {"multiTargets": ["b"]}, index=0)
    await lab.succeed("K8S_MULTI_PRIMARY_ROLLOUT", {"targetPercentage": "50%"}, index=1)
    a, b = await read(lab, "a"), await read(lab, "b")
    await lab.succeed("K8S_MULTI_ROLLBACK")

    assert "Deployment/web-canary" not in a
    assert "Deployment/web-canary" in b
    images = [
        each["Deployment/web"]["spec"]["template"]["spec"]["containers"][0]["image"]
        for each in (a, b)
    ]
    assert images == ["web:v2", "web:v1"]
    assert [await read(lab, name) for name in ("a", "b")] == before


async def test_a_rollback_succeeds_only_when_all_clusters_are_back(
    lab: KubernetesLab, tmp_path: Path
) -> None:
    """Upstream is content with one of them."""
    lab.begin(make_deployment())
    await lab.succeed("K8S_MULTI_SYNC")
    lab.begin(make_deployment(image="web:v2"))
    await lab.succeed("K8S_MULTI_PRIMARY_ROLLOUT", {})
    gone = KubernetesTarget(kube_config_path=str(tmp_path / "gone"))
    lab.harness.targets = [
        *lab.harness.targets[:1],
        DeployTarget(name="c", labels={}, config=gone),
    ]

    result = await lab.run("K8S_MULTI_ROLLBACK")

    assert result.status is StageStatus.FAILURE
    assert result.reason.startswith("1 of 2 deploy targets failed: c: ")
    containers = (await read(lab, "a"))["Deployment/web"]["spec"]["template"]["spec"]["containers"]
    assert containers[0]["image"] == "web:v1"


async def test_a_cluster_that_the_failed_commit_has_added_is_cleaned(lab: KubernetesLab) -> None:
    lab.begin(make_deployment(), options=only("a"))
    await lab.succeed("K8S_MULTI_SYNC")
    before = await read(lab, "a")
    lab.begin(make_deployment(image="web:v2"), make_config_map("new"), options=only("a", "b"))
    await lab.succeed("K8S_MULTI_PRIMARY_ROLLOUT", {})
    added = await read(lab, "b")

    await lab.succeed("K8S_MULTI_ROLLBACK")

    assert {"Deployment/web", "ConfigMap/new"} <= added.keys()
    assert await read(lab, "a") == before
    left = await read(lab, "b")
    assert {"Deployment/web", "ConfigMap/new"} & left.keys() == set()


async def test_a_cluster_that_fails_is_named_and_the_others_go_on(lab: KubernetesLab) -> None:
    files = {
        "a.yaml": make_manifests(make_deployment()),
        "b.yaml": make_manifests(make_deployment(image="web:v1-crash")),
    }
    readiness = {"readiness": {"timeout": "5s"}}
    lab.begin(files=files, options={**only(a="a.yaml", b="b.yaml"), **readiness})

    result = await lab.run("K8S_MULTI_SYNC")

    assert result.status is StageStatus.FAILURE
    assert result.reason.startswith("1 of 2 deploy targets failed: b: ")
    stored = json.loads(lab.harness.metadata.values["pipecd/stage-targets"])
    assert stored["a"]["status"] == "SUCCESS"


@pytest.mark.parametrize("agent", ["ours", "go"])
@pytest.mark.parametrize("which", ["", "-multicluster"])
def test_both_executables_pass_the_kit_with_clusters(
    which: str,
    agent: str,
    cluster: RealCluster,
    second_cluster: RealCluster,
    tmp_path: Path,
) -> None:
    profile = yaml.safe_load((ROOT / f"plugins/kubernetes/conformance{which}.yaml").read_text())
    for target, path in zip(
        profile["deployTargets"], (cluster.kubeconfig, second_cluster.kubeconfig), strict=False
    ):
        target["config"] = {"kubeConfigPath": str(path)}
    for stage in profile["stages"]:
        # There is no earlier commit to make a baseline of.
        is_baseline = stage["name"].endswith("BASELINE_ROLLOUT")
        stage["results"] = ["FAILURE"] if is_baseline else ["SUCCESS"]
    file = tmp_path / "profile.yaml"
    file.write_text(yaml.safe_dump(profile))
    way = ["--as-go-agent"] if agent == "go" else []

    done = subprocess.run(
        [
            *(str(BIN / "pipectl"), "plugin", "test", *way, "--output", "json", "--profile"),
            *(str(file), "--", str(BIN / f"pipecd-plugin-kubernetes{which}")),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.stderr == ""
    cases = json.loads(done.stdout)["cases"]
    assert [each for each in cases if each["outcome"] == "BROKEN"] == []
    assert sum(each["outcome"] == "HOLDS" for each in cases) >= 15
