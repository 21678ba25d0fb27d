# SPDX-License-Identifier: Apache-2.0
"""How soon a site is back: kills at random moments of one SCRIPT_RUN, and what the log shows then.

The script prints the time every few hundredths of a second. The site is back when the control plane
shows a line that was printed after the restart of what had died. Each time the script must have run
once, with its whole log. `python -m chaos.back --times 20`.
"""

import argparse
import asyncio
import random
import signal
import statistics
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from chaos.applications import BEACON, PIPELINES, read_effects
from chaos.check import Ended, log_violation
from chaos.inject import send
from chaos.observe import COMPLETED
from chaos.processes import plugin_pids
from chaos.site import PATIENT, Site, running_site
from chaos.summary import say
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.api.api_pb2_grpc import DeploymentServiceStub
from pipecd_wire.rpc import CallError, call, stream

KINDS = ("plugin", "piped", "plugin and piped", "control plane", "piped and control plane")
LIMIT = 120.0
LATEST = 3.0
"""Seconds of the script's life in which it can happen; it takes twice as long."""


class Watched:
    """The log of the script as it arrives."""

    def __init__(self, site: Site, deployment: Deployment) -> None:
        self._site = site
        self._id = deployment.id
        self._stage = next(stage.id for stage in deployment.stages if not stage.rollback)
        self.lines: list[str] = []
        self.arrivals: list[tuple[float, float]] = []
        """When each numbered line was printed, and when it was seen."""

    async def follow(self) -> None:
        """Until the log is closed."""
        request = api_pb2.FollowStageLogRequest(deployment_id=self._id, stage_id=self._stage)
        while True:
            try:
                # A new channel each time: gRPC waits before it tries an old one again.
                async with (
                    self._site.connect_one() as channel,
                    aclosing(
                        stream(DeploymentServiceStub(channel).FollowStageLog, request)
                    ) as answers,
                ):
                    async for answer in answers:
                        for block in answer.blocks:
                            self._take(block.log)
                            request.from_index = block.index + 1
                        if answer.completed:
                            return
            except CallError:
                await asyncio.sleep(0.01)

    def _take(self, line: str) -> None:
        self.lines.append(line)
        if line.startswith("line "):
            self.arrivals.append((float(line.split()[2]), time.time()))

    def seen_after(self, moment: float) -> float | None:
        """When the first line was seen that was printed after a moment."""
        return next((seen for printed, seen in self.arrivals if printed > moment), None)


async def once(site: Site, kind: str, wait: float, number: int) -> tuple[float, list[str]]:
    """Seconds from the restart until the site was back, and what was wrong."""
    await site.ready()
    commit = site.commit(f"{number} {kind}")
    if number == 0:
        await site.add_applications()
    deployment = await begun(site, commit)
    watched = Watched(site, deployment)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(watched.follow())
        while not watched.arrivals:  # noqa: ASYNC110 - other processes make it true
            await asyncio.sleep(0.005)
        await asyncio.sleep(wait)
        restarted = await kill(site, kind.split(" and "))
        await following
    deployment = await ended(site, deployment.id)
    effects = [each for each in read_effects(site.effects) if each.deployment == deployment.id]
    found = Ended(deployment=deployment, effects=effects, lost_shims=0).violations()
    wrong = [str(each) for each in found]
    if told := log_violation(watched.lines, PIPELINES[BEACON][0].lines, is_whole=True):
        wrong.append(f"the log {told}")
    seen = watched.seen_after(restarted)
    return (seen - restarted if seen is not None else float("inf")), wrong


async def begun(site: Site, commit: str) -> Deployment:
    """The deployment of a commit, once it is planned."""
    while True:
        request = pb.ListDeploymentsRequest(limit=5)
        answer = await call(site.api.ListDeployments, request, retry=PATIENT)
        found: list[Deployment] = list(answer.deployments)
        for each in found:
            if each.trigger.commit.hash == commit and each.stages:
                return each
        await asyncio.sleep(0.02)


async def ended(site: Site, deployment_id: str) -> Deployment:
    while True:
        request = pb.GetDeploymentRequest(deployment_id=deployment_id)
        answer = await call(site.api.GetDeployment, request, retry=PATIENT)
        found: Deployment = answer.deployment
        if found.status in COMPLETED:
            return found
        await asyncio.sleep(0.02)


async def kill(site: Site, victims: list[str]) -> float:
    """Kill all at once; when the last of them was started again, in Unix seconds."""
    kept = {"piped": site.piped, "control plane": site.server}
    old = plugin_pids(site.root, site.piped.pid)["scriptrun"]
    before = {name: kept[name].started_at for name in victims if name in kept}
    send([kept[name].pid if name in kept else old for name in victims], signal.SIGKILL)
    while any(kept[name].started_at == at for name, at in before.items()):  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.002)
    if victims == ["plugin"]:  # piped starts it again
        while plugin_pids(site.root, site.piped.pid).get("scriptrun", old) == old:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return time.time()
    return max(kept[name].started_at for name in before)


async def measure(root: Path, *, times: int, seed: str) -> int:
    chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    broken = 0
    async with running_site(root, names=[BEACON]) as site:
        for number in range(times * len(KINDS)):
            kind = KINDS[number % len(KINDS)]
            async with asyncio.timeout(LIMIT):
                took, wrong = await once(site, kind, chance.uniform(0.0, LATEST), number)
            seconds[kind].append(took)
            broken += len(wrong)
            for each in wrong:
                say(f"VIOLATION seed {seed} number {number} {kind}: {each}")
            if kind == KINDS[-1]:
                say(f"{number + 1} of {times * len(KINDS)}")
    say(f"seed {seed}: seconds from the restart until the log goes on, {broken} violations")
    for kind, took_each in seconds.items():
        ordered = sorted(took_each)
        p95 = ordered[max(0, -(-len(ordered) * 95 // 100) - 1)]
        say(
            f"  {kind:24} {len(ordered):4} times: median {statistics.median(ordered):.2f}, "
            f"p95 {p95:.2f}, longest {ordered[-1]:.2f}"
        )
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", default="1")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pipecd-back-") as root:
        return asyncio.run(measure(Path(root), times=given.times, seed=given.seed))


if __name__ == "__main__":
    sys.exit(main())
