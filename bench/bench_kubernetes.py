# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes plugin beside kubectl, on one real cluster, taking turns.

What kubectl does: `kubectl apply --server-side --force-conflicts` of one file. What the plugin
does: the same manifests through its own client, from connecting to the last answer, in the order
that a sync keeps. The cluster is the one of the tests; where it is not built, nothing is measured.
"""

import asyncio
import json
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pipecd_plugin_kubernetes.apply import apply_manifests
from pipecd_plugin_kubernetes.client import Cluster, load_connection
from pipecd_plugin_kubernetes.config import KubernetesOptions
from pipecd_plugin_kubernetes.drift import DriftDetector, DriftQuestion
from pipecd_plugin_kubernetes.livestate import LiveStates, LiveView
from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.metadata import add_builtin
from pipecd_plugin_kubernetes.plugin import Kubernetes
from report import Bar, Unheard, info, report

from pipecd_sdk import DeployTarget, StageLog, SyncStatus
from pipecd_sdk.testing import deploy_target
from pipecd_test_support.kubernetes.cache import MissingError
from pipecd_test_support.kubernetes.executables import find_executables
from pipecd_test_support.kubernetes.packages import find_tools
from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster, running_cluster
from pipecd_test_support.kubernetes.workloads import make_deployment

TURNS = 5
APPLIED = 200
COMPARED = 500
DRIFTED = 10
PODS = 10_000
EVENTS = 2_000
THREADS = 16
WATCHER = Path(__file__).with_name("kubernetes_watcher.py")
WAIT_SECONDS = 300.0


def main() -> None:
    try:
        find_executables()
        find_tools()
    except MissingError as error:
        print(f"bench kubernetes: skipped: {error}", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder, running_cluster() as cluster:
        measure_apply(cluster, Path(folder))
        measure_drift(cluster, Path(folder))
        measure_watch(cluster)


def make_manifests(namespace: str, number: int) -> list[Manifest]:
    """Objects as an application has them: half configuration, the rest workloads and services."""
    bodies: list[dict[str, Any]] = []
    for index in range(number // 4):
        name = f"web-{index}"
        deployment = make_deployment(name, replicas=0)
        ports = [{"port": 80, "targetPort": 8080}]
        settings = {f"key-{key}": f"value {key} of {name}" for key in range(20)}
        bodies += [
            {"apiVersion": "v1", "kind": "ConfigMap", "data": settings},
            {"apiVersion": "v1", "kind": "Secret", "stringData": {"password": name}},
            {"apiVersion": "v1", "kind": "Service", "spec": {"ports": ports}},
            deployment,
        ]
        for body in bodies[-4:]:
            body["metadata"] = {"name": name, "namespace": namespace}
    return [Manifest(body) for body in bodies]


def mark(manifests: list[Manifest], application_id: str) -> list[Manifest]:
    return add_builtin(manifests, piped_id="bench", application_id=application_id)


def write_list(manifests: list[Manifest], folder: Path) -> Path:
    """Write manifests for kubectl."""
    file = folder / "manifests.json"
    items = [manifest.body for manifest in manifests]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return file


def measure_apply(cluster: RealCluster, folder: Path) -> None:
    """Apply new objects, and then the same again."""
    new: dict[str, list[float]] = {"kubectl": [], "plugin": []}
    same: dict[str, list[float]] = {"kubectl": [], "plugin": []}
    with ExitStack() as after:  # deleting takes the API server's time: not between two turns
        for turn in range(TURNS):
            for name in ("kubectl", "plugin") if turn % 2 else ("plugin", "kubectl"):
                namespace = after.enter_context(cluster.making_namespace(f"{name}-{turn}"))
                work = choose_work(name, cluster, namespace, folder)
                new[name].append(work())
                same[name].append(work())
    for what, times, bar in (
        (f"applying {APPLIED} new manifests", new, Bar("<=", 0.8)),
        (f"applying {APPLIED} unchanged manifests", same, None),
    ):
        kubectl, ours = (statistics.median(times[name]) for name in ("kubectl", "plugin"))
        info(f"kubernetes: kubectl, {what}", kubectl * 1000, "ms")
        info(f"kubernetes: plugin, {what}", ours * 1000, "ms")
        report(f"kubernetes: plugin / kubectl, {what}", ours / kubectl, "x", bar)


def choose_work(
    name: str, cluster: RealCluster, namespace: Namespace, folder: Path
) -> Callable[[], float]:
    """Return what applies the manifests once and says how long it took."""
    manifests = mark(make_manifests(namespace.name, APPLIED), namespace.name)
    if name == "plugin":
        return lambda: asyncio.run(
            time_connected(cluster, lambda client: apply_all(client, manifests))
        )
    file = write_list(manifests, folder)

    def run_kubectl() -> float:
        started = time.perf_counter()
        cluster.run_kubectl("apply", "--server-side", "--force-conflicts", "-f", str(file))
        return time.perf_counter() - started

    return run_kubectl


async def time_connected(
    cluster: RealCluster, work: Callable[[Cluster], Awaitable[object]]
) -> float:
    """Return how long it took to connect and to do something."""
    started = time.perf_counter()
    connection = await load_connection(kubeconfig=str(cluster.kubeconfig))
    async with await Cluster.connect(connection) as client:
        await work(client)
        return time.perf_counter() - started


async def apply_all(client: Cluster, manifests: list[Manifest]) -> None:
    applied = await apply_manifests(client, manifests, log=StageLog(Unheard()))
    assert len(applied.objects) == len(manifests)


def measure_drift(cluster: RealCluster, folder: Path) -> None:
    """Compare objects of which a few differ from git."""
    times: dict[str, list[float]] = {"kubectl": [], "plugin": [], "again": []}
    with cluster.making_namespace("drift") as namespace:
        manifests = make_manifests(namespace.name, COMPARED)
        marked = mark(manifests, namespace.name)
        asyncio.run(time_connected(cluster, lambda client: apply_all(client, marked)))
        for index in range(DRIFTED):
            change = {"data": {"key-0": "changed by hand"}}
            namespace.api.patch("v1", "ConfigMap", f"web-{index}", namespace.name, change)
        file = write_list(marked, folder)
        for _ in range(TURNS):
            times["kubectl"].append(time_kubectl_diff(cluster, file))
            first, again = asyncio.run(time_drift(cluster, namespace.name, manifests))
            times["plugin"].append(first)
            times["again"].append(again)
    kubectl, ours, again = (statistics.median(each) for each in times.values())
    info(f"kubernetes: kubectl diff --server-side of {COMPARED} objects", kubectl * 1000, "ms")
    info(f"kubernetes: plugin, drift of {COMPARED} objects, from nothing", ours * 1000, "ms")
    info(f"kubernetes: plugin, drift of {COMPARED} objects, asked again", again * 1000, "ms")
    info("kubernetes: plugin / kubectl, drift", ours / kubectl, "x")


def time_kubectl_diff(cluster: RealCluster, file: Path) -> float:
    started = time.perf_counter()
    try:
        cluster.run_kubectl("diff", "--server-side", "--force-conflicts", "-f", str(file))
    except subprocess.CalledProcessError as error:
        if error.returncode != 1 or error.stdout.count("changed by hand") != DRIFTED:
            raise AssertionError(error.stderr) from None
    return time.perf_counter() - started


async def time_drift(
    cluster: RealCluster, application_id: str, manifests: list[Manifest]
) -> tuple[float, float]:
    """Return how long a comparison took, listing everything first, and how long the next one."""

    async def load() -> list[Manifest]:
        return manifests

    started = time.perf_counter()
    connection = await load_connection(kubeconfig=str(cluster.kubeconfig))
    async with await Cluster.connect(connection) as client:

        async def connect(_target: DeployTarget) -> Cluster:
            return client

        states = LiveStates(connect)
        target = deploy_target(Kubernetes, "bench", {})
        question = DriftQuestion(
            application_id=application_id,
            piped_id="bench",
            target="bench",
            commit="",
            stamp=b"",
            options=KubernetesOptions(),
            ignored={},
            load=load,
        )
        detector = DriftDetector(states)
        times = []
        for _ in range(2):
            view = (await states.read(application_id, target)).data
            assert isinstance(view, LiveView)
            found = await detector.detect(question, view, client)
            assert found.status is SyncStatus.OUT_OF_SYNC, found
            times.append(time.perf_counter() - started)
            started = time.perf_counter()
    return times[0], times[1]


def measure_watch(cluster: RealCluster) -> None:
    """Hold many pods, and follow their changes."""
    with cluster.making_namespace("watched") as namespace:
        create_pods(namespace)
        watcher = subprocess.Popen(
            [sys.executable, str(WATCHER), str(cluster.kubeconfig)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            listed = read_facts(watcher)
            assert listed["objects"] >= PODS, listed
            held = listed["now_mib"] - listed["before_mib"]
            info("kubernetes: watch without objects, private memory", listed["before_mib"], "MiB")
            info(f"kubernetes: {PODS} pods add, private memory", held, "MiB")
            whole = f"kubernetes: watch with {PODS} pods, private memory"
            report(whole, listed["now_mib"], "MiB", Bar("<=", 80))
            change_pods(namespace)
            changed = read_facts(watcher)
            used = (changed["cpu_seconds"] - listed["cpu_seconds"]) / (EVENTS / 1000)
            info("kubernetes: CPU time of the watch per 1,000 events", used * 1000, "ms")
        finally:
            watcher.kill()
            watcher.communicate()


def read_facts(watcher: "subprocess.Popen[str]") -> dict[str, float]:
    assert watcher.stdout is not None
    readable, _, _ = select.select([watcher.stdout], [], [], WAIT_SECONDS)
    assert readable, "the watch says nothing"
    facts: dict[str, float] = json.loads(watcher.stdout.readline())
    return facts


def create_pods(namespace: Namespace) -> None:
    """Create pods that nobody schedules: they are to be listed, not to run."""
    names = [f"pod-{number:05}" for number in range(PODS)] + ["last"]
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda name: namespace.api.create(make_pod(namespace.name, name)), names))


def make_pod(namespace: str, name: str) -> dict[str, Any]:
    environment = [{"name": f"SETTING_{key}", "value": f"value {key}" * 4} for key in range(20)]
    container = {"name": "web", "image": "web:1", "env": environment}
    pod = Manifest(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"schedulerName": "nobody", "containers": [container]},
        }
    )
    owner = "last" if name == "last" else f"application-{hash(name) % 500}"
    return add_builtin([pod], piped_id="bench", application_id=owner)[0].body


def change_pods(namespace: Namespace) -> None:
    """Change so many pods, and then the one whose change the watcher tells."""

    def change(name: str) -> None:
        labels = {"metadata": {"labels": {"changed": "yes"}}}
        namespace.api.patch("v1", "Pod", name, namespace.name, labels)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(change, [f"pod-{number:05}" for number in range(EVENTS - 1)]))
    change("last")


if __name__ == "__main__":
    main()
