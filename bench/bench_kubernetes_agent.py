# SPDX-License-Identifier: Apache-2.0
"""A whole agent on a real cluster: from a commit to its canary, and 300 applications by one commit.

Control plane, piped and plugins are processes of their own; what is asked is git and the cluster.
Beside the 300 applications stand the CPU time that each program used for them, and the same reads
and writes by the plugin's client alone: what the cluster itself can do.
"""

import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from bench_hundred import check
from pipecd_plugin_kubernetes.apply import apply_manifests
from pipecd_plugin_kubernetes.client import Cluster, load_connection
from pipecd_plugin_kubernetes.manifest import Manifest
from report import Bar, Unheard, info, report
from world import World, children, cpu_seconds, make_plugin_entry, pss_mib, world

from pipecd_sdk import StageLog
from pipecd_test_support.kubernetes.api import Object
from pipecd_test_support.kubernetes.cache import MissingError
from pipecd_test_support.kubernetes.executables import find_executables
from pipecd_test_support.kubernetes.real_cluster import Namespace, running_cluster
from pipecd_test_support.kubernetes.workloads import make_deployment

APPLICATIONS = 300
CANARIES = 20
CLUSTER_PROGRAMS = {"kube-apiserver", "etcd"}


def main() -> None:
    try:
        find_executables()
    except MissingError as error:
        print(f"bench kubernetes-agent: skipped: {error}", flush=True)
        return
    with (
        tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder,
        running_cluster() as cluster,
        cluster.making_namespace("bench") as namespace,
    ):
        asyncio.run(measure(Path(folder), cluster.kubeconfig, namespace))


async def measure(folder: Path, kubeconfig: Path, namespace: Namespace) -> None:
    kubernetes = make_plugin_entry("kubernetes", {"kubeConfigPath": str(kubeconfig)})
    async with world(folder, plugins=[kubernetes]) as running:
        await measure_canary(running, namespace)
        await measure_many(running, namespace)
        await measure_floor(kubeconfig, namespace)


def write_application(
    running: World, name: str, namespace: Namespace, body: Object, stages: list[Object]
) -> None:
    """Write an application of one manifest."""
    options = {"input": {"namespace": namespace.name}}
    spec: Object = {"name": name, "plugins": {"kubernetes": options}}
    if stages:
        spec["pipeline"] = {"stages": stages}
    whole = {"apiVersion": "pipecd.dev/v1beta1", "kind": "Application", "spec": spec}
    running.write(f"{name}/app.pipecd.yaml", json.dumps(whole))
    running.write(f"{name}/manifest.yaml", json.dumps(body))


async def measure_canary(running: World, namespace: Namespace) -> None:
    """From the end of `git commit` to the moment when the API server has the new canary."""
    stages: list[Object] = [
        {"name": "K8S_CANARY_ROLLOUT", "with": {"replicas": 1}},
        {"name": "K8S_PRIMARY_ROLLOUT"},
        {"name": "K8S_CANARY_CLEAN"},
    ]
    write_application(running, "web", namespace, make_deployment("web", image="web:0"), stages)
    head = running.commit("begin")
    await running.add_application("web", target="main")
    check(await running.deployments_of(head, 1, completed=True))
    times = []
    for turn in range(1, CANARIES + 1):
        image = f"web:{turn}"
        body = make_deployment("web", image=image)
        write_application(running, "web", namespace, body, stages)
        head = running.commit(f"version {turn}")
        started = time.monotonic()

        def has_image(found: Object | None, image: str = image) -> bool:
            containers = (found or {}).get("spec", {}).get("template", {}).get("spec", {})
            return any(each["image"] == image for each in containers.get("containers", ()))

        canary = ("apps/v1", "Deployment", "web-canary", namespace.name)
        await asyncio.to_thread(namespace.api.wait, *canary, is_right=has_image)
        times.append(time.monotonic() - started)
        check(await running.deployments_of(head, 1, completed=True))
    info("kubernetes-agent: commit to canary applied, median", statistics.median(times), "s")
    slow = statistics.quantiles(times, n=20)[-1]
    report("kubernetes-agent: commit to canary applied, p95", slow, "s", Bar("<=", 2.0))


async def measure_many(running: World, namespace: Namespace) -> None:
    """Many small applications, all of them changed by one commit."""
    names = [f"app-{number:03}" for number in range(APPLICATIONS)]

    def write_all(value: str) -> str:
        for name in names:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            write_application(running, name, namespace, {**body, "data": {"version": value}}, [])
        return running.commit(f"version {value} of all")

    head = write_all("0")
    for name in names:
        await running.add_application(name, target="main")
    check(await running.deployments_of(head, APPLICATIONS, completed=True))
    before = read_cpu(running)
    head = write_all("1")
    started = time.monotonic()
    check(await running.deployments_of(head, APPLICATIONS, completed=True))
    rate = APPLICATIONS / (time.monotonic() - started)
    report(f"kubernetes-agent: {APPLICATIONS} applications by one commit", rate, "/s", Bar(">=", 4))
    for name, seconds in read_cpu(running).items():
        each = (seconds - before[name]) / APPLICATIONS * 1000
        info(f"kubernetes-agent: CPU time per application, {name}", each, "ms")
    used = pss_mib(running.agent_pids())
    report("kubernetes-agent: agent and plugins after it", used, "MiB", Bar("<=", 400))


def read_cpu(running: World) -> dict[str, float]:
    """CPU seconds so far, by program; git is piped's."""
    plugins = [pid for pid in children(running.piped.pid) if "pipecd-plugin-" in read_command(pid)]
    cluster = [pid for pid in children(os.getpid()) if CLUSTER_PROGRAMS & set(read_words(pid))]
    return {
        "piped": cpu_seconds([running.piped.pid]),
        "plugins": cpu_seconds(plugins),
        "control plane": cpu_seconds([running.server.pid]),
        "API server and etcd": cpu_seconds(cluster),
    }


def read_words(pid: int) -> list[str]:
    """The words of a process's command, none when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def read_command(pid: int) -> str:
    return " ".join(read_words(pid))


async def measure_floor(kubeconfig: Path, namespace: Namespace) -> None:
    """Apply a change to each of as many objects, and nothing else."""
    connection = await load_connection(kubeconfig=str(kubeconfig))
    async with await Cluster.connect(connection) as client:
        for version in ("0", "1"):
            started = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                for number in range(APPLICATIONS):
                    body: Object = {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "metadata": {"name": f"floor-{number:03}", "namespace": namespace.name},
                        "data": {"version": version},
                    }
                    log = StageLog(Unheard())
                    tasks.create_task(apply_manifests(client, [Manifest(body)], log=log))
            rate = APPLICATIONS / (time.monotonic() - started)
    info(f"kubernetes-agent: the same {APPLICATIONS} writes by the client alone", rate, "/s")


if __name__ == "__main__":
    main()
