# SPDX-License-Identifier: Apache-2.0
"""Applications whose stages run on a plugin of another maker, and what must come of them.

The plugin is `pipecd_test_support.go_plugin`, which has the habits of one made with the Go SDK: no
Ready, no ping, no record of its scripts, children that nobody ends with it. It runs a stage again
after a death, which is what its makers promise; beside itself it never does.

A script holds a lock while it lives, and so does a silent child of it: whoever comes while the lock
is held leaves the event `beside`. All stages of a deployment share the lock, its rollback as well.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.promises import Violation
from pipecd_runtime.ports import pick_port
from pipecd_test_support.programs import GO_PLUGIN
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage

PLUGIN = "foreign"
KIND = "FOREIGN_RUN"
ROLLBACK = f"{KIND}_ROLLBACK"
TICK_SECONDS = 0.1
UNTOUCHED = frozenset({deployment_pb2.STAGE_NOT_STARTED_YET, deployment_pb2.STAGE_SKIPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignStage:
    """One stage; it prints numbered lines, and has something to undo."""

    lines: int
    pause: float
    """Seconds after each line."""
    fails: bool = False
    kind: str = KIND


CANCELLED = "foreign-cancelled"
"""The one that a person cancels in the middle."""
APPLICATIONS: dict[str, tuple[ForeignStage, ...]] = {
    "foreign": (
        ForeignStage(lines=8, pause=0.05),
        ForeignStage(lines=10, pause=0.05, fails=True),
    ),
    CANCELLED: (ForeignStage(lines=3, pause=0.05), ForeignStage(lines=40, pause=0.1)),
}


def configuration(root: Path) -> str:
    """The plugin, as piped's configuration names it."""
    file = root / PLUGIN
    file.write_text(f"#!{sys.executable}\n{GO_PLUGIN.read_text()}")
    file.chmod(0o755)
    return (
        f"    - name: {PLUGIN}\n      url: file://{file}\n      port: {pick_port()}\n"
        f"      config:\n        stage: {KIND}\n        tick: {TICK_SECONDS:g}\n"
    )


def subject(nonce: str) -> str:
    """What stands for the deployment in an event: such a plugin does not tell its id to scripts."""
    return nonce.replace(" ", "-")


def stage_text(stage: ForeignStage, index: int, file: Path, nonce: str) -> str:
    """The stage in the application file."""
    about = f"{subject(nonce)} {index} $$ $(date +%s.%N)"
    lock = f"{file}.{subject(nonce)}.lock"
    alone = f'exec 9>>{lock}; flock --nonblock 9 || echo "beside {about}" >> {file}'
    # It says nothing, so that it does not notice when nobody listens any more.
    child = "sleep 1000 > /dev/null 2>&1 & child=$!"
    lines = (
        f"i=1; while [ $i -le {stage.lines} ]; do "
        f'echo "line $i"; sleep {stage.pause:g}; i=$((i + 1)); done'
    )
    forward = [
        alone,
        f'echo "begin {about}" >> {file}',
        child,
        lines,
        "kill $child; wait $child 2> /dev/null",
        f'echo "end {about}" >> {file}',
        f"exit {3 if stage.fails else 0}",
    ]
    back = [
        alone,
        f'echo "undo {about}" >> {file}',
        "sleep 0.1",
        f'echo "undone {about}" >> {file}',
    ]
    return (
        f"      - name: {stage.kind}\n        with:\n"
        f"          run: |\n{_indented(forward)}          onRollback: |\n{_indented(back)}"
    )


