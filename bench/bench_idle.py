# SPDX-License-Identifier: Apache-2.0
"""What an agent with one application costs while nothing happens, with and without its plugins."""

import asyncio
import tempfile
from pathlib import Path

from report import Bar, info, report
from world import cpu_seconds, world

SETTLE_SECONDS = 65
IDLE_SECONDS = 60

APPLICATION = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: hello
  pipeline:
    stages:
      - name: SCRIPT_RUN
        with:
          run: echo hello
"""


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder:
        async with world(Path(folder)) as running:
            running.write("hello/app.pipecd.yaml", APPLICATION)
            head = running.commit("add an application")
            await running.add_application("hello")
            await running.deployments_of(head, 1, completed=True)
            # Returned trees are cleaned and an idle shim ends within a minute: not idling yet.
            await asyncio.sleep(SETTLE_SECONDS)
            agent, server = [running.piped.pid], [running.server.pid]
            plugins = [pid for pid in running.agent_pids() if pid != running.piped.pid]
            before = [cpu_seconds(each) for each in (agent, plugins, server)]
            await asyncio.sleep(IDLE_SECONDS)  # measured is a time in which nothing happens
            after = [cpu_seconds(each) for each in (agent, plugins, server)]
    minutes = IDLE_SECONDS / 60
    spent = [(end - start) / minutes for start, end in zip(before, after, strict=True)]
    report("idle-agent-cpu", spent[0], "s/min", Bar("<=", 0.2))
    info("idle-plugins-cpu", spent[1], "s/min")
    info("idle-server-cpu", spent[2], "s/min")


if __name__ == "__main__":
    asyncio.run(main())
