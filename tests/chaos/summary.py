# SPDX-License-Identifier: Apache-2.0
"""What a run tells at its end: the counts, what was broken, and how to see that again."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.inject import Tally
from chaos.places import ALL_STORY_PLACES, FLEET_PLACES, PLACES, RACE, SQLITE_PLACES
from chaos.promises import Violation
from chaos.schedule import Round
from chaos.seams.chaos_wrapped import LATER


@dataclass(frozen=True, slots=True)
class Broken:
    """A broken promise, and the round that broke it."""

    seed: str
    plan: Round
    violation: Violation
    folder: Path | None = None
    """Where all is kept that explains it."""
    replicas: int = 0

    @property
    def again(self) -> str:
        """The command that draws the same round."""
        replicas = f" --replicas {self.replicas}" if self.replicas else ""
        return f'make chaos SEED={self.seed} ARGS="--only {self.plan.number}{replicas}"'


def summary(
    total: Tally,
    broken: Sequence[Broken],
    *,
    deaths: int,
    least: int,
    title: str,
    replicas: int = 0,
) -> int:
    """Print the counts; the exit code."""
    for heading, counts in (
        ("deaths with work in flight", total.deaths),
        ("other mishaps", total.mishaps),
        ("answered by another control plane than the agent's", total.crossed),
        ("planned, but nothing was in flight or the place was not reached", total.missed),
    ):
        say(f"{heading}: {counts.total()}")
        for name, count in sorted(counts.items()):
            say(f"  {count:5} {name}")
    few = too_few(total.deaths, least, replicas)
    for place, count in few.items():
        say(f"too few deaths at {place}: {count} of {least}")
    say(f"{title}: {total.deaths.total()} deaths, {len(broken)} violations")
    for each in broken:
        say(f"VIOLATION {each.violation}\n  [{each.seed}] {each.plan}\n  {each.again}")
        if each.folder is not None:
            say(f"  all that explains it is in {each.folder}")
    if broken:
        return 1
    return 2 if few or total.deaths.total() < deaths else 0


def too_few(deaths: Counter[str], least: int, replicas: int = 0) -> dict[str, int]:
    """The places with fewer deaths than wanted; a loss of power counts as one."""
    places = {*PLACES, *LATER, *ALL_STORY_PLACES, RACE}
    if replicas:
        places = (places - SQLITE_PLACES) | set(FLEET_PLACES)
    counts = {
        place: deaths[f"at {place}"] + deaths[f"at {place} (power)"] for place in sorted(places)
    }
    return {place: count for place, count in counts.items() if count < least}


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - this is its output
