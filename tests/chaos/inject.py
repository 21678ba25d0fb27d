# SPDX-License-Identifier: Apache-2.0
"""Does what the schedule says to the processes of a site, and counts what really happened."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from chaos.kept import Kept
from chaos.moments import Moment
from chaos.observe import Observer
from chaos.places import RACE, name_of, orders, program_of
from chaos.processes import processes_of
from chaos.schedule import Injection, Round
from chaos.site import Site

T = TypeVar("T")

VICTIM_LIMIT = 15.0
"""Seconds to wait for a victim with something to do."""


@dataclass(slots=True)
class Tally:
    """What was done in a run, or in one round."""

    deaths: Counter[str] = field(default_factory=Counter)
    mishaps: Counter[str] = field(default_factory=Counter)
    """All that is no death."""
    missed: Counter[str] = field(default_factory=Counter)
    """Planned, but nothing was in flight any more, or the place was not reached."""
    crossed: Counter[str] = field(default_factory=Counter)
    """What people asked of another control plane than the one that the agent was connected to."""
    shims: int = 0
    """How many shims have died."""
    life: list[Moment] = field(default_factory=list)
    """What happened at random moments, and when; of one round."""

    def add(self, other: "Tally") -> None:
        self.deaths += other.deaths
        self.mishaps += other.mishaps
        self.missed += other.missed
        self.crossed += other.crossed
        self.shims += other.shims


def arm(site: Site, plan: Round) -> None:
    """From now on processes die at the places of the round. There is a commit to be deployed."""
    site.armed.arm(orders(plan.places, plan.power))


def disarm(site: Site, plan: Round, done: Tally) -> None:
    """Nothing is in flight any more: count who was lost."""
    reached = set(site.armed.disarm())
    for place in plan.places:
        wanted = set(orders((place,), plan.power))
        happened = wanted <= reached
        name = f"at {name_of(place, power=plan.power)}"
        (done.deaths if happened else done.missed)[name] += 1
        done.shims += happened and program_of(place) == "shim"
    if RACE in plan.places and done.missed[f"at {RACE}"] and "plugin.shim-started" in reached:
        done.deaths["at plugin.shim-started"] += 1


async def inject(site: Site, observer: Observer, plan: Round, done: Tally) -> None:
    """One after the other, while something is in flight."""
    async with asyncio.TaskGroup() as tasks:
        racing = tasks.create_task(site.armed.let_slow_shim_go())
        await _inject(site, observer, plan, done)
        await observer.over.wait()
        racing.cancel()


async def _inject(site: Site, observer: Observer, plan: Round, done: Tally) -> None:
    await observer.first_seen.wait()
    for each in plan.injections:
        await asyncio.sleep(each.after)
        if each.kind in {"kill", "pause", "failover", "drain"}:
            pids = await _victims(site, observer, each)
            if pids is None or not observer.in_flight():
                done.missed[f"{each.kind} {each.what}"] += 1
                continue
            done.life.append(Moment.now(f"{each}: {pids}"))
            await _strike(site, each, pids)
            counts = done.deaths if each.kind in {"kill", "failover"} else done.mishaps
            counts[f"{each.kind} {each.what}"] += 1
            done.shims += each.kind == "kill" and each.what == "shim"
        elif not observer.in_flight():
            done.missed[each.kind] += 1
        else:
            done.life.append(Moment.now(str(each)))
            was_there = await _disturb(site, each)
            (done.mishaps if was_there else done.missed)[f"{each.kind} {each.what}"] += 1


async def _strike(site: Site, injection: Injection, pids: list[int]) -> None:
    """Do it to processes."""
    for kept in site.kept:
        kept.restart_after = injection.lasts
    database = site.database
    match injection.kind:
        case "pause":
            await _pause(pids, injection.lasts)
        case "drain":
            await _server(site, injection).drain()
        case "failover":
            assert database is not None
            await database.fail_over(injection.lasts)
        case _:
            send([pid for pid in pids if database is None or pid != database.pid], signal.SIGKILL)
            if database is not None and "database" in injection.victims:
                await database.kill(injection.lasts)


async def _disturb(site: Site, injection: Injection) -> bool:
    """Do it to connections or clocks; False when there was nothing to be done."""
    match injection.kind.split():
        case ["cut"]:
            return sum(agent.wire.cut() for agent in site.agents) > 0
        case ["hole"]:
            with ExitStack() as silent:
                for agent in site.agents:
                    silent.enter_context(agent.wire.silent())
                await asyncio.sleep(injection.lasts)
        case ["clock"]:
            site.clocks.move(injection.what, injection.offset)
        case [whose, how]:
            assert site.database is not None
            number = site.servers.index(_server(site, injection))
            wire = site.database.wires[number]
            chosen = site.database.listeners(number)
            if whose == "database":
                chosen = list(wire.connections)
            if how == "cut":
                wire.cut(chosen)
            elif chosen:
                with wire.silent(chosen):
                    await asyncio.sleep(injection.lasts)
            return bool(chosen)
    return True


def _server(site: Site, injection: Injection) -> Kept:
    """Which of the control planes it happens to."""
    return _pick(site.servers, injection)


async def _pause(pids: list[int], lasts: float) -> None:
    send(pids, signal.SIGSTOP)
    try:
        await asyncio.sleep(lasts)
    finally:
        send(pids, signal.SIGCONT)


def send(pids: list[int], number: signal.Signals) -> None:
    """Signal those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


async def _victims(site: Site, observer: Observer, injection: Injection) -> list[int] | None:
    """Their pids, as soon as all are there and have something to do; None when that never came."""
    with suppress(TimeoutError):
        async with asyncio.timeout(VICTIM_LIMIT):
            while not observer.is_over():
                found = [_victim(site, observer, injection, name) for name in injection.victims]
                pids = [pid for each in found for pid in each]
                if all(pids):
                    return pids
                await asyncio.sleep(0.02)
    return None


def _victim(site: Site, observer: Observer, injection: Injection, name: str) -> list[int]:
    """Its pids: 0 for what is not there."""
    piped = _pick(site.agents, injection).kept
    match name:
        case "piped":
            return [piped.pid]
        case "control plane":
            return [_server(site, injection).pid]
        case "all control planes":
            return [each.pid for each in site.servers]
        case "database":
            assert site.database is not None
            return [site.database.pid]
        case "shim":
            shims = [pid for agent in site.agents for pid in running_shims(agent.scripts)]
            return [_pick(shims, injection) if shims else 0]
    busy = observer.running_plugins()
    there = [
        (each.plugin, each.pid)
        for agent in site.agents
        if (parent := agent.kept.pid)
        for each in processes_of(site.root)
        if each.plugin and each.parent == parent
    ]
    wanted = [
        pid for each in injection.plugins if each in busy for who, pid in there if who == each
    ]
    return [wanted[0] if wanted else 0]


def _pick(all_of_them: Sequence[T], injection: Injection) -> T:
    """Which of several, as it was drawn; the fraction may be rounded to 1."""
    return all_of_them[min(int(injection.pick * len(all_of_them)), len(all_of_them) - 1)]


def running_shims(scripts: Path) -> list[int]:
    """The shims that keep a script now, from their start records."""
    found = []
    for record in sorted(scripts.glob("*/*/started")):
        with suppress(OSError):
            words = record.read_text().split()
            if len(words) != 2 or (record.parent / "exit").exists():
                continue
            command = Path(f"/proc/{words[0]}/cmdline").read_bytes()
            if b"/shim/start.py" in command:
                found.append(int(words[0]))
    return found
