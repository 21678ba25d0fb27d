# SPDX-License-Identifier: Apache-2.0
"""What a page asks of a large project: 10,000 applications, a log of a million lines, idle tabs.

python bench/bench_console.py [--applications N] [--lines N] [--tabs N]
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

from bench_agents import cpu_seconds, started
from report import Bar, info, report

from pipecd_controlplane.app import control_plane
from pipecd_controlplane.settings import ServerSettings
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipecd.api import api_pb2, logs_pb2
from pipecd_wire.pipecd.api import overview_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2_grpc import ProjectServiceStub
from pipecd_wire.pipecd.api.logs_pb2_grpc import StageLogServiceStub
from pipecd_wire.pipecd.api.overview_pb2_grpc import OverviewServiceStub
from pipecd_wire.rpc import Channel, call, connect, stream

SEARCHES = 100
IDLE_SECONDS = 20.0
PER_CHUNK = 500
TEAMS = 40
Search = pb.SearchApplicationsRequest


async def fill(folder: Path, applications: int, lines: int) -> None:
    """Writes what a project has after a long time."""
    async with control_plane(ServerSettings(data_dir=folder)) as running:
        await add_applications(running.stores, applications)
        await add_log(running.stores, lines)


async def add_applications(stores: Stores, count: int) -> None:
    build = MessageBuilder()
    chance = random.Random(1)  # noqa: S311 - the same each time
    now = int(time.time())

    async def add(number: int) -> None:
        labels = {
            "env": chance.choice(("dev", "staging", "prod")),
            "team": f"team-{number % TEAMS}",
            "kind": chance.choice(("kubernetes", "terraform", "files")),
        }
        application_id, name = f"app-{number}", f"service-{number:05}-{labels['env']}"
        await stores.applications.add(
            build.application(
                id=application_id,
                name=name,
                project_id="default",
                piped_id=f"piped-{number % 5}",
                labels=labels,
            )
        )
        await stores.deployments.add(
            build.deployment(
                id=f"deployment-{number}",
                project_id="default",
                application_id=application_id,
                application_name=name,
                status=chance.choice(
                    (deployment_pb2.DEPLOYMENT_SUCCESS, deployment_pb2.DEPLOYMENT_FAILURE)
                ),
                labels=labels,
                created_at=now,
                updated_at=now,
                completed_at=now,
                stages=[build.stage("s1", status=deployment_pb2.STAGE_SUCCESS)],
            )
        )

    for start in range(0, count, 200):
        await asyncio.gather(*map(add, range(start, min(start + 200, count))))


async def add_log(stores: Stores, count: int) -> None:
    key = LogKey(deployment_id="deployment-0", stage_id="s1")
    for start in range(0, count, PER_CHUNK):
        blocks = [
            LogBlock(index=number + 1, log=f"{number} of a long log", created_at=1)
            for number in range(start, min(start + PER_CHUNK, count))
        ]
        await stores.stage_logs.append("default", key, blocks, completed=False)


async def measure_searches(channel: Channel) -> None:
    stub = OverviewServiceStub(channel)
    begun = time.perf_counter()
    first = await call(stub.SearchApplications, Search(), deadline=60)
    info(f"console.first search among {first.total}", (time.perf_counter() - begun) * 1000, "ms")
    requests = [
        Search(text="service-0012"),
        Search(labels=[Search.LabelChoice(key="env", values=["prod"])]),
        Search(statuses=[pb.FAILED], order=Search.URGENCY),
        Search(text="prod", kinds=["kubernetes"], order=Search.CHANGED),
        Search(labels=[Search.LabelChoice(key="team", values=["team-1", "team-2"])]),
    ]
    times = []
    for number in range(SEARCHES):
        begun = time.perf_counter()
        await call(stub.SearchApplications, requests[number % len(requests)], deadline=60)
        times.append((time.perf_counter() - begun) * 1000)
    info("console.filter answer, median", statistics.median(times), "ms")
    p95 = statistics.quantiles(times, n=20)[-1]
    report("console.filter answer, p95", p95, "ms", Bar("<=", 150.0))
    begun = time.perf_counter()
    await call(stub.GetOverview, pb.GetOverviewRequest(), deadline=60)
    info("console.overview", (time.perf_counter() - begun) * 1000, "ms")


async def measure_log(channel: Channel, lines: int) -> None:
    stub = StageLogServiceStub(channel)
    here: dict[str, Any] = {"deployment_id": "deployment-0", "stage_id": "s1"}
    for name, first in (("the end", 0), ("the middle", lines // 2)):
        begun = time.perf_counter()
        request = logs_pb2.ReadStageLogRequest(**here, first_line=first, count=1000)
        got = await call(stub.ReadStageLog, request, deadline=60)
        seconds = time.perf_counter() - begun
        assert (len(got.blocks), got.total_lines) == (1000, lines)
        report(f"console.1000 of {lines} lines, {name}", seconds, "s", Bar("<=", 0.5))
    begun, line, parts = time.perf_counter(), 1, 0
    while line:
        wanted = logs_pb2.SearchStageLogRequest(**here, text="not there", first_line=line)
        line = (await call(stub.SearchStageLog, wanted, deadline=60)).next_line
        parts += 1
    info(f"console.search in all lines, {parts} parts", time.perf_counter() - begun, "s")


async def measure_idle(
    opened: AsyncExitStack, channel: Channel, process_id: int, tabs: int
) -> None:
    request = api_pb2.WatchChangesRequest(keep_alive_seconds=15)
    for _ in range(tabs):
        answers = stream(ProjectServiceStub(channel).WatchChanges, request)
        await opened.enter_async_context(aclosing(answers))
        await anext(answers)
    used = cpu_seconds(process_id)
    await asyncio.sleep(IDLE_SECONDS)
    each_minute = (cpu_seconds(process_id) - used) / IDLE_SECONDS * 60
    report(f"console.server with {tabs} idle streams", each_minute, "s/min", Bar("<=", 1.0))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--applications", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--tabs", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        await fill(Path(folder), arguments.applications, arguments.lines)
        server, address = await started(folder)
        try:
            key = (Path(folder) / "admin.key").read_text().strip()
            pairs = [("authorization", f"API-KEY {key}")]
            async with (
                connect(address, metadata=lambda: pairs) as channel,
                AsyncExitStack() as opened,
            ):
                await measure_searches(channel)
                await measure_log(channel, arguments.lines)
                await measure_idle(opened, channel, server.pid, arguments.tabs)
        finally:
            server.terminate()
            await server.wait()


if __name__ == "__main__":
    asyncio.run(main())
