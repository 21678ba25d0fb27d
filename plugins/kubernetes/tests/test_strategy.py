# SPDX-License-Identifier: Apache-2.0
"""Versions and strategy: which change is worth the pipeline, and what it is called."""

from typing import Any

import pytest
from pipecd_plugin_kubernetes.config import WorkloadReference
from pipecd_plugin_kubernetes.images import find_versions
from pipecd_plugin_kubernetes.manifest import Manifest, parse_manifests
from pipecd_plugin_kubernetes.metadata import add_builtin
from pipecd_plugin_kubernetes.strategy import decide_strategy

from pipecd_sdk import SyncStrategy
from pipecd_sdk.kit.images import parse_image

QUICK, PIPELINE = SyncStrategy.QUICK_SYNC, SyncStrategy.PIPELINE


def deployment(
    name: str = "web",
    *,
    image: str = "reg:5000/web:v1",
    replicas: int | None = 2,
    labels: dict[str, str] | None = None,
    pod_labels: dict[str, str] | None = None,
    **metadata: Any,
) -> Manifest:
    spec: dict[str, Any] = {
        "template": {
            "metadata": {"labels": pod_labels or {"app": name}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        }
    }
    if replicas is not None:
        spec["replicas"] = replicas
    metadata = {"name": name, "labels": labels or {}} | metadata
    return Manifest(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    )


def config(kind: str = "ConfigMap", name: str = "conf", **body: Any) -> Manifest:
    return Manifest({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **body})


@pytest.mark.parametrize(
    ("running", "target", "sync", "said"),
    [
        ([], [deployment()], QUICK, "no running workloads"),
        ([deployment()], [], QUICK, "no workloads in the new commit"),
        ([deployment()], [deployment()], QUICK, "no template"),
        (
            [deployment()],
            [deployment(replicas=3)],
            QUICK,
            "only the scale changed: Deployment/web from 2 to 3",
        ),
        (
            [deployment(replicas=None)],
            [deployment(replicas=3)],
            QUICK,
            "Deployment/web from <nil> to 3",
        ),
        (
            [deployment()],
            [deployment(image="reg:5000/web:v2")],
            PIPELINE,
            "images of Deployment/web changed: web from v1 to v2",
        ),
        (
            [deployment()],
            [deployment(image="other/web:v1")],
            PIPELINE,
            "web from v1 to v1",
        ),
        (
            [deployment()],
            [deployment(image="reg:5000/api:v2")],
            PIPELINE,
            "api v2 is new",
        ),
        (
            [deployment()],
            [deployment(pod_labels={"app": "web", "x": "y"})],
            PIPELINE,
            "the template of pods of Deployment/web changed",
        ),
        ([deployment()], [deployment(labels={"a": "b"})], QUICK, ""),
        ([deployment()], [deployment(), deployment("api")], QUICK, ""),
        ([deployment(), deployment("api")], [deployment()], QUICK, ""),
        ([deployment()], [deployment(namespace="default")], QUICK, ""),
        ([deployment()], [deployment(), config()], PIPELINE, "ConfigMap/conf is new"),
        ([deployment(), config()], [deployment()], PIPELINE, "ConfigMap/conf is no longer there"),
        (
            [deployment(), config(data={"a": "1"})],
            [deployment(), config(data={"a": "2"})],
            PIPELINE,
            "ConfigMap/conf changed",
        ),
        (
            [deployment(), config("Secret", data={"a": "MQ=="})],
            [deployment(), config("Secret", stringData={"a": "1"})],
            QUICK,
            "",
        ),
        (
            [deployment(), config("Secret", data={"a": "MQ=="})],
            [deployment(), config("Secret", stringData={"a": "2"})],
            PIPELINE,
            "Secret/conf changed",
        ),
        (
            [deployment(), config("Secret", data={"a": 5})],
            [deployment(), config("Secret", data=[])],
            PIPELINE,
            "Secret/conf changed",
        ),
    ],
)
def test_the_strategy_for_a_change(
    running: list[Manifest], target: list[Manifest], sync: SyncStrategy, said: str
) -> None:
    found = decide_strategy(running, target)
    assert found.sync is sync
    assert said in found.summary


def test_what_pipecd_writes_itself_is_no_change() -> None:
    """Every application with a ConfigMap would take the pipeline for every commit otherwise."""

    def mark(commit: str) -> list[Manifest]:
        return add_builtin(
            [deployment(), config(data={"a": "1"})],
            piped_id="p",
            application_id="a",
            commit=commit,
        )

    assert decide_strategy(mark("one"), mark("two")).sync is QUICK


def test_each_commit_names_its_own_workloads() -> None:
    both = [deployment("web"), deployment("api", image="api:v1")]
    changed = [deployment("web"), deployment("api", image="api:v2")]
    web = [WorkloadReference(name="web")]
    assert decide_strategy(both, changed).sync is PIPELINE
    assert decide_strategy(both, changed, target_workloads=web).sync is QUICK
    assert decide_strategy(both, changed, running_workloads=web).sync is QUICK


def test_workloads_of_other_kinds_count_when_they_are_named() -> None:
    text = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec: {template: {spec: {containers: [{name: db, image: "db:TAG"}]}}}
"""
    old = parse_manifests(text.replace("TAG", "1"), origin="a")
    new = parse_manifests(text.replace("TAG", "2"), origin="a")
    named = [WorkloadReference(kind="StatefulSet")]
    found = decide_strategy(old, new, running_workloads=named, target_workloads=named)
    assert found.sync is PIPELINE
    assert decide_strategy(old, new).sync is QUICK, "no Deployment is running"


def test_a_summary_is_one_clean_line() -> None:
    found = decide_strategy([deployment()], [deployment(image="web:\x1b[31m\nv" + "x" * 5000)])
    assert "\x1b" not in found.summary
    assert "\n" not in found.summary
    assert len(found.summary) < 500


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("nginx", "nginx", "latest"),
        ("nginx:1.27", "nginx", "1.27"),
        ("gcr.io/team/web:v1", "web", "v1"),
        ("registry:5000/web", "web", "latest"),
        ("registry:5000/team/web:v1", "web", "v1"),
        ("web@sha256:0123", "web", "sha256:0123"),
        ("registry:5000/web:v1@sha256:0123", "web", "v1"),
    ],
)
def test_the_name_and_version_of_an_image(text: str, name: str, version: str) -> None:
    image = parse_image(text)
    assert (image.name, image.version, image.text) == (name, version, text)


def test_versions_are_those_of_all_containers_of_all_kinds_each_once() -> None:
    text = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      initContainers: [{name: i, image: "migrate:1"}]
      containers: [{name: a, image: "web:1"}, {name: b, image: "proxy:2"}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: "report:3"}]}}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {template: {spec: {containers: [{name: a, image: "web:1"}, {name: b, image: 5}, nothing]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: alone}
spec: {containers: [{name: a, image: "alone:4"}]}
"""
    found = find_versions(parse_manifests(text, origin="a"))
    assert [(each.name, each.version) for each in found] == [
        ("web", "1"),
        ("proxy", "2"),
        ("report", "3"),
        ("alone", "4"),
        ("migrate", "1"),
    ]
    assert found[0].url == "web:1"
