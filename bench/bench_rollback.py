# SPDX-License-Identifier: Apache-2.0
"""How long a person who rolls back waits: from the call to the first stage that runs.

An application with two versions is rolled back to the one, then to the other, and so on. The time
begins with the call (`pipectl application rollback` makes the same one) and ends with the first
command of the first stage: the call, the push to the agent, the deployment's creation, its plan,
its files and the script's start are all in it. Each roll-back begins when nothing else runs.

Beside each one the floor is measured, the same steps by hand: a call, a checkout of the commit, a
shell. What a busy machine does to the time it does to both.
"""

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bench_hundred import check
from report import Bar, info, report
from world import World, world

from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import call

ROUNDS = 60
PAUSE_SECONDS = 0.5
"""Between two roll-backs: the one before has come to rest."""

APPLICATION = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: rolled
  pipeline:
    stages:
      - name: SCRIPT_RUN
        with:
          run: date +%s%N > "{out}/first-$SR_DEPLOYMENT_ID"
"""


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder:
        async with world(Path(folder)) as running:
            await measure(running)


async def measure(running: World) -> None:
    out = running.root / "out"
    out.mkdir()
    running.write("rolled/app.pipecd.yaml", APPLICATION.format(out=out))
    running.write("rolled/number.txt", "1\n")
    head = running.commit("add the application")
    application_id = await running.add_application("rolled")
    versions = await running.deployments_of(head, 1, completed=True)
    running.write("rolled/number.txt", "2\n")
    versions += await running.deployments_of(running.commit("change it"), 1, completed=True)
    check(versions)

    answered, begun, floors = [], [], []
    for number in range(ROUNDS + 1):
        await asyncio.sleep(PAUSE_SECONDS)
        request = api_pb2.RollBackApplicationRequest(
            application_id=application_id,
            deployment_id=versions[number % 2].id,
            reason=f"round {number}",
        )
        started = time.time_ns()
        made = await call(running.applications.RollBackApplication, request)
        answered.append((time.time_ns() - started) / 1e6)
        begun.append((await wait_for(out / f"first-{made.deployment_id}") - started) / 1e6)
        check([await running.until(made.deployment_id, lambda _: False)])
        floors.append(await measure_floor(running, made.commit_hash))
    answered, begun = answered[1:], begun[1:]  # the first one also warms everything up
    report("rollback-to-running-p95", find_p95(begun), "ms", Bar("<=", 300))
    info("rollback-to-running-median", statistics.median(begun), "ms")
    info("rollback-to-running-longest", max(begun), "ms")
    info("rollback-by-floor-median", statistics.median(begun) / statistics.median(floors), "x")
    info("rollback-floor-median", statistics.median(floors), "ms")
    info("rollback-answered-p95", find_p95(answered), "ms")
    info("rollback-load-average", os.getloadavg()[0], "processes")


async def measure_floor(running: World, commit: str) -> float:
    """Returns how long it takes by hand, in milliseconds."""
    with tempfile.TemporaryDirectory(dir=running.root) as folder:
        started = time.perf_counter()
        await call(running.api.ListApplications, pb.ListApplicationsRequest(limit=1))
        tree = f"{folder}/tree"
        await asyncio.to_thread(running.git, "worktree", "add", "-q", "--detach", tree, commit)
        shell = ["/bin/sh", "-l", "-c", f"date +%s%N > {folder}/out"]
        await asyncio.to_thread(subprocess.run, shell, check=True)
        took = (time.perf_counter() - started) * 1000
        running.git("worktree", "remove", "--force", tree)
    return took


async def wait_for(file: Path) -> int:
    """Wait until a script has written when it began, and return that, in nanoseconds."""
    async with asyncio.timeout(60):
        while not (file.exists() and file.read_text().endswith("\n")):
            await asyncio.sleep(0.005)
    return int(file.read_text())


def find_p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


if __name__ == "__main__":
    asyncio.run(main())
