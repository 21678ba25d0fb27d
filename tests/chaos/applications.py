# SPDX-License-Identifier: Apache-2.0
"""The applications of a site: pipelines whose scripts leave traces outside, and what must come of
them.

A script appends one line per event to the file of its application: `begin`, `end` or `undo`, the
deployment, the stage's index, the shell's pid and the time. It prints numbered lines, which the
stage log must hold, each once and in order.
"""

from dataclasses import dataclass
from pathlib import Path

from chaos import foreign

EXIT_CODE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a pipeline."""

    kind: str = "SCRIPT_RUN"
    lines: int = 0
    """How many numbered lines the script prints."""
    pause: float = 0.0
    """Seconds after each line, or how long a WAIT or a dummy stage takes."""
    undo: bool = False
    """Has it an onRollback?"""
    fails: bool = False
    rerun: bool = False
    """May it run again after an interruption?"""
    timed: bool = False
    """Does each line tell when it was printed?"""

    @property
    def is_script(self) -> bool:
        return self.kind == "SCRIPT_RUN"


def script(lines: int, pause: float, *, undo: bool = False, fails: bool = False) -> Stage:
    return Stage(lines=lines, pause=pause, undo=undo, fails=fails)


APPLICATIONS: dict[str, tuple[Stage, ...]] = {
    "steady": (script(20, 0.05), script(0, 0), script(10, 0.1, undo=True)),
    "quick": tuple(script(3, 0.0, undo=True) for _ in range(5)),
    "failing": (
        script(2, 0.05, undo=True),
        script(1, 0.0),
        script(5, 0.05, undo=True),
        script(10, 0.05, undo=True, fails=True),
        script(1, 0.0, undo=True),
    ),
    "waiting": (
        Stage(kind="WAIT", pause=1.0),
        script(5, 0.05, undo=True),
        Stage(kind="WAIT", pause=0.5),
    ),
    "approved": (script(3, 0.0), Stage(kind="WAIT_APPROVAL"), script(8, 0.05, undo=True)),
    "rerun": (Stage(lines=15, pause=0.06, rerun=True), Stage(lines=1, rerun=True)),
    "platform": (
        Stage(kind="DUMMY_CANARY_ROLLOUT", pause=0.8),
        script(8, 0.05, undo=True),
        Stage(kind="DUMMY_PRIMARY_ROLLOUT", pause=0.5),
    ),
    "cancelled": (script(3, 0.05, undo=True), script(40, 0.1, undo=True), script(1, 0, undo=True)),
}
BEACON = "beacon"
"""Tells every few hundredths of a second that it is seen; see `back.py`."""
PIPELINES = {**APPLICATIONS, BEACON: (Stage(lines=120, pause=0.05, timed=True),)}
CANCELLED = "cancelled"
"""The one that a person cancels in the middle."""
ALL_CANCELLED = frozenset({CANCELLED, foreign.CANCELLED})
ALL_NAMES = (*APPLICATIONS, *foreign.APPLICATIONS)
"""Of the applications of a site, those of a plugin of another maker as well."""


def document(name: str, effects: Path, nonce: str) -> str:
    """The application file."""
    file = effects / name
    if name in foreign.APPLICATIONS:
        stages = "".join(
            foreign.stage_text(stage, index, file, nonce)
            for index, stage in enumerate(foreign.APPLICATIONS[name])
        )
    else:
        stages = "".join(
            stage_text(stage, index, file) for index, stage in enumerate(PIPELINES[name])
        )
    return (
        f"# {nonce}\napiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n  name: {name}\n"
        f"  planner:\n    alwaysUsePipeline: true\n  pipeline:\n    stages:\n{stages}"
    )


def stage_text(stage: Stage, index: int, file: Path) -> str:
    """The stage in the application file."""
    head = f"      - name: {stage.kind}\n"
    match stage.kind:
        case "WAIT":
            return f"{head}        with:\n          duration: {int(stage.pause * 1000)}ms\n"
        case "WAIT_APPROVAL":
            return head
        case "SCRIPT_RUN":
            return head + _script(stage, index, file)
    return f"{head}        with:\n          sleep: {int(stage.pause * 1000)}ms\n"


def _script(stage: Stage, index: int, file: Path) -> str:
    # One write each, to a file opened for appending: lines never mix.
    body = [event("begin", index, file)]
    if stage.lines:
        sleep = f"; sleep {stage.pause:g}" if stage.pause else ""
        time = " $(date +%s.%N)" if stage.timed else ""
        body.append(
            f"i=1; while [ $i -le {stage.lines} ]; do "
            f'echo "line $i{time}"{sleep}; i=$((i + 1)); done'
        )
    body.append(event("end", index, file))
    if stage.fails:
        body.append(f"exit {EXIT_CODE}")
    text = "        with:\n          run: |\n" + "".join(f"            {line}\n" for line in body)
    if stage.undo:
        text += (
            "          onRollback: |\n"
            f"            {event('undo', index, file)}\n"
            f"            sleep 0.1\n"
            f"            {event('undone', index, file)}\n"
        )
    if stage.rerun:
        text += "          onInterrupted: rerun\n"
    return text


def event(name: str, index: int, file: Path) -> str:
    """The command that leaves one line."""
    return f'echo "{name} $SR_DEPLOYMENT_ID {index} $$ $(date +%s.%N)" >> {file}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One line that a script has left."""

    event: str
    deployment: str
    index: int
    pid: int
    at: float = 0.0
    """Unix seconds."""
    application: str = ""


def read_effects(effects: Path) -> list[Effect]:
    """All lines, in the order of each application."""
    found = []
    for file in sorted(each for each in effects.iterdir() if not each.suffix):
        name = file.name
        for line in file.read_text().splitlines() if file.exists() else ():
            what, deployment, index, pid, at = line.split()
            found.append(
                Effect(
                    event=what,
                    deployment=deployment,
                    index=int(index),
                    pid=int(pid),
                    at=float(at),
                    application=name,
                )
            )
    return found
