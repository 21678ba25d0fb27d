# SPDX-License-Identifier: Apache-2.0
"""The queue: 500 applications by one commit, and how soon a superseded deployment is gone."""

import asyncio
import json
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path

from bench_hundred import check
from report import Bar, info, report
from world import World, cpu_seconds, pss_mib, world

from pipecd_wire.model import deployment_pb2

COUNT = 500
ROUNDS = 40

SCRIPT = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: app-{number:03d}
  pipeline:
    stages:
      - name: SCRIPT_RUN
        with:
          run: cat number.txt
"""

APPROVAL = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: superseded
  queue:
    mode: supersede
  pipeline:
    stages:
      - name: WAIT_APPROVAL
"""


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder:
        async with world(Path(folder)) as running:
            await measure_superseding(running)
            await measure_many(running)


async def measure_superseding(running: World) -> None:
    running.write("superseded/app.pipecd.yaml", APPROVAL)
    head = running.commit("add an application that waits")
    application_id = await running.add_application("superseded")
    [old] = await running.deployments_of(head, 1)
    took = []
    for number in range(ROUNDS):
        await running.until(old.id, waits_for_approval)
        running.write("superseded/number.txt", f"{number}\n")
        started = time.monotonic()
        head = running.commit(f"change {number}")
        ended = await running.until(old.id, lambda _: False)
        took.append(time.monotonic() - started)
        assert ended.status_reason.startswith("superseded by"), ended.status_reason
        [old] = await running.deployments_of(head, 1)
    report("queue-superseded-gone-p95", percentile(took, 95), "s", Bar("<=", 0.5))
    info("queue-superseded-gone-median", statistics.median(took), "s")
    assert application_id


def waits_for_approval(deployment: deployment_pb2.Deployment) -> bool:
    return any(stage.status == deployment_pb2.STAGE_RUNNING for stage in deployment.stages)


async def measure_many(running: World) -> None:
    for number in range(COUNT):
        running.write(f"app-{number:03d}/app.pipecd.yaml", SCRIPT.format(number=number))
        running.write(f"app-{number:03d}/number.txt", "0\n")
    head = running.commit("add many applications")
    for number in range(COUNT):
        await running.add_application(f"app-{number:03d}")
    check(await running.deployments_of(head, COUNT, completed=True))

    for number in range(COUNT):
        running.write(f"app-{number:03d}/number.txt", "1\n")
    pids = [*running.agent_pids(), running.server.pid]
    used = cpu_seconds(pids)
    head = running.commit("touch all")
    started, began = time.monotonic(), time.time()
    done = await running.deployments_of(head, COUNT, completed=True)
    check(done)
    report("queue-500-all-finished", time.monotonic() - started, "s", Bar("<=", 75))
    info("queue-500-cpu-each", (cpu_seconds(pids) - used) / COUNT * 1000, "ms")
    report("queue-500-agent-pss", pss_mib(running.agent_pids()), "MiB", Bar("<=", 200))
    report("queue-500-server-pss", pss_mib([running.server.pid]), "MiB", Bar("<=", 120))
    waits = read_waits(running.root / "piped.log", {each.id for each in done}, began)
    info("queue-500-wait-median", statistics.median(waits), "s")
    report("queue-500-longest-by-median", max(waits) / statistics.median(waits), "x", Bar("<=", 2))


def read_waits(log: Path, deployment_ids: set[str], since: float) -> list[float]:
    """Returns for each deployment how long after the commit it was finished, as piped logs it."""
    found = []
    for line in log.read_text().splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        is_end = event.get("event") == "deployment.finished"
        if is_end and event["deployment"] in deployment_ids:
            found.append(datetime.fromisoformat(event["time"]).timestamp() - since)
    assert len(found) == len(deployment_ids), f"{len(found)} of {len(deployment_ids)} in {log}"
    return found


def percentile(values: list[float], part: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[part - 1]


if __name__ == "__main__":
    asyncio.run(main())
