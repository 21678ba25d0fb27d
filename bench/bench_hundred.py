# SPDX-License-Identifier: Apache-2.0
"""A hundred script-only applications in one repository: a commit for all, idle cost, memory."""

import asyncio
import tempfile
import time
from pathlib import Path

from report import Bar, report
from world import World, cpu_seconds, pss_mib, world

from pipecd_wire.model import deployment_pb2

COUNT = 100
SETTLE_SECONDS = 65
IDLE_SECONDS = 60

APPLICATION = """\
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


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder:
        async with world(Path(folder)) as running:
            await measure(running)


async def measure(running: World) -> None:
    for number in range(COUNT):
        running.write(f"app-{number:03d}/app.pipecd.yaml", APPLICATION.format(number=number))
        running.write(f"app-{number:03d}/number.txt", "0\n")
    head = running.commit("add a hundred applications")
    for number in range(COUNT):
        await running.add_application(f"app-{number:03d}")
    first = await running.deployments_of(head, COUNT, completed=True)
    check(first)

    for number in range(COUNT):
        running.write(f"app-{number:03d}/number.txt", "1\n")
    head = running.commit("touch all")
    started = time.monotonic()
    check(await running.deployments_of(head, COUNT, completed=True))
    report("hundred-all-finished", time.monotonic() - started, "s", Bar("<=", 15))

    # Returned trees are cleaned and an idle shim ends within a minute: that is not idling yet.
    await asyncio.sleep(SETTLE_SECONDS)
    agent, server = running.agent_pids(), [running.server.pid]
    before = cpu_seconds(agent), cpu_seconds(server)
    await asyncio.sleep(IDLE_SECONDS)  # what is measured is a minute in which nothing happens
    after = cpu_seconds(agent), cpu_seconds(server)
    per_minute = 60 / IDLE_SECONDS
    report("hundred-idle-agent-cpu", (after[0] - before[0]) * per_minute, "s/min", Bar("<=", 1))
    report("hundred-idle-server-cpu", (after[1] - before[1]) * per_minute, "s/min", Bar("<=", 1))
    report("hundred-agent-pss", pss_mib(agent), "MiB", Bar("<=", 116))
    report("hundred-server-pss", pss_mib(server), "MiB", Bar("<=", 80))


def check(deployments: list[deployment_pb2.Deployment]) -> None:
    wrong = [d for d in deployments if d.status != deployment_pb2.DEPLOYMENT_SUCCESS]
    assert not wrong, f"{len(wrong)} deployments failed: {wrong[0].status_reason}"


if __name__ == "__main__":
    asyncio.run(main())
