# SPDX-License-Identifier: Apache-2.0
"""The watch of the Kubernetes plugin in a process of its own, for measuring: memory and CPU time.

    python kubernetes_watcher.py KUBECONFIG

When everything is listed, and then each time the application `last` changes, it prints a line of
JSON: how many objects it keeps, its private memory before and now, the CPU time that it has used.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from pipecd_plugin_kubernetes.client import Cluster, load_connection
from pipecd_plugin_kubernetes.config import AppStateInformer
from pipecd_plugin_kubernetes.livestate import ClusterWatch

LIMIT_SECONDS = 300.0


def private_mib() -> float:
    """Memory that nobody shares with this process."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


async def follow(kubeconfig: str) -> None:
    cluster = await Cluster.connect(await load_connection(kubeconfig=kubeconfig))
    before = private_mib()
    is_listed = False

    def tell(changed: set[str]) -> None:
        if is_listed and "last" in changed:
            facts = {
                "objects": len(watch.store),
                "before_mib": before,
                "now_mib": private_mib(),
                "cpu_seconds": time.process_time(),
            }
            print(json.dumps(facts), flush=True)

    async def connect() -> Cluster:
        return cluster

    watch = ClusterWatch(connect, informer=AppStateInformer(), on_change=tell)
    async with cluster, asyncio.TaskGroup() as tasks:
        watch.start(tasks)
        await watch.wait_ready(limit_seconds=LIMIT_SECONDS)
        is_listed = True
        tell({"last"})


if __name__ == "__main__":
    asyncio.run(follow(sys.argv[1]))
