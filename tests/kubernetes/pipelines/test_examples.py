# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes examples: their files have no faults, and each runs as its README says."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster
from pipecd_test_support.kubernetes_site import KubernetesSite, read_objects
from pipecd_test_support.piped_site import PipedSite
from pipecd_test_support.web_server import Answer, Question, WebServer
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import call

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
EXAMPLE = ROOT / "examples" / "03-kubernetes"
NO_TRIGGER = "spec:\n  trigger: {onCommit: {disabled: true}}\n"


def test_the_files_of_the_examples_have_no_faults(tmp_path: Path) -> None:
    piped = tmp_path / "piped.yaml"
    key = tmp_path / "piped.key"
    key.write_text("secret")
    text = (EXAMPLE / "piped.yaml").read_text()
    piped.write_text(text.replace("/tmp/pipecd-kubernetes/piped.key", str(key)))  # noqa: S108

    done = subprocess.run(
        [BIN / "pipectl", "lint", piped, EXAMPLE / "repository", "--piped", piped],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 files, 0 errors, 0 warnings" in done.stdout + done.stderr


def write_kubeconfig(cluster: RealCluster, path: Path, namespace: str) -> Path:
    """An administrator's, with a namespace of the test's own."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    for each in document["contexts"]:
        each["context"]["namespace"] = namespace
    path.write_text(yaml.safe_dump(document))
    return path


def answer_query(question: Question, *, of_canary: str = "0.01") -> Answer:
    """The errors of a variant, as a Prometheus has them: both are equally good."""
    [query] = question.query["query"]
    value = of_canary if "baseline-canary-" in query else "0.01"
    values = [[number, value] for number in range(6)]
    result = [{"metric": {}, "values": values}] if "baseline-" in query else []
    document = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return Answer(body=json.dumps(document).encode())


def shorten_times(text: str) -> str:
    """Write seconds for the minutes of an analysis: the values are there at once."""
    return text.replace("interval: 5m", "interval: 5s").replace("duration: 10m", "duration: 10s")


@pytest.fixture
def metrics() -> Iterator[WebServer]:
    with WebServer() as server:
        server.give("/api/v1/query_range", answer_query)
        yield server


@pytest.fixture
async def example(
    own_piped: PipedSite,
    namespace: Namespace,
    second_cluster: RealCluster,
    tmp_path: Path,
    metrics: WebServer,
) -> AsyncIterator[PipedSite]:
    """A piped with the file of the examples, and with two clusters."""
    twin = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace.name}}
    await asyncio.to_thread(second_cluster.api.create, twin)
    paths = {
        "kubeconfig": write_kubeconfig(namespace.cluster, tmp_path / "here", namespace.name),
        "kubeconfig-west": write_kubeconfig(second_cluster, tmp_path / "west", namespace.name),
    }
    plugins = yaml.safe_load((EXAMPLE / "piped.yaml").read_text())["spec"]["plugins"]
    for plugin in plugins:
        for provider in plugin.get("config", {}).get("analysisProviders", ()):
            provider["config"]["address"] = metrics.url
        for target in plugin.get("deployTargets", ()):
            name = Path(target["config"]["kubeConfigPath"]).name
            target["config"]["kubeConfigPath"] = str(paths[name])
    own_piped.configure(*plugins)
    own_piped.start()
    yield own_piped
    await asyncio.to_thread(second_cluster.api.delete, "v1", "Namespace", namespace.name)


class Run:
    """One application of the examples: its first commit, and the next up to its approval."""

    def __init__(self, app: KubernetesSite, namespace: Namespace) -> None:
        self.app = app
        self.namespace = namespace

    def commit(self, version: str) -> str:
        files = {
            f"{self.app.path}/{file.name}": file.read_text().replace("web:v1", f"web:{version}")
            for file in (EXAMPLE / "repository" / self.app.path).iterdir()
        }
        key = f"{self.app.path}/app.pipecd.yaml"
        files[key] = shorten_times(files[key].replace("spec:\n", NO_TRIGGER, 1))
        return self.app.site.commit(dict(files))

    async def read(self) -> dict[str, Any]:
        return await asyncio.to_thread(read_objects, self.namespace)

    async def wait_approval(self, commit: str) -> str:
        """Deploy a commit until somebody is asked to approve it."""
        deployment_id = await self.app.start(commit)

        def waits(deployment: pb.Deployment) -> bool:
            assert deployment.status < pb.DEPLOYMENT_SUCCESS, deployment.status_reason
            return any(
                each.name == "WAIT_APPROVAL" and each.status == pb.STAGE_RUNNING
                for each in deployment.stages
            )

        await self.app.client.until(deployment_id, waits)
        return deployment_id

    async def approve(self, deployment_id: str) -> None:
        request = own.ApproveStageRequest(deployment_id=deployment_id)
        await call(self.app.client.deployments.ApproveStage, request)
        ended = await self.app.client.completed(deployment_id)
        assert ended.status == pb.DEPLOYMENT_SUCCESS, await self.app.explain(ended)


def image_of(objects: dict[str, Any], name: str) -> str:
    found = objects[f"Deployment/{name}"]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert isinstance(found, str)
    return found.rpartition("/")[2]


async def test_the_canary_example(example: PipedSite, namespace: Namespace) -> None:
    async with example.client() as client:
        run = Run(KubernetesSite(example, client, "canary", targets=["here"]), namespace)
        await run.app.succeed(run.commit("v1"))
        waiting = await run.wait_approval(run.commit("v2"))
        during = await run.read()
        await run.approve(waiting)
        after = await run.read()

    assert (image_of(during, "canary"), image_of(during, "canary-canary")) == ("web:v1", "web:v2")
    assert during["Deployment/canary-canary"]["spec"]["replicas"] == 1
    assert image_of(after, "canary") == "web:v2"
    assert "Deployment/canary-canary" not in after


async def test_the_blue_green_example(example: PipedSite, namespace: Namespace) -> None:
    async with example.client() as client:
        run = Run(KubernetesSite(example, client, "blue-green", targets=["here"]), namespace)
        await run.app.succeed(run.commit("v1"))
        waiting = await run.wait_approval(run.commit("v2"))
        during = await run.read()
        await run.approve(waiting)
        after = await run.read()

    variant = "pipecd.dev/variant"
    assert during["Service/blue-green"]["spec"]["selector"][variant] == "canary"
    assert during["Deployment/blue-green-canary"]["spec"]["replicas"] == 2
    assert after["Service/blue-green"]["spec"]["selector"][variant] == "primary"
    assert image_of(after, "blue-green") == "web:v2"
    assert "Deployment/blue-green-canary" not in after


async def test_the_baseline_example(
    example: PipedSite, namespace: Namespace, metrics: WebServer
) -> None:
    async with example.client() as client:
        run = Run(KubernetesSite(example, client, "baseline", targets=["here"]), namespace)
        await run.app.succeed(run.commit("v1"))
        waiting = await run.wait_approval(run.commit("v2"))
        during = await run.read()
        await run.approve(waiting)
        after = await run.read()

    asked = {each.query["query"][0].partition("-.*")[0] for each in metrics.questions}
    assert {each.rpartition("baseline-")[2] for each in asked} == {"canary", "baseline"}
    route = during["VirtualService/baseline"]["spec"]["http"][0]["route"]
    assert [(each["destination"]["subset"], each["weight"]) for each in route] == [
        ("primary", 80),
        ("canary", 10),
        ("baseline", 10),
    ]
    assert image_of(during, "baseline-baseline") == "web:v1"
    assert image_of(during, "baseline-canary") == "web:v2"
    [left] = after["VirtualService/baseline"]["spec"]["http"][0]["route"]
    assert left["weight"] == 100
    assert {"Deployment/baseline-canary", "Deployment/baseline-baseline"} & after.keys() == set()


async def test_a_worse_canary_of_the_baseline_example_goes_back(
    example: PipedSite, namespace: Namespace, metrics: WebServer
) -> None:
    metrics.give("/api/v1/query_range", partial(answer_query, of_canary="0.5"))
    async with example.client() as client:
        run = Run(KubernetesSite(example, client, "baseline", targets=["here"]), namespace)
        await run.app.succeed(run.commit("v1"))
        ended = await client.completed(await run.app.start(run.commit("v2")))
        after = await run.read()

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.status_reason.startswith("ANALYSIS failed")
    assert ended.status_reason.endswith("rolled back")
    assert image_of(after, "baseline") == "web:v1"
    [left] = after["VirtualService/baseline"]["spec"]["http"][0]["route"]
    assert left["weight"] == 100
    assert {"Deployment/baseline-canary", "Deployment/baseline-baseline"} & after.keys() == set()


async def test_the_example_of_many_clusters(
    example: PipedSite, namespace: Namespace, second_cluster: RealCluster
) -> None:
    west = Namespace(cluster=second_cluster, name=namespace.name)
    async with example.client() as client:
        app = KubernetesSite(
            example,
            client,
            "many-clusters",
            plugin="kubernetes_multicluster",
            targets=["east", "west"],
        )
        run = Run(app, namespace)
        await app.succeed(run.commit("v1"))
        waiting = await run.wait_approval(run.commit("v2"))
        during = [await run.read(), await asyncio.to_thread(read_objects, west)]
        await run.approve(waiting)
        after = [await run.read(), await asyncio.to_thread(read_objects, west)]

    assert [image_of(each, "many-clusters") for each in during] == ["web:v2", "web:v1"]
    assert [image_of(each, "many-clusters") for each in after] == ["web:v2", "web:v2"]
    assert ["Service/many-clusters-legacy" in each for each in after] == [False, True]
