# SPDX-License-Identifier: Apache-2.0
"""A soak: 2,000 deployments, one after the other, and what each process keeps of them.

Twenty applications, each with a script, a wait and (one of them) an approval, so that every plugin
has work. Each round is one commit for all of them; the next one follows when all have ended. After
every two hundred deployments everything rests for some seconds, and memory, handles and threads of
the control plane, of piped and of each plugin are read. The first two hundred fill what is meant to
be filled (pools, caches, the page cache of SQLite); from there on nothing may grow.

Memory is what a process has written and has for itself alone (Private_Dirty of its smaps). The rest
of its private memory (Uss) are pages of program files: the kernel can drop them, and they become
private or shared when another program of the same installation ends or starts.

What still grows is not kept by our code: a stream that is cancelled while gRPC reads from it leaves
100 to 600 bytes in grpcio (its issue 43360), which the waiting plugins do once for each stage; the
page caches of SQLite fill to 2 MiB for each connection; garbage in cycles comes and goes.

`--deployments 400` makes a shorter run, `--every 100` reads more often, `--table` prints each
reading.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from bench_hundred import check
from report import Bar, info, report
from world import PLUGINS, World, children, world

from pipecd_model.deployment import COMPLETED
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import call

APPLICATIONS = 20
GROWTH_MIB = 3.0
REST_SECONDS = 4.0
"""Before a reading: logs are flushed, trees are cleaned, connections are closed."""

READINGS = 20
"""Of the handles and threads at each point; the lowest counts, what comes and goes does not."""

APPLICATION = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: {name}
  pipeline:
    stages:
      - name: SCRIPT_RUN
        with:
          run: cat number.txt
      - name: WAIT
        with:
          duration: 10ms
"""

APPROVAL = """\
      - name: WAIT_APPROVAL
"""

APPROVED = "app-000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one process has at one moment."""

    private_mib: float
    handles: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What all processes have after so many deployments."""

    deployments: int
    readings: dict[str, Reading]


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--deployments", type=int, default=2000)
    parser.add_argument("--every", type=int, default=200)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder:
        async with world(Path(folder)) as running:
            started = time.monotonic()
            points = []
            async for point in soak(running, options.deployments, options.every):
                points.append(point)
                print(describe(point), flush=True) if options.table else None
            took = time.monotonic() - started
    info("soak-deployments", options.deployments, "deployments")
    info("soak-took", took, "s")
    info("soak-load-average", os.getloadavg()[0], "processes")
    judge(points)


async def soak(running: World, deployments: int, every: int) -> AsyncIterator[Point]:
    """Deploy again and again; yields what the processes have after every so many."""
    for name in names():
        text = APPLICATION.format(name=name) + (APPROVAL if name == APPROVED else "")
        running.write(f"{name}/app.pipecd.yaml", text)
        running.write(f"{name}/number.txt", "0\n")
    running.commit("add the applications")
    events = running.follow_log()
    for name in names():
        await running.add_application(name)
    await finish_round(running, events)
    for done in range(2 * APPLICATIONS, deployments + APPLICATIONS, APPLICATIONS):
        for name in names():
            running.write(f"{name}/number.txt", f"{done}\n")
        await asyncio.to_thread(running.commit, f"round {done}")
        await finish_round(running, events)
        if done % every == 0:
            await check_last(running, every)
            await asyncio.sleep(REST_SECONDS)
            yield Point(deployments=done, readings=await read_all(running))


def names() -> list[str]:
    return [f"app-{number:03d}" for number in range(APPLICATIONS)]


async def finish_round(running: World, events: AsyncIterator[dict[str, str]]) -> None:
    """Wait until each application has been deployed once; approve the one that asks for it."""
    left = APPLICATIONS
    async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
        async for event in events:
            if event.get("event") == "deployment.triggered" and event["application"] == APPROVED:
                tasks.create_task(approve(running, event["deployment"]))
            left -= event.get("event") == "deployment.finished"
            if left == 0:
                return


async def approve(running: World, deployment_id: str) -> None:
    found = await running.until(deployment_id, is_waiting_for_approval)
    assert found.status not in COMPLETED, found.status_reason
    request = api_pb2.ApproveStageRequest(deployment_id=deployment_id)
    await call(running.deployments.ApproveStage, request)


def is_waiting_for_approval(deployment: deployment_pb2.Deployment) -> bool:
    return any(
        stage.status == deployment_pb2.STAGE_RUNNING
        and stage.available_operation == deployment_pb2.MANUAL_OPERATION_APPROVE
        for stage in deployment.stages
    )


async def check_last(running: World, count: int) -> None:
    """Have all of the last deployments succeeded? The control plane learns it a little later."""
    async with asyncio.timeout(60):
        while True:
            request = pb.ListDeploymentsRequest(limit=count)
            found = (await call(running.api.ListDeployments, request)).deployments
            if all(each.status in COMPLETED for each in found):
                break
            await asyncio.sleep(0.5)
    assert len(found) == count, f"{len(found)} of {count} are listed"
    check(list(found))


async def read_all(running: World) -> dict[str, Reading]:
    """Read the control plane, piped and everything that piped has started and that is there yet."""
    found = {"server": running.server.pid, "piped": running.piped.pid}
    for pid in children(running.piped.pid):
        found.setdefault(describe_process(pid), pid)  # a ready shim is a child of its template
    missing = {*PLUGINS} - {*found}
    assert not missing, f"no process of {missing} in {found}"
    return {name: await read_process(pid) for name, pid in found.items() if name}


def describe_process(pid: int) -> str:
    """Returns the name of a process of piped's, empty if it is gone or none that stays."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    names = {f"pipecd-plugin-{name}": name for name in PLUGINS}
    names |= {"cat-file": "git", "template": "shims"}
    return next((names[Path(word).name] for word in words if Path(word).name in names), "")


async def read_process(pid: int) -> Reading:
    handles, threads = [], []
    for _ in range(READINGS):
        handles.append(len(list(Path(f"/proc/{pid}/fd").iterdir())))
        threads.append(len(list(Path(f"/proc/{pid}/task").iterdir())))
        await asyncio.sleep(REST_SECONDS / READINGS / 4)
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    private = sum(int(line.split()[1]) for line in rollup if line.startswith("Private_Dirty:"))
    return Reading(private_mib=private / 1024, handles=min(handles), threads=min(threads))


def describe(point: Point) -> str:
    cells = [
        f"{name} {each.private_mib:.2f} MiB {each.handles} h {each.threads} t"
        for name, each in point.readings.items()
    ]
    return f"{point.deployments:5}  " + "  ".join(cells)


def judge(points: list[Point]) -> None:
    """Print what each process has grown by from the first reading to the last."""
    first, last = points[0].readings, points[-1].readings
    for name in [name for name in first if name in last]:
        begun, ended = first[name], last[name]
        growth = ended.private_mib - begun.private_mib
        report(f"soak-{name}-memory-growth", growth, "MiB", Bar("<=", GROWTH_MIB))
        info(f"soak-{name}-memory", ended.private_mib, "MiB")
        report(
            f"soak-{name}-handles-growth", ended.handles - begun.handles, "handles", Bar("<=", 0)
        )
        # Pools of threads have a bound, and fill when several need one at the same moment.
        info(f"soak-{name}-threads-growth", ended.threads - begun.threads, "threads")


if __name__ == "__main__":
    asyncio.run(main())
