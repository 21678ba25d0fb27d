# SPDX-License-Identifier: Apache-2.0
"""What is injected and when, from a seed alone. Pure: the same seed gives the same rounds."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

PLUGINS = ("scriptrun", "wait", "waitapproval", "dummy")
PIPED_SERVICE = "/grpc.service.pipedservice.PipedService/"
WRITES = (
    "CreateDeployment",
    "ReportDeploymentPlanned",
    "ReportDeploymentStatusChanged",
    "ReportStageStatusChanged",
    "ReportStageLogs",
    "ReportStageLogsFromLastCheckpoint",
    "SaveDeploymentPluginMetadata",
    "ReportApplicationMostRecentDeployment",
    "ReportDeploymentCompleted",
    "ReportCommandHandled",
)
"""The calls of piped that change something and that these applications make."""

KILLS = {
    "plugin": 5,
    "piped": 5,
    "control plane": 4,
    "plugin and piped": 2,
    "piped and control plane": 3,
    "plugin and control plane": 2,
    "plugin, piped and control plane": 1,
    "shim": 2,
}
"""What can be killed at a random moment, with weights."""
PAUSES = ("plugin", "piped", "control plane")


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A death or a pause at a random moment."""

    what: str
    is_pause: bool
    after: float
    """Seconds after the one before it, or after the first deployment was seen."""
    lasts: float
    """Seconds until the supervisor starts it again, or until it goes on."""
    plugins: tuple[str, ...]
    """Which plugin, in order of preference: the first one with a running stage."""
    pick: float
    """Which of the running scripts, as a fraction of their number."""

    @property
    def victims(self) -> tuple[str, ...]:
        return tuple(self.what.replace(" and ", ", ").split(", "))


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Deployments of all applications at once, and what happens to them."""

    number: int
    boundary: str
    """Where a process ends itself, empty for nowhere."""
    injections: tuple[Injection, ...]
    approve_after: float

    @property
    def loses_shim(self) -> bool:
        return self.boundary.startswith("shim.") or any(
            "shim" in each.victims for each in self.injections if not each.is_pause
        )

    def __str__(self) -> str:
        parts = [f"at {self.boundary}"] if self.boundary else []
        for each in self.injections:
            verb = "pause" if each.is_pause else "kill"
            parts.append(f"+{each.after:.2f}s {verb} {each.what} for {each.lasts:.2f}s")
        return f"round {self.number}: " + ("; ".join(parts) or "nothing")


def rounds(seed: int, boundaries: tuple[str, ...]) -> Iterator[Round]:
    """Endless. The first round injects nothing: it shows that the checks hold in peace."""
    chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
    yield Round(number=0, boundary="", injections=(), approve_after=0.1)
    number, deck = 0, list[str]()
    while True:
        number += 1
        boundary = ""
        if boundaries and number % 3:  # two rounds of three
            if not deck:
                deck = list(boundaries)
                chance.shuffle(deck)
            boundary = deck.pop()
        count = chance.choice((0, 1, 2)) if boundary else chance.choice((2, 3, 4))
        injections = [_injection(chance, boundary) for _ in range(count)]
        yield Round(
            number=number,
            boundary=boundary,
            injections=tuple(injections),
            approve_after=round(chance.uniform(0.0, 1.0), 2),
        )


def _injection(chance: random.Random, boundary: str) -> Injection:
    is_pause = chance.random() < 0.2
    kills = dict(KILLS)
    if boundary.startswith("shim."):
        del kills["shim"]  # so that it is known which death an interrupted script is owed to
    if boundary.startswith("control plane."):
        kills = {what: weight for what, weight in kills.items() if "control plane" not in what}
    choice = chance.choices(list(kills), list(kills.values()))[0]
    plugins = list(PLUGINS)
    chance.shuffle(plugins)
    if chance.random() < 0.6:
        plugins.sort(key=lambda name: name != "scriptrun")
    return Injection(
        what=chance.choice(PAUSES) if is_pause else choice,
        is_pause=is_pause,
        after=round(chance.uniform(0.0, 1.2), 2),
        lasts=round(chance.uniform(0.2, 2.0) if is_pause else chance.uniform(0.0, 1.0), 2),
        plugins=tuple(plugins),
        pick=round(chance.random(), 3),
    )
