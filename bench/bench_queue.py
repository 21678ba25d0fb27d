# SPDX-License-Identifier: Apache-2.0
"""The queue: 500 applications by one commit, and how soon a superseded deployment is gone.

An application waits from the commit to the end of its deployment, and its wait is compared with the
median of all. In a line that is served at a constant rate the last one waits twice as long as the
median, whoever serves it: a little less, because nobody is served in the first moment, and more
when the second half is served more slowly than the first (another program needs the machine, or
each deployment costs more the more there are). So two more figures stand beside the ratio: how long
the second half took compared with the first, and, which the machine cannot change, how many that
came later were at most served before one that came earlier. Until their deployments begin they wait
by a larger ratio, by construction too: the first hundred begin at once, which halves the median
and not the longest. Ends are read from the log of piped: asking the control plane for all
deployments at each change would itself slow down the second half.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

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
    running.commit("add many applications")
    events = running.follow_log()
    for number in range(COUNT):
        await running.add_application(f"app-{number:03d}")
    await finish_all(events)

    for number in range(COUNT):
        running.write(f"app-{number:03d}/number.txt", "1\n")
    pids = [*running.agent_pids(), running.server.pid]
    used = cpu_seconds(pids)
    head = running.commit("touch all")
    started, began = time.monotonic(), time.time()
    lives = await finish_all(events)
    check(await running.deployments_of(head, COUNT, completed=True))
    report("queue-500-all-finished", time.monotonic() - started, "s", Bar("<=", 75))
    info("queue-500-cpu-each", (cpu_seconds(pids) - used) / COUNT * 1000, "ms")
    report("queue-500-agent-pss", pss_mib(running.agent_pids()), "MiB", Bar("<=", 200))
    report("queue-500-server-pss", pss_mib([running.server.pid]), "MiB", Bar("<=", 120))
    info("queue-500-load-average", os.getloadavg()[0], "processes")
    judge_fairness(lives, began)


class Life(NamedTuple):
    """When a deployment was created, began, and ended; in seconds, as piped logs it."""

    created: float
    began: float
    ended: float


async def finish_all(events: AsyncIterator[dict[str, str]]) -> list[Life]:
    """Wait until as many deployments as there are applications have been created and ended."""
    times: dict[str, dict[str, float]] = {}
    ended = 0
    async with asyncio.timeout(600):
        async for event in events:
            kind, _, what = event["event"].partition(".")
            if kind == "deployment" and what in ("triggered", "planned", "finished"):
                at = datetime.fromisoformat(event["time"]).timestamp()
                times.setdefault(event["deployment"], {})[what] = at
                ended += what == "finished"
            if ended == COUNT:
                break
    assert len(times) == COUNT, f"{len(times)} deployments, not {COUNT}"
    return [Life(each["triggered"], each["planned"], each["finished"]) for each in times.values()]


def judge_fairness(lives: list[Life], since: float) -> None:
    """Print how long the applications have waited, compared with each other."""
    waits = sorted(life.ended - since for life in lives)
    median = statistics.median(waits)
    info("queue-500-wait-median", median, "s")
    report("queue-500-longest-by-median", waits[-1] / median, "x", Bar("<=", 2))
    info("queue-500-second-half-by-first", (waits[-1] - median) / (median - waits[0]), "x")
    begins = [life.began - since for life in lives]
    info("queue-500-begin-longest-by-median", max(begins) / statistics.median(begins), "x")
    info("queue-500-overtaken-most", count_overtaken(lives), "deployments")


def count_overtaken(lives: list[Life]) -> int:
    """Returns the most deployments that were created after one and ended before it."""
    ends = [life.ended for life in sorted(lives)]
    return max(sum(later < end for later in ends[place:]) for place, end in enumerate(ends))


def percentile(values: list[float], part: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[part - 1]


if __name__ == "__main__":
    asyncio.run(main())