def _indented(lines: Sequence[str]) -> str:
    return "".join(f"            {line}\n" for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignEnded:
    """A deployment of such an application at its end, with the events of its scripts in order."""

    deployment: Deployment
    events: Sequence[tuple[str, int]]
    """Event and index of the stage."""

    def violations(self) -> Iterator[Violation]:
        """All that is wrong with it."""
        name = self.deployment.application_name
        where = f"{name} {self.deployment.id}"
        stages = {stage.index: stage for stage in self.deployment.stages if not stage.rollback}
        was_cancelled = self.deployment.status == deployment_pb2.DEPLOYMENT_CANCELLED
        if not stages and was_cancelled and name == CANCELLED and not self.events:
            return  # before it was planned
        for promise, sentence in self._broken(stages):
            text = f"{where} {sentence}; its events are {list(self.events)}"
            yield Violation(promise=promise, sentence=text)

    def _broken(self, stages: dict[int, PipelineStage]) -> Iterator[tuple[str, str]]:
        plan = APPLICATIONS[self.deployment.application_name]
        if sorted(stages) != list(range(len(plan))):
            yield "outcome", f"has the stages {sorted(stages)}"
            return
        if any(event == "beside" for event, _ in self.events):
            yield "beside", "ran beside itself, or beside what was to be over"
        for index, stage in stages.items():
            yield from self._stage(plan[index], stage)
        yield from self._status(stages)
        undoes = [event.startswith("undo") for event, _ in self.events if event != "beside"]
        if undoes != sorted(undoes):
            yield "rollback", "was not over when its rollback began"
        undone = [index for event, index in self.events if event == "undone"]
        begun = {index for event, index in self.events if event == "begin"}
        # One that died before its first command counts as started all the same.
        reached = {index for index, stage in stages.items() if stage.status not in UNTOUCHED}
        is_over = self.deployment.status == deployment_pb2.DEPLOYMENT_SUCCESS
        must, may = (set(), set()) if is_over else (begun, reached)
        if undone != sorted(undone) or not must <= set(undone) <= may:
            yield "rollback", f"was rolled back in {undone}"

    def _stage(self, plan: ForeignStage, stage: PipelineStage) -> Iterator[tuple[str, str]]:
        status = deployment_pb2.StageStatus.Name(stage.status)
        seen = f"stage {stage.index} is {status} {stage.status_reason!r}"
        has_begun = ("begin", stage.index) in self.events
        has_ended = ("end", stage.index) in self.events
        match stage.status:
            case deployment_pb2.STAGE_SUCCESS:
                if plan.fails or not has_ended:
                    yield "outcome", seen
            case deployment_pb2.STAGE_FAILURE:
                if not plan.fails or not has_ended:
                    yield "outcome", seen
            case deployment_pb2.STAGE_CANCELLED:
                if self.deployment.application_name != CANCELLED:
                    yield "outcome", seen
            case deployment_pb2.STAGE_NOT_STARTED_YET | deployment_pb2.STAGE_SKIPPED:
                if has_begun:
                    yield "outcome", seen
            case _:
                yield "outcome", seen

    def _status(self, stages: dict[int, PipelineStage]) -> Iterator[tuple[str, str]]:
        plan = APPLICATIONS[self.deployment.application_name]
        wanted = {
            deployment_pb2.DEPLOYMENT_FAILURE
            if any(stage.fails for stage in plan)
            else deployment_pb2.DEPLOYMENT_SUCCESS
        }
        if self.deployment.application_name == CANCELLED:
            wanted.add(deployment_pb2.DEPLOYMENT_CANCELLED)
        if self.deployment.status not in wanted:
            status = deployment_pb2.DeploymentStatus.Name(self.deployment.status)
            yield "outcome", f"is {status} ({self.deployment.status_reason!r})"


def log_violation(lines: Sequence[str], expected: int, *, is_whole: bool) -> str:
    """What is wrong with the numbered lines of a stage log, empty for nothing.

    Each run begins anew. Of one that was lost the last lines may be missing, as they had not left
    the plugin; of the one that counts none.
    """
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line ")]
    runs: list[list[int]] = []
    for number in numbers:
        if number == 1 or not runs:
            runs.append([])
        runs[-1].append(number)
    wanted = list(range(1, expected + 1))
    is_right = all(run == wanted[: len(run)] for run in runs)
    if is_right and (not is_whole or (runs and runs[-1] == wanted)):
        return ""
    return f"holds the lines {numbers} instead of runs from 1 to {expected}"
