# SPDX-License-Identifier: Apache-2.0
"""What is injected and when, from a seed alone. Pure: the same seed gives the same rounds.

Each round is drawn for itself, so that one can be repeated without those before it. What only
happens to control planes with one database is in `fleet.py`.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from chaos import foreign
from chaos.places import (
    PLACES,
    RACE,
    RACERS,
    STORY_PLACES,
    name_of,
    needs_restart,
    program_of,
)
from chaos.seams.chaos_wrapped import LATER

PLUGINS = ("scriptrun", "wait", "waitapproval", "dummy")
ALL_PLUGINS = (*PLUGINS, foreign.PLUGIN)
"""With the one of another maker."""
PROGRAMS = {"piped": ("piped",), "control plane": ("pipecd",), "plugin": PLUGINS}
"""What each is called where clocks are concerned."""

KILLS = {
    "plugin": 6,
    "piped": 4,
    "control plane": 4,
    "plugin and piped": 2,
    "piped and control plane": 2,
    "plugin and control plane": 3,
    "plugin, piped and control plane": 1,
    "shim": 4,
}
"""What can be killed at a random moment, with weights."""
PAUSES = ("plugin", "piped", "control plane", "shim")
MISHAPS = {"kill": 14, "pause": 3, "cut": 1, "hole": 1, "clock": 2}
"""What can happen at a random moment, with weights: a death, a pause of a process, connections of
piped to the control plane cut, or silent, and a clock that is moved."""
CLOCKS = (-8.0, -3.0, 5.0, 3600.0)
"""Seconds that a clock is moved by."""

PLACES_PER_ROUND = 8
FOREIGN_FIRST = 0.3
"""How often the plugin of another maker is the one that is hit, if it has something to do."""
CANCEL_WITH = {"": 6, "piped": 2, "plugin": 1, "plugin and piped": 1}
"""Who is killed right before a person cancels, with weights: the cancel waits for the next one."""
MOST_PLUGIN_DEATHS = 3
"""In one round: a plugin that is lost again and again during one stage is what is broken."""


STORIES: dict[str, tuple[str, ...]] = {
    "chain": ("whole", "fails", "cancelled"),
    "supersede": ("once", "twice"),
    "locks": ("once", "twice"),
    "hold": ("release", "newer"),
    "pin": ("early", "late"),
    "retry": ("once", "twice"),
    "rule": ("freeze", "window", "stop"),
}
"""What people and rules do to applications of their own, each in several variants."""
STORIES_PER_ROUND = 2
PLACES_PER_STORY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryPlan:
    """One story of a round, as it was drawn; see `stories.py`."""

    name: str
    variant: str
    pauses: tuple[float, ...] = (0.2, 0.2, 0.2, 0.2)
    """Seconds before each of its steps."""
    is_early: bool = True
    """Is a rule set before anything can die?"""

    def __str__(self) -> str:
        return f"{self.name} {self.variant}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """What happens at a random moment."""

    kind: str
    what: str
    """To whom."""
    after: float
    """Seconds after the one before it, or after the first deployment was seen."""
    lasts: float
    """Seconds until the supervisor starts it again, or until it goes on."""
    plugins: tuple[str, ...]
    """Which plugin, in order of preference: the first one with a running stage."""
    pick: float
    """Which of the running scripts, as a fraction of their number."""
    offset: float = 0.0
    """Seconds that the clock is moved by."""

    @property
    def victims(self) -> tuple[str, ...]:
        return tuple(self.what.replace(" and ", ", ").split(", "))

    def __str__(self) -> str:
        match self.kind:
            case "failover":
                return f"+{self.after:.2f}s failover of the database, {self.lasts:.2f}s without one"
            case "drain":
                return f"+{self.after:.2f}s stop a control plane for {self.lasts:.2f}s"
            case "database cut" | "listener cut":
                return f"+{self.after:.2f}s {self.kind} {self.what}"
            case "database hole" | "listener hole":
                return f"+{self.after:.2f}s {self.kind} {self.what} for {self.lasts:.2f}s"
            case "cut":
                return f"+{self.after:.2f}s cut the connections"
            case "hole":
                return f"+{self.after:.2f}s silence all connections for {self.lasts:.2f}s"
            case "clock":
                return f"+{self.after:.2f}s move the clock of {self.what} by {self.offset:+g}s"
        return f"+{self.after:.2f}s {self.kind} {self.what} for {self.lasts:.2f}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Deployments of all applications at once, and what happens to them."""

    number: int
    places: tuple[str, ...] = ()
    """Where a process ends itself."""
    power: bool = False
    """Is the death of a shim there a loss of power?"""
    injections: tuple[Injection, ...] = ()
    approve_after: float = 0.1
    cancel_after: float = 0.5
    cancel_early: bool = False
    """Before the first stage runs, perhaps before there is a plan."""
    cancel_with: str = ""
    """Who is killed right before."""
    stories: tuple[StoryPlan, ...] = ()
    """What people do beside that, to applications of their own."""

    def __str__(self) -> str:
        parts = [f"at {name_of(place, power=self.power)}" for place in self.places]
        parts += map(str, self.injections)
        if self.cancel_with:
            parts.append(f"kill {self.cancel_with} before the cancel")
        parts += map(str, self.stories)
        return f"round {self.number}: " + ("; ".join(parts) or "nothing")


