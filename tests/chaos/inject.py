# SPDX-License-Identifier: Apache-2.0
"""Does what the schedule says to the processes of a site, and counts what really happened."""

import asyncio
import os
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from chaos.observe import Observer
from chaos.processes import plugin_pids
from chaos.schedule import PIPED_SERVICE, Injection, Round
from chaos.site import Site

VICTIM_LIMIT = 15.0
"""Seconds to wait for a victim with something to do."""


@dataclass(slots=True)
class Tally:
    """What was done in a run, or in one round."""

    deaths: Counter[str] = field(default_factory=Counter)
    pauses: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    """Planned, but nothing was in flight any more, or the boundary was not reached."""
    shims: int = 0
    """How many shims have died."""

    def add(self, other: "Tally") -> None:
        self.deaths += other.deaths
        self.pauses += other.pauses
        self.missed += other.missed
        self.shims += other.shims


class Boundary:
    """A process that ends itself at a named place: armed before the round, read after it."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._once: Path | None = None
        self._server_deaths = 0
        self._is_server_armed = False

    async def arm(self, plan: Round) -> None:
        """Start what needs the variables again; nothing is in flight yet."""
        site = self._site
        place = plan.boundary.removeprefix("control plane.")
        is_server = place != plan.boundary
        if is_server:
            await site.server.restart({"PIPECD_CHAOS_DIE_AFTER_COMMIT": PIPED_SERVICE + place})
        elif self._is_server_armed:
            await site.server.restart({})
        if plan.boundary and not is_server:
            self._once = site.root / f"once-{plan.number}"
            variables = {
                "PIPECD_CHAOS_KILL_AT": plan.boundary,
                "PIPECD_CHAOS_ONCE": str(self._once),
            }
            await site.piped.restart(variables, keep_extra=True)
        elif self._once is not None:
            self._once = None
            await site.piped.restart({})
        self._is_server_armed = is_server
        self._server_deaths = site.server.deaths
        await site.ready()

    def reached(self, plan: Round, done: Tally) -> None:
        """Count the death, if there was one."""
        if not plan.boundary:
            return
        if self._is_server_armed:
            happened = self._site.server.deaths > self._server_deaths
            self._is_server_armed = not happened
        else:
            happened = self._once is not None and self._once.exists()
            done.shims += happened and plan.boundary.startswith("shim.")
        (done.deaths if happened else done.missed)[f"at {plan.boundary}"] += 1


async def inject(site: Site, observer: Observer, plan: Round, done: Tally) -> None:
    """One after the other, while something is in flight."""
    await observer.first_seen.wait()
    for each in plan.injections:
        await asyncio.sleep(each.after)
        pids = await _victims(site, observer, each)
        kind = f"{each.what}, paused" if each.is_pause else each.what
        if pids is None or not observer.in_flight():
            done.missed[kind] += 1
            continue
        if each.is_pause:
            await _pause(pids, each.lasts)
            done.pauses[kind] += 1
            continue
        site.piped.restart_after = site.server.restart_after = each.lasts
        _signal(pids, signal.SIGKILL)
        done.deaths[f"random: {kind}"] += 1
        done.shims += each.what == "shim"


async def _pause(pids: list[int], lasts: float) -> None:
    _signal(pids, signal.SIGSTOP)
    try:
        await asyncio.sleep(lasts)
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
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
