# SPDX-License-Identifier: Apache-2.0
"""What is injected where several control planes share a database, from a seed alone. Pure.

It comes beside what `schedule.py` draws for the same seed and round.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

from chaos.places import FLEET_PLACES, PLACES, RACE, SQLITE_PLACES
from chaos.schedule import PLUGINS, Injection, Round, drawn, peaceful

KILLS = {
    "control plane": 4,
    "all control planes": 2,
    "database": 4,
    "control plane and database": 2,
    "piped and control plane": 1,
    "piped and database": 1,
}
"""What can be killed at a random moment, with weights; `control plane` is one of them."""
MISHAPS = {
    "kill": 10,
    "failover": 4,
    "drain": 3,
    "database cut": 3,
    "database hole": 2,
    "listener cut": 2,
    "listener hole": 2,
    "cut": 1,
    "hole": 1,
}
"""What can happen, with weights: a death; the database stops at once and comes back; a control
plane is told to stop, and started again; the connections of one to the database are cut, or silent
while new ones are not; the same for the one over which it hears of changes; and those of the
agents."""
DEATHS = ("kill", "failover")
LONGEST = {"database hole": 6.0, "listener hole": 20.0}
"""Seconds: more than a lease, and more than a control plane takes to notice that it is deaf."""
PLACES_PER_ROUND = 1


def fleet_rounds(seed: str) -> Iterator[Round]:
    """Endless. The first round injects nothing."""
    yield peaceful()
    number = 0
    while True:
        number += 1
        yield fleet_drawn(seed, number)


def fleet_drawn(seed: str, number: int) -> Round:
    """One round: at least one death of a control plane or the database, up to three more mishaps,
    and a place that only they reach."""
    places = tuple(each for each in (*PLACES, RACE) if each not in SQLITE_PLACES)
    plan = drawn(seed, number, places)
    chance = random.Random(f"{seed} fleet {number}")  # noqa: S311 - repeatable on purpose
    first = chance.choice(DEATHS)
    others = chance.choices(list(MISHAPS), list(MISHAPS.values()), k=chance.choice((1, 2, 3)))
    injections = [*plan.injections, *(_injection(chance, kind) for kind in (first, *others))]
    # A piped that must die first, for a place that is reached when it starts, still does.
    kept, rest = injections[:1], injections[1:]
    chance.shuffle(rest)
    mine = chance.sample(FLEET_PLACES, PLACES_PER_ROUND)
    return replace(
        plan, injections=(*kept, *rest), places=tuple(dict.fromkeys((*plan.places, *mine)))
    )


def _injection(chance: random.Random, kind: str) -> Injection:
    match kind:
        case "kill":
            what = chance.choices(list(KILLS), list(KILLS.values()))[0]
        case "failover":
            what = "database"
        case "drain":
            what = "control plane"
        case "cut" | "hole":
            what = "connections"
        case _:
            what = "of a control plane"
    plugins = list(PLUGINS)
    chance.shuffle(plugins)
    return Injection(
        kind=kind,
        what=what,
        after=round(chance.uniform(0.0, 1.5), 2),
        lasts=round(chance.uniform(0.0, LONGEST.get(kind, 1.5)), 2),
        plugins=tuple(plugins),
        pick=round(chance.random(), 3),
    )
