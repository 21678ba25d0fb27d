# SPDX-License-Identifier: Apache-2.0
"""A log of 50 MB that somebody follows while it is written: memory of the server, and all lines.

A real server on SQLite and on PostgreSQL. The lines are reported as a piped reports those of its
plugins, through its spool; a client follows them with FollowStageLog at the same time.

    python bench/bench_followed_log.py [--stores sqlite,postgresql]
"""

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_planes import ServerProcess, Site, register, running_site
from report import Bar, info, report

from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.report.logs import SpooledStageLogs, StageKey
from pipecd_wire.model.deployment_pb2 import STAGE_SUCCESS, PipelineStage
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.api.api_pb2_grpc import DeploymentServiceStub
from pipecd_wire.pipedservice.service_pb2 import (
    ReportDeploymentPlannedRequest,
    ReportStageStatusChangedRequest,
)
from pipecd_wire.rpc import stream

DEPLOYMENT = "deployment-0"
LINE_BYTES = 80
LINES_OF_REPORT = 500
REPORTS = 1250
"""50 MB of text."""
WARM_UP = 250
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Both sides of a log: the piped that reports it, and the client that follows it."""

    control: ControlPlane
    logs: SpooledStageLogs
    reader: Any


async def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--stores", default="sqlite,postgresql")
    stores = arguments.parse_args().stores
    for store in ("sqlite", "postgresql"):
        if store in stores:
            async with running_site(store, servers=1) as site:
                await measure(site, store)


async def measure(site: Site, store: str) -> None:
    [piped] = await register(site, 1, with_application=True)
    control = ControlPlane(await site.connect_piped(0, piped))
    stages = [
        PipelineStage(id=each, name="SCRIPT_RUN", created_at=1, updated_at=1)
        for each in ("warm-up", "measured")
    ]
    planned = ReportDeploymentPlannedRequest(deployment_id=DEPLOYMENT, stages=stages)
    await control.call(control.service.ReportDeploymentPlanned, planned)
    reader = DeploymentServiceStub(await site.connect_admin(0))
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder:
        spooled = SpooledStageLogs(control, Path(folder), flush=PATIENCE_SECONDS)
        async with spooled.open() as logs:
            ends = Ends(control=control, logs=logs, reader=reader)
            # Whatever is loaded once is not growth.
            await write_and_follow(ends, "warm-up", WARM_UP)
            began = time.perf_counter()
            async with watched_memory(site.servers[0]) as seen:
                count = await write_and_follow(ends, "measured", REPORTS)
    seconds = time.perf_counter() - began
    label = f"followed-log.{store}: 50 MB followed while written"
    wanted = REPORTS * LINES_OF_REPORT
    report(f"{label}, growth of the server", max(seen) - seen[0], "MiB", Bar("<=", 32.0))
    report(f"{label}, lines that have arrived", count / wanted * 100, "%", Bar(">=", 100.0))
    info(f"{label}, from the first line to the last", seconds, "s")


async def write_and_follow(ends: Ends, stage_id: str, reports: int) -> int:
    """Returns how many lines have arrived, each once and in order."""
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(write(ends, stage_id, reports))
        return await follow(ends, stage_id)


async def write(ends: Ends, stage_id: str, reports: int) -> None:
    """Reports the lines and then the end of the stage, as a piped does."""
    key = StageKey(deployment_id=DEPLOYMENT, stage_id=stage_id, retried_count=0)
    for number in range(reports):
        await ends.logs.report(key, make_blocks(number))
        await asyncio.sleep(0)  # the spool never waits: without this nothing is sent meanwhile
    await ends.logs.checkpoint(key, [], completed=True)
    await ends.logs.wait_delivered(key)
    over = ReportStageStatusChangedRequest(
        deployment_id=DEPLOYMENT, stage_id=stage_id, status=STAGE_SUCCESS, completed_at=1
    )
    await ends.control.call(ends.control.service.ReportStageStatusChanged, over)


async def follow(ends: Ends, stage_id: str) -> int:
    request = api_pb2.FollowStageLogRequest(deployment_id=DEPLOYMENT, stage_id=stage_id)
    count = 0
    async with aclosing(stream(ends.reader.FollowStageLog, request)) as parts:
        async for part in parts:
            for block in part.blocks:
                if not block.log.startswith(f"{count:08d} "):
                    raise AssertionError(f"after {count} lines came {block.log!r}")
                count += 1
    return count


def make_blocks(number: int) -> list[LogBlock]:
    start = number * LINES_OF_REPORT
    return [
        LogBlock(index=line, log=f"{line:08d} ".ljust(LINE_BYTES, "x"), created_at=1)
        for line in range(start, start + LINES_OF_REPORT)
    ]


@asynccontextmanager
async def watched_memory(server: ServerProcess) -> AsyncIterator[list[float]]:
    """Yields what the server takes, in MiB, first now and then several times a second."""
    seen = [server.read_mebibytes()]

    async def watch() -> None:
        while True:
            await asyncio.sleep(0.1)
            seen.append(server.read_mebibytes())

    watching = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


if __name__ == "__main__":
    asyncio.run(main())
