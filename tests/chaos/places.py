# SPDX-License-Identifier: Apache-2.0
"""Every boundary at which a process can be lost, by name, and what arms it."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from chaos.moments import Moment
from chaos.seams.chaos_wrapped import AT_START, LATER, OF_FLEETS, OF_STORIES, WRAPPED
from pipecd_runtime.shim.chaos import BOUNDARIES

WRITES = (
    "CreateDeployment",
    "ReportDeploymentPlanned",
    "ReportDeploymentStatusChanged",
    "ReportStageStatusChanged",
    "ReportStageLogs",
    "ReportStageLogsFromLastCheckpoint",
    "SaveDeploymentPluginMetadata",
    "SaveStageMetadata",
    "ReportApplicationMostRecentDeployment",
    "ReportApplicationDeployingStatus",
    "ReportDeploymentCompleted",
    "ReportCommandHandled",
    "ReportPlugins",
    "RenewLease",
)
"""The calls of piped that change something and that these applications make: the server dies when
it has kept what the call says, before it answers."""

PLACES = (
    *BOUNDARIES,
    *(place for place in WRAPPED if place not in {*LATER, *OF_STORIES, *OF_FLEETS}),
    *(f"control plane.{name}" for name in WRITES),
)
"""All of them, without those that are drawn beside them."""

FLEET_PLACES = OF_FLEETS
"""Those that only control planes on PostgreSQL reach: drawn where there are some."""
SQLITE_PLACES = frozenset({"control plane.commit.before", "control plane.commit.after"})
"""Those that none of them reaches."""

STORY_PLACES: dict[str, tuple[str, ...]] = {
    "chain": (
        "control plane.CreateDeploymentChain",
        "piped.create-chain.before",
        "piped.create-chain.after",
        "piped.chain-turn.after",
    ),
    "chain fails": ("piped.chain-refused.before", "piped.chain-refused.after"),
    "supersede": (
        "control plane.SaveDeploymentSharedMetadata",
        "piped.supersede.before",
        "piped.supersede.after",
        "piped.superseded-noted.before",
        "piped.superseded-noted.after",
    ),
    "locks": (
        "control plane.ReportQueue",
        "piped.admitted.before",
        "piped.admitted.after",
        "piped.given-back.before",
        "piped.given-back.after",
        "piped.rejected.before",
        "piped.rejected.after",
    ),
    "hold release": (
        "control plane.ReleaseHold",
        "piped.asked.before",
        "piped.asked.after",
    ),
    "pin": (
        "control plane.RollBackApplication",
        "control plane.ReleasePin",
        "control plane.ReportApplicationSyncState",
        "piped.asked.before",
        "piped.asked.after",
    ),
    "retry": (
        "control plane.RetryStage",
        "piped.retry-chosen.before",
        "piped.retry-chosen.after",
    ),
    "rule": ("piped.rules-heeded.before", "piped.rules-heeded.after"),
    "rule freeze": ("control plane.SetFreeze",),
    "rule window": ("control plane.SetWindow", "control plane.DeleteWindow"),
    "rule stop": ("control plane.StopDeployments", "control plane.ResumeDeployments"),
}
"""Where a process dies in a round with a story, or with a story of a variant."""

ALL_STORY_PLACES = tuple(dict.fromkeys(place for each in STORY_PLACES.values() for place in each))

RACE = "two shims at once"
"""A plugin dies when it has just started a shim that is slow: the next one starts another."""

SLOW_SHIM = "shim.before-record"
RACERS = {"plugin.shim-started": "kill", SLOW_SHIM: "hold 30"}
"""The slow shim goes on when the other one has made the start record."""

SEAMS = Path(__file__).parent / "seams"


def program_of(place: str) -> str:
    """Which program dies there: `plugin`, `shim`, `piped` or `control plane`."""
    return "plugin" if place == RACE else place.partition(".")[0]


def name_of(place: str, *, power: bool) -> str:
    """Of what happens there: only a shim can lose power."""
    return f"{place} (power)" if power and program_of(place) == "shim" else place


class Armed:
    """The places where the next process dies that gets there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._let_go: set[str] = set()
        self.life: list[Moment] = []
        """Which place was reached when, by whom."""
        folder.mkdir()
        paths = [str(SEAMS), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {
            "PIPECD_CHAOS_ARMED": str(folder),
            "PYTHONPATH": os.pathsep.join(paths),
        }

    def arm(self, places: dict[str, str]) -> None:
        """From now on, each place does what its text says: `kill`, `power`, `hold <seconds>`."""
        for place, what in places.items():
            new = self._folder / f"{place}.new"
            new.write_text(what)
            new.rename(self._folder / place)

    def disarm(self) -> Iterator[str]:
        """Take all away; the value is those that were reached."""
        yield from self._let_go
        self._let_go.clear()
        for _ in range(2):  # one may be reached just now
            for file in list(self._folder.iterdir()):
                if file.suffix == ".reached":
                    self._note(file)
                    yield file.stem
                file.unlink(missing_ok=True)

    def _note(self, reached: Path) -> None:
        """Whoever reaches a place takes the file, and most write their pid into it."""
        with suppress(OSError):
            pid = reached.read_text().strip()
            who = pid if pid.isdigit() else program_of(reached.stem)
            self.life.append(Moment(reached.stat().st_ctime, f"{who} reached {reached.stem}"))

    async def let_slow_shim_go(self) -> None:
        """Wait for the slow shim, and for one that has overtaken it; then let it go on."""
        held = self._folder / f"{SLOW_SHIM}.reached"
        while not (record := _record_of(held)) or not (record / "started").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.005)
        self._let_go.add(SLOW_SHIM)
        self._note(held)
        self.life.append(Moment.now("the slow shim goes on"))
        held.unlink(missing_ok=True)


def _record_of(held: Path) -> Path | None:
    """The record that a waiting shim is about to take: it has opened the file of its errors."""
    try:
        errors = Path(f"/proc/{int(held.read_text())}/fd/2").readlink()
    except (OSError, ValueError):
        return None  # not there yet
    return errors.parent if errors.name == "errors" else None


def orders(places: tuple[str, ...], power: bool) -> dict[str, str]:
    """What the places of a round are armed with. A shim that dies may lose power with it."""
    armed: dict[str, str] = {}
    for place in places:
        if place == RACE:
            armed |= RACERS
        else:
            armed[place] = "power" if power and program_of(place) == "shim" else "kill"
    return armed


def needs_restart(places: tuple[str, ...]) -> bool:
    """Is one of them reached only when piped starts?"""
    return not AT_START.isdisjoint(places)
