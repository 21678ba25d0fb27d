# SPDX-License-Identifier: Apache-2.0
"""How fast a script's output becomes a stage log, and how soon a line is seen by who follows it.

Lines per second from the script's first command to the sealed log in the control plane, the plugin
and piped in between; beside it the floor, the same lines through `cat` into a file. Then one line
now and then, each with the time it was written at: what is left until a follower has it.
"""

import asyncio
import statistics
import subprocess
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from report import Bar, info, report
from world import World, cpu_seconds, world

from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import stream

LINES = 300_000
ROUNDS = 3
SINGLE_LINES = 20

FLOOD = f"yes 'one short line of output' | head -n {LINES}"

APPLICATION = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: {name}
  pipeline:
    stages:
      - name: SCRIPT_RUN
        with:
          run: |
            {run}
"""


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder:
        async with world(Path(folder)) as running:
            await measure(running)


async def measure(running: World) -> None:
    started = running.root / "started"
    trickle = f"for n in $(seq {SINGLE_LINES}); do date +%s%N; sleep 0.3; done"
    add(running, "flood", f"date +%s%N > {started}; {FLOOD}")
    await running.add_application("flood")
    commit = running.commit("flood")
    rates = []
    used = cpu(running)
    for number in range(ROUNDS):
        if number:
            running.write("flood/number.txt", f"{number}\n")
            commit = running.commit(f"flood {number}")
        [deployment] = await running.deployments_of(commit, 1)
        arrived = await followed(running, deployment.id)
        count = sum(len(lines) for _, lines in arrived)
        if count < LINES:
            raise AssertionError(f"{count} lines of {LINES} have arrived")
        rates.append(LINES / (arrived[-1][0] - int(started.read_text()) / 1e9))
    report("script-to-log", statistics.median(rates), "lines/s", Bar(">=", 30_000))
    info("floor-cat-to-a-file", floor(running.root / "floor"), "lines/s")
    for name, before, after in zip(("agent", "server"), used, cpu(running), strict=True):
        info(f"{name}-cpu", (after - before) / ROUNDS / LINES * 1e6, "us/line")
    add(running, "trickle", trickle)
    await running.add_application("trickle")
    commit = running.commit("trickle")
    [deployment] = await running.deployments_of(commit, 1)
    waits = [
        (at - int(line) / 1e9) * 1000
        for at, lines in await followed(running, deployment.id)
        for line in lines
        if line.isdigit()
    ]
    report("line-to-reader-median", statistics.median(waits), "ms", Bar("<=", 150))
    info("line-to-reader-max", max(waits), "ms")


def cpu(running: World) -> tuple[float, float]:
    return cpu_seconds(running.agent_pids()), cpu_seconds([running.server.pid])


def add(running: World, name: str, run: str) -> None:
    running.write(f"{name}/app.pipecd.yaml", APPLICATION.format(name=name, run=run))


async def followed(running: World, deployment_id: str) -> list[tuple[float, list[str]]]:
    """The log of the only stage from start to end: when lines arrived, and which."""
    planned = await running.until(
        deployment_id, lambda it: it.status > deployment_pb2.DEPLOYMENT_PENDING
    )
    request = api_pb2.FollowStageLogRequest(
        deployment_id=deployment_id, stage_id=planned.stages[0].id
    )
    parts = stream(running.deployments.FollowStageLog, request)
    async with asyncio.timeout(300), aclosing(parts):
        return [(time.time(), [block.log for block in part.blocks]) async for part in parts]


def floor(file: Path) -> float:
    started = time.perf_counter()
    subprocess.run(["/bin/sh", "-c", f"{FLOOD} | cat > {file}"], check=True)
    return LINES / (time.perf_counter() - started)


if __name__ == "__main__":
    asyncio.run(main())
