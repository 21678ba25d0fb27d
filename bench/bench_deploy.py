# SPDX-License-Identifier: Apache-2.0
"""How long a person waits: commit to running, stage to stage, approve to next, cancel to gone.

Times are taken by the scripts themselves (nanoseconds written by the first and the last command),
so they include everything in between. Beside them the floor: the same steps done by hand with git,
a process and one RPC.
"""

import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path

from report import Bar, info, report
from world import World, world

from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import call

ROUNDS = 20

APPLICATION = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: waits
  pipeline:
    stages:
      - name: SCRIPT_RUN
        with:
          run: date +%s%N > "{out}/first-$SR_TRIGGERED_COMMIT_HASH"
      - name: SCRIPT_RUN
        with:
          run: |
            date +%s%N > "{out}/begin-$SR_TRIGGERED_COMMIT_HASH"
            date +%s%N > "{out}/end-$SR_TRIGGERED_COMMIT_HASH"
      - name: SCRIPT_RUN
        with:
          run: date +%s%N > "{out}/next-$SR_TRIGGERED_COMMIT_HASH"
      - name: WAIT_APPROVAL
      - name: SCRIPT_RUN
        with:
          run: |
            date +%s%N > "{out}/approved-$SR_TRIGGERED_COMMIT_HASH"
            echo $$ > "{out}/pid-$SR_TRIGGERED_COMMIT_HASH"
            mv "{out}/pid-$SR_TRIGGERED_COMMIT_HASH" "{out}/sleeping-$SR_TRIGGERED_COMMIT_HASH"
            exec sleep 300
"""


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder:
        async with world(Path(folder)) as running:
            await measure(running)


async def measure(running: World) -> None:
    out = running.root / "out"
    out.mkdir()
    running.write("waits/app.pipecd.yaml", APPLICATION.format(out=out))
    running.commit("add the application")
    await running.add_application("waits")
    head = running.git("rev-parse", "HEAD").strip()
    steps = [await one_round(running, out, head)]  # the first one also warms everything up
    for number in range(ROUNDS):
        running.write("waits/number.txt", f"{number}\n")
        started = time.time_ns()
        head = running.commit(f"change {number}")
        committed = time.time_ns()
        steps.append(await one_round(running, out, head, started=committed))
        info("commit itself", (committed - started) / 1e6, "ms") if number == 0 else None
    steps = steps[1:]
    report("commit-to-seen-p95", p95(s["seen"] for s in steps), "ms", None)
    report("commit-to-created-p95", p95(s["created"] for s in steps), "ms", None)
    report("commit-to-planned-p95", p95(s["planned"] for s in steps), "ms", None)
    report("commit-to-running-p95", p95(s["running"] for s in steps), "ms", Bar("<=", 1000))
    report("stage-to-stage-p95", p95(s["stage"] for s in steps), "ms", Bar("<=", 50))
    report("stage-to-stage-median", statistics.median(s["stage"] for s in steps), "ms", None)
    report("approve-to-next-p95", p95(s["approve"] for s in steps), "ms", Bar("<=", 300))
    report("cancel-to-gone-p95", p95(s["cancel"] for s in steps), "ms", Bar("<=", 2000))
    floor_first, floor_stage = await floor(running)
    report("floor-commit-to-running", floor_first, "ms", None)
    report("floor-stage-to-stage", floor_stage, "ms", None)


async def one_round(
    running: World, out: Path, head: str, *, started: int | None = None
) -> dict[str, float]:
    """One deployment from its commit to its cancelled end; times in milliseconds."""
    started = started or time.time_ns()
    [deployment] = await running.deployments_of(head, 1)
    created = time.time_ns()
    await running.until(deployment.id, lambda d: d.status != deployment_pb2.DEPLOYMENT_PENDING)
    planned = time.time_ns()
    await running.until(deployment.id, waits_for_approval)
    approving = time.time_ns()
    await call(
        running.deployments.ApproveStage, api_pb2.ApproveStageRequest(deployment_id=deployment.id)
    )
    pid = await sleeping(out / f"sleeping-{head}")
    cancelling = time.time_ns()
    await call(
        running.deployments.CancelDeployment,
        api_pb2.CancelDeploymentRequest(deployment_id=deployment.id),
    )
    await gone(pid)
    ended = time.time_ns()
    await running.until(deployment.id, lambda _: False)

    def written(name: str) -> int:
        return int((out / f"{name}-{head}").read_text())

    return {
        "seen": (seen(running.root / "piped.log", head) - started) / 1e6,
        "created": (created - started) / 1e6,
        "planned": (planned - started) / 1e6,
        "running": (written("first") - started) / 1e6,
        "stage": (written("next") - written("end")) / 1e6,
        "approve": (written("approved") - approving) / 1e6,
        "cancel": (ended - cancelling) / 1e6,
    }


def waits_for_approval(deployment: deployment_pb2.Deployment) -> bool:
    return any(
        stage.status == deployment_pb2.STAGE_RUNNING
        and stage.available_operation == deployment_pb2.MANUAL_OPERATION_APPROVE
        for stage in deployment.stages
    )


def seen(log: Path, commit: str) -> int:
    """When piped saw the commit, in nanoseconds; its log has milliseconds."""
    for line in log.read_text().splitlines():
        if '"git.moved"' in line and commit in line:
            return int(datetime.fromisoformat(json.loads(line)["time"]).timestamp() * 1e9)
    raise AssertionError(f"piped's log does not say when it saw {commit}")


async def sleeping(file: Path) -> int:
    async with asyncio.timeout(60):
        while not file.exists():
            await asyncio.sleep(0.002)
    return int(file.read_text())


async def gone(pid: int) -> None:
    async with asyncio.timeout(60):
        while _alive(pid):
            await asyncio.sleep(0.002)


def _alive(pid: int) -> bool:
    """Does it still run? One that has ended and waits to be reaped by init does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def floor(running: World) -> tuple[float, float]:
    """By hand: see the commit, read the file, check it out, one RPC, one shell; then one more."""
    first: list[float] = []
    stage: list[float] = []
    for number in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=running.root) as tree:
            started = time.perf_counter()
            head = running.git("rev-parse", "HEAD").strip()
            running.git("show", f"{head}:waits/app.pipecd.yaml")
            running.git("worktree", "add", "--quiet", "--detach", f"{tree}/tree", head)
            await call(running.api.ListApplications, pb.ListApplicationsRequest(limit=1))
            subprocess.run(["/bin/sh", "-l", "-c", f"date +%s%N > {tree}/out"], check=True)
            first.append((time.perf_counter() - started) * 1000)
            started = time.perf_counter()
            await call(running.api.ListApplications, pb.ListApplicationsRequest(limit=1))
            subprocess.run(["/bin/sh", "-l", "-c", f"date +%s%N > {tree}/out{number}"], check=True)
            stage.append((time.perf_counter() - started) * 1000)
            running.git("worktree", "remove", "--force", f"{tree}/tree")
    return statistics.median(first), statistics.median(stage)


def p95(values: object) -> float:
    ordered = sorted(values)  # type: ignore[call-overload]
    return float(ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))])


if __name__ == "__main__":
    asyncio.run(main())
