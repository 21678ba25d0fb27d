# SPDX-License-Identifier: Apache-2.0
"""The chaos kit: rounds of deployments under seeded deaths, judged from outside.

`make chaos N=200 SEED=7`. Exits with 1 when a promise was broken, with 2 when fewer deaths than
asked for could be injected.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from chaos.applications import APPLICATIONS
from chaos.inject import Boundary, Tally, inject
from chaos.observe import Observer
from chaos.outcome import violations
from chaos.promises import NOT_YET, Violation
from chaos.schedule import WRITES, Round, rounds
from chaos.site import Site, running_site
from pipecd_plugin_scriptrun.shim.chaos import BOUNDARIES

ROUND_LIMIT = 90.0
"""Seconds for all deployments of a round, deaths included."""
MOST_ROUNDS_PER_DEATH = 3

SEAMS = (*BOUNDARIES, *(f"control plane.{name}" for name in WRITES))
"""The named places where a process can end itself."""


class Run:
    """A run, and what it has seen."""

    def __init__(self, site: Site) -> None:
        self.total = Tally()
        self.broken: list[tuple[Round, Violation]] = []
        self._site = site
        self._boundary = Boundary(site)

    async def round(self, plan: Round) -> None:
        """Deploy everything, let things die, judge."""
        done = Tally()
        await self._boundary.arm(plan)
        began = time.monotonic()
        commit = self._site.commit(f"round {plan.number}")
        if plan.number == 0:
            await self._site.add_applications()
        observer = Observer(
            self._site, commit, expected=len(APPLICATIONS), approve_after=plan.approve_after
        )
        found: list[Violation] = []
        try:
            async with asyncio.timeout(ROUND_LIMIT), asyncio.TaskGroup() as tasks:
                tasks.create_task(observer.watch())
                tasks.create_task(inject(self._site, observer, plan, done))
        except TimeoutError:
            waiting = ", ".join(
                f"{each.application_name} {each.id}" for each in observer.in_flight()
            )
            sentence = f"after {ROUND_LIMIT:g} s there are still {waiting or 'none begun'}"
            found.append(Violation(promise="bounded", sentence=sentence))
        seconds = time.monotonic() - began
        self._boundary.reached(plan, done)
        found += [each async for each in violations(self._site, observer, done.shims)]
        self.total.add(done)
        self.broken += [(plan, each) for each in found]
        deaths = ", ".join(done.deaths.elements()) or "no death"
        say(f"{plan}  [{deaths}; {seconds:.1f} s]")
        for each in found:
            say(f"  {'VIOLATION' if each.counts else 'not kept yet'} {each}")

    @property
    def is_stuck(self) -> bool:
        """Whatever comes after a deployment that never ends says nothing."""
        return any(each.promise == "bounded" for _, each in self.broken)


async def run(root: Path, *, deaths: int, seed: int) -> int:
    async with running_site(root) as site:
        running = Run(site)
        began = time.monotonic()
        for plan in rounds(seed, SEAMS):
            await running.round(plan)
            enough = running.total.deaths.total() >= deaths
            if enough or running.is_stuck or plan.number >= deaths * MOST_ROUNDS_PER_DEATH:
                break
        minutes = (time.monotonic() - began) / 60
    return summary(running, deaths=deaths, seed=seed, rounds=plan.number + 1, minutes=minutes)


def summary(run: Run, *, deaths: int, seed: int, rounds: int, minutes: float) -> int:
    """Print the counts; the exit code."""
    total = run.total
    for title, counts in (
        ("deaths with work in flight", total.deaths),
        ("pauses", total.pauses),
        ("planned, but nothing was in flight or the place was not reached", total.missed),
    ):
        say(f"{title}: {counts.total()}")
        for name, count in sorted(counts.items()):
            say(f"  {count:5} {name}")
    failing = [each for each in run.broken if each[1].counts]
    waived = [each for each in run.broken if not each[1].counts]
    for promise, reason in NOT_YET.items():
        count = sum(each.promise == promise for _, each in waived)
        say(f"not kept yet: {promise}, {count} times: {reason}")
    say(
        f"seed {seed}: {rounds} rounds of {len(APPLICATIONS)} deployments in {minutes:.1f} min, "
        f"{total.deaths.total()} deaths, {len(failing)} violations"
    )
    for plan in dict.fromkeys(plan for plan, _ in failing):
        say(f"VIOLATION seed {seed} {plan}")
        for each in (each for broken, each in failing if broken == plan):
            say(f"  {each}")
    if failing:
        return 1
    return 0 if total.deaths.total() >= deaths else 2


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - this is its output


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--deaths", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="kept afterwards; a temporary one by default")
    given = parser.parse_args()
    root = given.folder or Path(tempfile.mkdtemp(prefix="pipecd-chaos-"))
    root.mkdir(exist_ok=True, parents=True)
    code = 1
    try:
        code = asyncio.run(run(root.absolute(), deaths=given.deaths, seed=given.seed))
    finally:
        if code == 0 and given.folder is None:
            shutil.rmtree(root)
        else:
            say(f"the logs of all programs are in {root}")
    return code


if __name__ == "__main__":
    sys.exit(main())
