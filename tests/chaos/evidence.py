# SPDX-License-Identifier: Apache-2.0
"""What is kept of a round that has broken a promise: all that is needed to understand it.

A folder per round, which nobody removes: what was to happen, what happened when, how deployments
ended and what their logs say, what the programs wrote, the records of scripts as they came and
went, and what lives. `README.md` says what is in it and how to draw the round again.
"""

import asyncio
import dataclasses
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from google.protobuf.json_format import MessageToJson

from chaos.applications import Effect, read_effects
from chaos.inject import Tally
from chaos.moments import Moment
from chaos.observe import Observer
from chaos.outcome import stage_log, subjects
from chaos.processes import processes_of
from chaos.schedule import Round
from chaos.site import Site
from chaos.summary import Broken
from pipecd_wire.model.deployment_pb2 import Deployment

LOOK_SECONDS = 0.05
"""Between two looks at the records of scripts, which go with their deployments."""
SMALL = 4096
"""Bytes of a file whose text is kept."""


class RecordWatch:
    """Sees the records of scripts come and go in one round."""

    def __init__(self, *scripts: Path) -> None:
        """`scripts`: the folder of each agent's records."""
        self.life: list[Moment] = []
        self._scripts = scripts
        self._seen: dict[str, str] = {}

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Keep what has changed since the last look."""
        now = {
            str(each.relative_to(folder)): _shown(each)
            for folder in self._scripts
            for each in _files(folder)
        }
        for name in self._seen.keys() - now.keys():
            self.life.append(Moment.now(f"record {name} is gone"))
        for name, text in now.items():
            if self._seen.get(name) != text:
                self.life.append(Moment.now(f"record {name}: {text}"))
        self._seen = now


def _files(scripts: Path) -> list[Path]:
    with suppress(OSError):
        return [each for each in sorted(scripts.glob("*/*/*")) if each.is_file()]
    return []


def _shown(file: Path) -> str:
    """What is kept of a record's file: all of a small one, that it is there of a large one."""
    if file.name in {"output", "script.sh", "errors"} or file.name.startswith("script.sh."):
        return "is there"
    with suppress(OSError):
        if file.stat().st_size <= SMALL:
            return repr(file.read_text(errors="replace"))
    return "is there"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What is gathered of a round from its beginning on, should it be needed."""

    site: Site
    records: RecordWatch
    log_sizes: dict[Path, int]
    """How long the programs' logs were."""

    @classmethod
    def begin(cls, site: Site) -> "Trace":
        """Forget the round before."""
        lives = [site.armed.life, *(each.life for each in site.kept)]
        logs = [each.log for each in site.kept]
        if site.database is not None:
            lives.append(site.database.life)
            logs.append(site.database.log)
        for life in lives:
            life.clear()
        sizes = {log: log.stat().st_size if log.exists() else 0 for log in logs}
        records = RecordWatch(*(agent.scripts for agent in site.agents))
        return cls(site=site, records=records, log_sizes=sizes)


async def keep(
    folder: Path, broken: Sequence[Broken], *, trace: Trace, observer: Observer, done: Tally
) -> None:
    """Fill the folder. What cannot be had is missing, and said so: the rest is worth as much."""
    trace.records.look()
    _keep_round(folder, broken, trace, observer, done)
    await _keep_deployments(folder / "deployments", trace.site, observer)


def _keep_round(
    folder: Path, broken: Sequence[Broken], trace: Trace, observer: Observer, done: Tally
) -> None:
    site = trace.site
    wanted = {subject for each in observer.latest.values() for subject in subjects(each)}
    effects = [each for each in read_effects(site.effects) if each.deployment in wanted]
    moments = [
        *done.life,
        *observer.life,
        *trace.records.life,
        *site.armed.life,
        *(moment for each in site.kept for moment in each.life),
        *(site.database.life if site.database is not None else ()),
        *map(_moment, effects),
    ]
    _write(folder, "README.md", _readme(broken))
    _write(folder, "schedule.json", _schedule(broken[0].plan))
    _write(folder, "timeline.txt", _lines(map(str, sorted(moments))))
    _write(folder, "effects.txt", _lines(str(_moment(each)) for each in effects))
    _write(folder, "processes.txt", _lines(map(str, processes_of(site.root))))
    for log, size in trace.log_sizes.items():
        _copy_tail(log, size, folder / log.name)
    for agent in site.agents:
        with suppress(OSError):
            shutil.copytree(agent.scripts, folder / "scripts", dirs_exist_ok=True)


async def _keep_deployments(folder: Path, site: Site, observer: Observer) -> None:
    try:
        deployments = await observer.listed()
    except Exception as error:  # noqa: BLE001 - what was seen before is there all the same
        _write(folder, "not-asked.txt", repr(error))
        deployments = []
    known = {each.id for each in deployments}
    deployments += [each for each in observer.latest.values() if each.id not in known]
    for each in deployments:
        name = f"{each.application_name}-{each.id}"
        _write(folder, f"{name}.json", MessageToJson(each))
        _write(folder, f"{name}.log", await _logs(site, each))


async def _logs(site: Site, deployment: Deployment) -> str:
    """The logs of all stages."""
    parts = []
    for stage in deployment.stages:
        parts.append(f"--- stage {stage.index} {stage.name} {stage.id}")
        try:
            lines, is_closed = await stage_log(site, deployment, stage, limit=5)
        except Exception as error:  # noqa: BLE001 - as above
            parts.append(f"!!! not to be had: {error!r}")
        else:
            parts += [*lines, "--- closed" if is_closed else "--- not closed"]
    return _lines(parts)


def _readme(broken: Sequence[Broken]) -> str:
    first = broken[0]
    violations = "".join(f"- {each.violation}\n" for each in broken)
    return f"""# Round {first.plan.number} of seed {first.seed}

{violations}
What was drawn: {first.plan}

Draw it again, a few times, as the moments are the machine's:

    {first.again}

- `timeline.txt`: all that happened, with its time: injections, deaths, statuses as they were seen,
  events of scripts, records of scripts as they came and went
- `schedule.json`: the round as it was drawn
- `deployments/`: each deployment at the end, and the logs of its stages
- `piped*.log`, `server*.log`, `postgres.log`: what the programs wrote in this round
- `effects.txt`: what the scripts have done
- `scripts/`: the records that are left
- `processes.txt`: what lived when the round was judged

Python {sys.version.split()[0]}.
"""


def _schedule(plan: Round) -> str:
    return json.dumps(dataclasses.asdict(plan), indent=2)


def _moment(effect: Effect) -> Moment:
    whose = f"{effect.application} {effect.deployment}"
    what = f"script: {effect.event} {effect.index} of {whose}, pid {effect.pid}"
    return Moment(effect.at, what)


def _lines(texts: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def _write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def _copy_tail(log: Path, start: int, target: Path) -> None:
    if log.exists():
        with log.open("rb") as source, target.open("wb") as sink:
            source.seek(start)
            shutil.copyfileobj(source, sink)
