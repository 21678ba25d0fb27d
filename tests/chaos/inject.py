# SPDX-License-Identifier: Apache-2.0
"""Does what the schedule says to the processes of a site, and counts what really happened."""

import asyncio
import os
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from chaos.moments import Moment
from chaos.observe import Observer
from chaos.places import RACE, name_of, orders, program_of
from chaos.processes import plugin_pids
from chaos.schedule import Injection, Round
from chaos.site import Site

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
    shims: int = 0
    """How many shims have died."""
    life: list[Moment] = field(default_factory=list)
    """What happened at random moments, and when; of one round."""

    def add(self, other: "Tally") -> None:
        self.deaths += other.deaths
        self.mishaps += other.mishaps
        self.missed += other.missed
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
        if each.kind in {"kill", "pause"}:
            pids = await _victims(site, observer, each)
            if pids is None or not observer.in_flight():
                done.missed[f"{each.kind} {each.what}"] += 1
            elif each.kind == "pause":
                done.life.append(Moment.now(f"{each}: {pids}"))
                await _pause(pids, each.lasts)
                done.mishaps[f"pause {each.what}"] += 1
            else:
                site.piped.restart_after = site.server.restart_after = each.lasts
                send(pids, signal.SIGKILL)
                done.life.append(Moment.now(f"{each}: {pids}"))
                done.deaths[f"kill {each.what}"] += 1
                done.shims += each.what == "shim"
        elif not observer.in_flight():
            done.missed[each.kind] += 1
        else:
            done.life.append(Moment.now(str(each)))
            await _disturb(site, each)
            done.mishaps[f"{each.kind} {each.what}"] += 1


async def _disturb(site: Site, injection: Injection) -> None:
    match injection.kind:
        case "cut":
            site.wire.cut()
        case "hole":
            await site.wire.silence(injection.lasts)
        case "clock":
            site.clocks.move(injection.what, injection.offset)


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
                pids = [_victim(site, observer, injection, name) for name in injection.victims]
                if all(pids):
                    return pids
                await asyncio.sleep(0.02)
    return None


def _victim(site: Site, observer: Observer, injection: Injection, name: str) -> int:
    match name:
        case "piped":
            return site.piped.pid
        case "control plane":
            return site.server.pid
        case "shim":
            shims = running_shims(site.scripts)
            return shims[int(injection.pick * len(shims))] if shims else 0
    busy = observer.running_plugins()
    there = plugin_pids(site.root, site.piped.pid) if site.piped.pid else {}
    return next((there[each] for each in injection.plugins if each in busy and each in there), 0)


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