def rounds(seed: str, *, places: tuple[str, ...] = (*PLACES, RACE)) -> Iterator[Round]:
    """Endless. The first round injects nothing: it shows that the checks hold in peace."""
    yield peaceful()
    number = 0
    while True:
        number += 1
        yield drawn(seed, number, places)


def peaceful() -> Round:
    """All stories, and nothing dies."""
    stories = tuple(StoryPlan(name=name, variant=STORIES[name][0]) for name in STORIES)
    return Round(number=0, stories=stories)


def drawn(seed: str, number: int, places: tuple[str, ...] = (*PLACES, RACE)) -> Round:
    """One round: its share of all places, which come in another order each time, and mishaps."""
    per_deck = -(-len(places) // PLACES_PER_ROUND)
    deck_number, at = divmod(number - 1, per_deck)
    deck = list(places)
    random.Random(f"{seed} deck {deck_number}").shuffle(deck)  # noqa: S311 - repeatable on purpose
    deck.sort(key=program_of)  # each program's share in every round
    mine = tuple(deck[at::per_deck])
    if RACE in mine:
        mine = tuple(place for place in mine if place not in RACERS)
    chance = random.Random(f"{seed} round {number}")  # noqa: S311 - as above
    count = chance.choice((1, 2, 3))
    first = [_injection(chance, kind="kill", what="piped")] if needs_restart(mine) else []
    injections = [*first, *(_injection(chance) for _ in range(count))]
    # Of its own, so that what was drawn before there was this is drawn as it was.
    later = random.Random(f"{seed} later {number}")  # noqa: S311 - as above
    injections = [_at_foreign(each, later) for each in injections]
    cancel_with = later.choices(list(CANCEL_WITH), list(CANCEL_WITH.values()))[0]
    beside = (later.choice(LATER),) if later.random() < 0.5 else ()
    told = random.Random(f"{seed} stories {number}")  # noqa: S311 - as above
    stories = tuple(_story(told, name) for name in told.sample(list(STORIES), STORIES_PER_ROUND))
    theirs = [place for each in stories for place in _places_of(each, told)]
    return Round(
        number=number,
        stories=stories,
        places=tuple(dict.fromkeys((*mine, *beside, *theirs))),
        power=chance.random() < 0.5,
        injections=tuple(_few_plugin_deaths(mine, injections)),
        approve_after=round(chance.uniform(0.0, 1.0), 2),
        cancel_after=round(chance.uniform(0.0, 3.0), 2),
        cancel_early=chance.random() < 0.15,
        cancel_with=cancel_with,
    )


def _story(chance: random.Random, name: str) -> StoryPlan:
    return StoryPlan(
        name=name,
        variant=chance.choice(STORIES[name]),
        pauses=tuple(round(chance.uniform(0.0, 1.5), 2) for _ in range(4)),
        is_early=chance.random() < 0.6,
    )


def _places_of(story: StoryPlan, chance: random.Random) -> list[str]:
    there = [*STORY_PLACES.get(story.name, ()), *STORY_PLACES.get(str(story), ())]
    return chance.sample(there, min(len(there), PLACES_PER_STORY))


def _at_foreign(injection: Injection, chance: random.Random) -> Injection:
    """Have the plugin of another maker hit, first or last."""
    plugins = injection.plugins
    is_first = chance.random() < FOREIGN_FIRST
    foreigns = (foreign.PLUGIN, *plugins) if is_first else (*plugins, foreign.PLUGIN)
    return replace(injection, plugins=foreigns)


def _few_plugin_deaths(places: tuple[str, ...], injections: list[Injection]) -> Iterator[Injection]:
    deaths = sum(program_of(place) == "plugin" for place in places)
    for each in injections:
        if each.kind == "kill" and "plugin" in each.victims:
            deaths += 1
            if deaths > MOST_PLUGIN_DEATHS:
                continue
        yield each


def _injection(chance: random.Random, *, kind: str = "", what: str = "") -> Injection:
    kind = kind or chance.choices(list(MISHAPS), list(MISHAPS.values()))[0]
    plugins = list(PLUGINS)
    chance.shuffle(plugins)
    if chance.random() < 0.6:
        plugins.sort(key=lambda name: name != "scriptrun")
    if not what:
        match kind:
            case "kill":
                what = chance.choices(list(KILLS), list(KILLS.values()))[0]
            case "pause":
                what = chance.choice(PAUSES)
            case "clock":
                what = chance.choice(list(PROGRAMS))
            case _:
                what = "connections"
    lasts = chance.uniform(0.0, 1.0) if kind == "kill" else chance.uniform(0.2, 2.0)
    return Injection(
        kind=kind,
        what=what,
        after=round(chance.uniform(0.0, 1.2), 2),
        lasts=round(lasts, 2),
        plugins=tuple(plugins),
        pick=round(chance.random(), 3),
        offset=chance.choice(CLOCKS) if kind == "clock" else 0.0,
    )
