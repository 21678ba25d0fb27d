# SPDX-License-Identifier: Apache-2.0
"""The chaos kit: rounds of deployments under seeded deaths, judged from outside.

`make chaos N=200 SEED=7`. Exits with 1 when a promise was broken, with 2 when fewer deaths than
asked for could be injected, or fewer than asked for at one of the places.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from pathlib import Path

from chaos.applications import ALL_NAMES, read_effects
from chaos.evidence import Trace, keep
from chaos.fleet import fleet_drawn, fleet_rounds
from chaos.inject import Tally, arm, disarm, inject
from chaos.observe import Observer
from chaos.outcome import violations
from chaos.promises import Violation
from chaos.schedule import STORIES_PER_ROUND, Round, drawn, peaceful, rounds
from chaos.site import Site, running_site
from chaos.stories import KINDS
from chaos.stories import violations as story_violations
from chaos.story import Story
from chaos.summary import Broken, say, summary, too_few

ROUND_LIMIT = 180.0
"""Seconds for all deployments of a round, deaths included."""
MOST_ROUNDS_PER_DEATH = 3


class World:
    """One site, and what it has seen. Several can be busy at once."""

    def __init__(
        self, site: Site, seed: str, total: Tally, limit_seconds: float = ROUND_LIMIT
    ) -> None:
        self.seed = seed
        self.total = total
        self.broken: list[Broken] = []
        self.rounds = 0
        self._site = site
        self._limit_seconds = limit_seconds

    async def round(self, plan: Round) -> None:
        """Deploy everything, let things die, judge."""
        site, done = self._site, Tally()
        trace = Trace.begin(site)
        try:
            await site.ready()
        except TimeoutError:
            sentence = "piped and its plugins do not get ready"
            observer = Observer(site, "", plan, expected=0)
            found = [Violation(promise="bounded", sentence=sentence)]
            await self._break(plan, found, trace, observer, done)
            return
        began = time.monotonic()
        nonce = f"round {plan.number}"
        if self.rounds == 0:
            await site.add_applications()
        self.rounds += 1
        observer = Observer(site, "", plan, expected=len(site.names))
        stories = [KINDS[each.name](site, observer, each, nonce) for each in plan.stories]
        for story in stories:
            await story.prepare()
            observer.stories.append(story.run)
        observer.commits.add(site.commit(nonce))
        arm(site, plan)
        found = await self._let_things_die(plan, trace, observer, done)
        seconds = time.monotonic() - began
        disarm(site, plan, done)
        done.mishaps["cancel by a person"] += observer.cancels
        done.deaths += observer.deaths
        done.crossed += site.crossed
        site.crossed.clear()
        site.clocks.set_right()
        for kept in site.kept:
            kept.restart_after = 0.0
        found += [each async for each in self._violations(observer, stories, done)]
        self.total.add(done)
        deaths = ", ".join(done.deaths.elements()) or "no death"
        say(f"[{self.seed}] {plan}  [{deaths}; {seconds:.1f} s; all: {self.total.deaths.total()}]")
        await self._break(plan, found, trace, observer, done)

    async def _violations(
        self, observer: Observer, stories: Sequence[Story], done: Tally
    ) -> AsyncIterator[Violation]:
        site = self._site
        effects = read_effects(site.effects)
        hidden = sum(each.interrupted for each in stories)
        async for each in violations(site, observer, effects, done.shims, hidden):
            yield each
        for story in stories:
            async for each in story_violations(site, story, effects, done.shims):
                yield each

    async def _let_things_die(
        self, plan: Round, trace: Trace, observer: Observer, done: Tally
    ) -> list[Violation]:
        try:
            async with asyncio.timeout(self._limit_seconds), asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(trace.records.run())
                tasks.create_task(observer.watch())
                await tasks.create_task(inject(self._site, observer, plan, done))
                watching.cancel()
        except TimeoutError:
            waiting = ", ".join(
                f"{each.application_name} {each.id}" for each in observer.in_flight()
            )
            sentence = f"after {self._limit_seconds:g} s there are still {waiting or 'none begun'}"
            return [Violation(promise="bounded", sentence=sentence)]
        return []

    async def _break(
        self,
        plan: Round,
        found: Sequence[Violation],
        trace: Trace,
        observer: Observer,
        done: Tally,
    ) -> None:
        """Tell what was broken, and keep all that explains it; also when the site is gone."""
        if not found:
            return
        folder = self._site.root.parent / "violations" / f"{self.seed}-round-{plan.number}"
        replicas = len(self._site.servers) if self._site.database is not None else 0
        broken = [Broken(self.seed, plan, each, folder, replicas) for each in found]
        self.broken += broken
        for each in found:
            say(f"  VIOLATION {each}")
        await keep(folder, broken, trace=trace, observer=observer, done=done)
        say(f"  all that explains it is in {folder}")

    @property
    def is_stuck(self) -> bool:
        """Whatever comes after a deployment that never ends says nothing."""
        return any(each.violation.promise == "bounded" for each in self.broken)


async def live(
    world: World, plans: Iterable[Round], deaths: int, least: int, replicas: int
) -> None:
    """Round after round, until enough have died in all worlds together."""
    for plan in plans:
        await world.round(plan)
        enough = world.total.deaths.total() >= deaths and not too_few(
            world.total.deaths, least, replicas
        )
        if enough or world.is_stuck or plan.number >= deaths * MOST_ROUNDS_PER_DEATH:
            return


async def run(
    root: Path,
    *,
    deaths: int,
    seed: str,
    worlds: int = 1,
    least: int = 0,
    only: int | None = None,
    variables: dict[str, str] | None = None,
    limit_seconds: float = ROUND_LIMIT,
    replicas: int = 0,
) -> int:
    """A whole run; the exit code."""
    if only is not None:
        deaths, least = 1, 0
    total = Tally()
    began = time.monotonic()
    lives: list[World] = []

    async def one(name: str) -> None:
        folder = root / name
        folder.mkdir()
        draw, all_rounds = (fleet_drawn, fleet_rounds) if replicas else (drawn, rounds)
        plans = all_rounds(name) if only is None else [peaceful(), draw(name, only)]
        async with running_site(folder, variables, has_stories=True, replicas=replicas) as site:
            world = World(site, name, total, limit_seconds)
            lives.append(world)
            await live(world, plans, deaths, least, replicas)

    def tell() -> int:
        return summary(
            total,
            [each for world in lives for each in world.broken],
            deaths=deaths,
            least=least,
            replicas=replicas,
            title=f"seed {seed}: {sum(world.rounds for world in lives)} rounds of "
            f"{len(ALL_NAMES)} deployments and {STORIES_PER_ROUND} stories in {worlds} worlds, "
            f"{(time.monotonic() - began) / 60:.1f} min",
        )

    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(worlds):
                tasks.create_task(one(seed if worlds == 1 else f"{seed}.{number}"))
    except asyncio.CancelledError:
        tell()  # somebody does not want to wait any longer
        raise
    return tell()


async def stoppable(running: Coroutine[None, None, int]) -> int:
    """Let a signal cancel the run: it tells its counts, and leaves nothing behind."""
    task = asyncio.ensure_future(running)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return 2


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--deaths", type=int, default=50)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--worlds", type=int, default=1, help="sites that are busy at once")
    parser.add_argument("--least", type=int, default=0, help="deaths at each place")
    parser.add_argument("--only", type=int, help="the number of one round, to repeat it")
    parser.add_argument(
        "--limit",
        type=float,
        default=ROUND_LIMIT,
        help="seconds for a round; more where many others use the machine",
    )
    parser.add_argument(
        "--replicas",
        type=int,
        default=0,
        help="control planes with one PostgreSQL; by default there is one with SQLite",
    )
    parser.add_argument("--folder", type=Path, help="kept afterwards; a temporary one by default")
    given = parser.parse_args()
    root = given.folder or Path(tempfile.mkdtemp(prefix="pipecd-chaos-"))
    root.mkdir(exist_ok=True, parents=True)
    variables = {
        name: value for name, value in os.environ.items() if name == "PIPECD_CHAOS_WITHOUT"
    }
    code = 1
    try:
        code = asyncio.run(
            stoppable(
                run(
                    root.absolute(),
                    deaths=given.deaths,
                    seed=given.seed,
                    worlds=given.worlds,
                    least=given.least,
                    only=given.only,
                    variables=variables,
                    limit_seconds=given.limit,
                    replicas=given.replicas,
                )
            )
        )
    finally:
        if code == 0 and given.folder is None:
            shutil.rmtree(root)
        else:
            say(f"the logs of all programs are in {root}")
    return code


if __name__ == "__main__":
    sys.exit(main())
