# SPDX-License-Identifier: Apache-2.0
"""What is planned, and what is refused before anything runs."""

from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_kubernetes.config import KubernetesOptions
from pipecd_plugin_kubernetes.multicluster import KubernetesMulticluster
from pipecd_plugin_kubernetes.pipeline import has_stage, list_options
from pipecd_plugin_kubernetes.plugin import Kubernetes

from pipecd_sdk import Source, SyncStrategy
from pipecd_sdk.config import OptionFaultsError, read_value
from pipecd_sdk.testing import StageHarness, deploy_target

KINDS = (
    *("SYNC", "PRIMARY_ROLLOUT", "CANARY_ROLLOUT", "CANARY_CLEAN", "BASELINE_ROLLOUT"),
    *("BASELINE_CLEAN", "TRAFFIC_ROUTING", "ROLLBACK"),
)
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      initContainers: [{{name: init, image: "registry:5000/init:v9"}}]
      containers: [{{name: web, image: "web:{tag}"}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: web}}
"""


def make(
    folder: Path, plugin: Kubernetes, *, running: str = "", target: str = "", **options: Any
) -> StageHarness[Kubernetes]:
    for name, text in (("running", running), ("target", target)):
        (folder / name).mkdir()
        (folder / name / "web.yaml").write_text(text)
    targets = [
        deploy_target(plugin, name, {"kubeConfigPath": "/gone"}, labels={"name": name})
        for name in ("a", "b")
    ]
    return StageHarness(
        plugin,
        directory=folder / "target",
        running_directory=folder / "running" if running else None,
        options=options,
        targets=targets,
    )


def test_both_plugins_have_the_same_stages_under_their_own_names() -> None:
    assert list(Kubernetes().stages) == [f"K8S_{kind}" for kind in KINDS]
    assert list(KubernetesMulticluster().stages) == [f"K8S_MULTI_{kind}" for kind in KINDS]


def test_traffic_is_shown_beside_its_stage_and_the_rollback_is_at_the_first(
    tmp_path: Path,
) -> None:
    harness = make(tmp_path, Kubernetes())

    planned = harness.plan(
        ("K8S_CANARY_ROLLOUT", {}),
        ("K8S_TRAFFIC_ROUTING", {"canary": 10, "baseline": "10%"}),
        ("K8S_TRAFFIC_ROUTING", {"all": "primary"}),
    )

    assert [(each.name, each.index, each.rollback) for each in planned] == [
        ("K8S_CANARY_ROLLOUT", 0, False),
        ("K8S_TRAFFIC_ROUTING", 1, False),
        ("K8S_TRAFFIC_ROUTING", 2, False),
        ("K8S_ROLLBACK", 0, True),
    ]
    assert [each.metadata.get("pipecd/stage-display-metadata") for each in planned] == [
        None,
        "Primary: 80%, Canary: 10%, Baseline: 10%",
        "Primary: 100%, Canary: 0%, Baseline: 0%",
        None,
    ]


def test_a_quick_sync_is_a_sync_and_its_rollback(tmp_path: Path) -> None:
    planned = make(tmp_path, KubernetesMulticluster()).quick_sync()

    assert [each.name for each in planned] == ["K8S_MULTI_SYNC", "K8S_MULTI_ROLLBACK"]


@pytest.mark.parametrize(
    ("stage", "options", "said"),
    [
        ("K8S_CANARY_ROLLOUT", {"replicas": "many"}, "not a number of replicas"),
        ("K8S_CANARY_ROLLOUT", {"replicas": -1}, "must not be negative"),
        ("K8S_CANARY_ROLLOUT", {"patches": [{"target": {"kind": "D"}}]}, "patches[0]"),
        ("K8S_TRAFFIC_ROUTING", {"canary": 101}, "not a share of the traffic"),
        ("K8S_TRAFFIC_ROUTING", {"primary": 10, "canary": 10}, "adds up to 20"),
        ("K8S_TRAFFIC_ROUTING", {"all": "green"}, "all"),
        ("K8S_SYNC", {"targetPercentage": 0, "multiTargets": ["a"], "prune": "maybe"}, "prune"),
        ("K8S_SYNC", {"targetPercentage": 10, "multiTargets": ["a"]}, "together"),
    ],
)
def test_options_that_cannot_be_used_are_refused_when_a_deployment_is_planned(
    tmp_path: Path, stage: str, options: dict[str, Any], said: str
) -> None:
    faults = make(tmp_path, Kubernetes()).faults((stage, options))

    assert faults
    assert said in "\n".join(faults)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trafficRouting": {"method": "smi"}}, "SMI is not supported"),
        ({"trafficRouting": {"method": "magic"}}, "method"),
        ({"variantLabel": {"canaryValue": "primary"}}, "the values must differ"),
        ({"input": {"multiTargets": [{"target": {}}]}}, "no deploy target is named"),
        (
            {"input": {"helmChart": {"path": "x"}, "kustomizeOptions": {"a": "b"}}},
            "cannot be given together with helmChart",
        ),
        (
            {"trafficRouting": {"istio": {"virtualService": {"kind": "Service"}}}},
            "must be VirtualService",
        ),
    ],
)
def test_an_application_file_that_cannot_be_used_is_refused(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(OptionFaultsError) as caught:
        read_value(KubernetesOptions, options, path=())

    assert said in str(caught.value)


async def test_versions_are_those_of_all_images_of_all_targets(tmp_path: Path) -> None:
    harness = make(tmp_path, KubernetesMulticluster(), target=WEB.format(replicas=1, tag="v2"))

    found = await harness.versions()

    assert [(each.name, each.version) for each in found] == [("web", "v2"), ("init", "v9")]


@pytest.mark.parametrize(
    ("replicas", "tag", "expected"),
    [(3, "v1", SyncStrategy.QUICK_SYNC), (2, "v2", SyncStrategy.PIPELINE)],
)
async def test_only_a_change_of_pods_needs_the_pipeline(
    tmp_path: Path, replicas: int, tag: str, expected: SyncStrategy
) -> None:
    """Upstream takes the pipeline whenever there is a ConfigMap."""
    harness = make(
        tmp_path,
        Kubernetes(),
        running=WEB.format(replicas=2, tag="v1"),
        target=WEB.format(replicas=replicas, tag=tag),
    )

    decided = await harness.strategy()

    assert decided.sync is expected
    assert "web" in decided.summary


def test_a_stage_can_ask_what_else_is_in_the_pipeline() -> None:
    text = b"spec:\n  Pipeline:\n    stages:\n    - {name: K8S_MULTI_TRAFFIC_ROUTING}\n"
    text += b"    - {name: K8S_PRIMARY_ROLLOUT, with: {AddVariantLabelToSelector: true}}\n"

    found = list(list_options(Source(config=text), "_PRIMARY_ROLLOUT", "addVariantLabelToSelector"))

    assert found == [True]
    assert has_stage(Source(config=text), "_TRAFFIC_ROUTING")
    for broken in (
        b"",
        b"spec: [",
        b"spec: {pipeline: {stages: 3}}",
        b"- 1",
        b"spec: {pipeline: x}",
    ):
        assert not has_stage(Source(config=broken), "_TRAFFIC_ROUTING")
