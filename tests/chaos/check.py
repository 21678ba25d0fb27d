# SPDX-License-Identifier: Apache-2.0
"""What must hold at the end of a deployment, from its last statuses and the traces of its scripts.

Pure: `outcome.py` gathers what is judged here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chaos.applications import CANCELLED, PIPELINES, Effect, Stage
from chaos.promises import Violation
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage

SUCCESS = deployment_pb2.STAGE_SUCCESS
FAILURE = deployment_pb2.STAGE_FAILURE
STOPPED = deployment_pb2.STAGE_CANCELLED
INTERRUPTED = "interrupted"
SCRIPT_ROLLBACK = "SCRIPT_RUN_ROLLBACK"
UNTOUCHED = frozenset({deployment_pb2.STAGE_NOT_STARTED_YET, deployment_pb2.STAGE_SKIPPED})


def is_interrupted(stage: PipelineStage) -> bool:
    return stage.status == FAILURE and INTERRUPTED in stage.status_reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A deployment at its end, with all that its scripts have left behind."""

    deployment: Deployment
    effects: Sequence[Effect]
    lost_shims: int
    """How many shims have died in its round, of whichever deployment."""
    plan: Sequence[Stage] | None = None
    """Its pipeline, if that is not the one of its application."""
    stops: frozenset[str] | None = None
    """The kinds of stages that may be stopped, if its application does not tell; none of them, and
    it may still be cancelled between two stages."""

    @property
    def _may_be_cancelled(self) -> bool:
        return self.stops is not None or self.deployment.application_name == CANCELLED

    @property
    def _may_stop(self) -> frozenset[int]:
        """Stages that a person has stopped."""
        stops = {"SCRIPT_RUN"} if self.stops is None else self.stops
        return frozenset({STOPPED} if self._may_be_cancelled and "SCRIPT_RUN" in stops else ())

    def count(self, event: str, index: int) -> int:
        return sum(each.event == event and each.index == index for each in self.effects)

    def violations(self) -> Iterator[Violation]:
        """All that is wrong with it."""
        name = self.deployment.application_name
        plan = PIPELINES[name] if self.plan is None else self.plan
        stages = {stage.index: stage for stage in self.deployment.stages if not stage.rollback}
        where = f"{name} {self.deployment.id}"
        was_cancelled = self.deployment.status == deployment_pb2.DEPLOYMENT_CANCELLED
        if not stages and was_cancelled and self._may_be_cancelled and not self.effects:
            return  # before it was planned
        if sorted(stages) != list(range(len(plan))):
            reason = self.deployment.status_reason
            sentence = f"{where} has the stages {sorted(stages)}, {reason!r}"
            yield Violation(promise="outcome", sentence=sentence)
            return
        for index, each in enumerate(plan):
            if each.is_script:
                for promise, sentence in self._script(each, stages[index]):
                    yield Violation(promise=promise, sentence=f"{where} stage {index} {sentence}")
        yield from self._outcome(where, plan, stages)
        yield from self._rollback(where, plan, stages)

    def _script(self, plan: Stage, stage: PipelineStage) -> Iterator[tuple[str, str]]:
        begun, ended = self.count("begin", stage.index), self.count("end", stage.index)
        status = deployment_pb2.StageStatus.Name(stage.status)
        seen = f"began {begun} and ended {ended} times, and is {status} {stage.status_reason!r}"
        most = 1 + (self.lost_shims if plan.rerun else 0)
        if begun > most or ended > most:
            yield "once", seen
        if stage.status == SUCCESS and not (begun >= 1 and ended >= 1):
            yield "once", seen
        if stage.status == SUCCESS and plan.fails:
            yield "outcome", f"succeeded although its script fails, {seen}"
        if stage.status == FAILURE and not is_interrupted(stage):
            if not plan.fails:
                yield "outcome", f"failed although its script does not, {seen}"
            elif begun != 1 or ended != 1:
                yield "once", seen
        if is_interrupted(stage) and (not self.lost_shims or plan.rerun):
            yield "outcome", f"was interrupted although no shim has died, {seen}"
        if stage.status == STOPPED and (begun > 1 or ended > 1):
            yield "once", seen
        if stage.status in UNTOUCHED and begun:
            yield "outcome", seen
        if stage.status not in UNTOUCHED | {SUCCESS, FAILURE} | self._may_stop:
            yield "outcome", seen

    def _outcome(
        self, where: str, plan: Sequence[Stage], stages: dict[int, PipelineStage]
    ) -> Iterator[Violation]:
        failed = [index for index, stage in stages.items() if stage.status == FAILURE]
        stopped = [index for index, stage in stages.items() if stage.status == STOPPED]
        reached = [index for index, stage in stages.items() if stage.status not in UNTOUCHED]
        state = f"with failed stages {failed}, stopped {stopped} and reached {reached}"
        match self.deployment.status:
            case deployment_pb2.DEPLOYMENT_SUCCESS:
                is_right = not failed and not stopped and len(reached) == len(plan)
            case deployment_pb2.DEPLOYMENT_FAILURE:
                is_right = (
                    not stopped and reached == list(range(failed[0] + 1)) if failed else False
                )
                is_right = is_right and len(failed) == 1
            case deployment_pb2.DEPLOYMENT_CANCELLED:
                is_right = self._may_be_cancelled and not failed and len(stopped) <= 1
                is_right = is_right and reached == list(range(len(reached)))
                is_right = is_right and stopped in ([], reached[-1:])
                if self.stops is not None:
                    is_right = is_right and {plan[index].kind for index in stopped} <= self.stops
            case _:
                is_right = False
        if not is_right:
            status = deployment_pb2.DeploymentStatus.Name(self.deployment.status)
            sentence = f"{where} is {status} ({self.deployment.status_reason!r}), {state}"
            yield Violation(promise="outcome", sentence=sentence)

    def _rollback(
        self, where: str, plan: Sequence[Stage], stages: dict[int, PipelineStage]
    ) -> Iterator[Violation]:
        undone = [each.index for each in self.effects if each.event == "undo"]
        may = [
            index
            for index, each in enumerate(plan)
            if each.undo and stages[index].status not in UNTOUCHED
        ]
        if self.deployment.status == deployment_pb2.DEPLOYMENT_SUCCESS:
            may = []
        rollbacks = [stage for stage in self.deployment.stages if stage.rollback]
        lost = {stage.index for stage in rollbacks if is_interrupted(stage)}
        if len(lost) > self.lost_shims:
            sentence = f"{where} has interrupted rollbacks {sorted(lost)} although no shim has died"
            yield Violation(promise="outcome", sentence=sentence)
        # A shim that dies before its first command leaves no trace of the rollback that it kept,
        # and a stage that ended before its first command has nothing to be rolled back.
        must = [index for index in may if index not in lost and self.count("begin", index)]
        if undone != [index for index in may if index in undone] or not set(must) <= set(undone):
            sentence = f"{where} was rolled back in {undone} instead of {may}, lost {lost}"
            yield Violation(promise="rollback", sentence=sentence)
        # A platform rolls back whatever was begun, its own stages or not.
        is_begun = any(stage.status not in UNTOUCHED for stage in stages.values())
        is_over = self.deployment.status == deployment_pb2.DEPLOYMENT_SUCCESS
        for stage in rollbacks:
            if stage.name != SCRIPT_ROLLBACK and (stage.status == SUCCESS) != (
                is_begun and not is_over
            ):
                status = deployment_pb2.StageStatus.Name(stage.status)
                sentence = f"{where} has {stage.name} as {status} {stage.status_reason!r}"
                yield Violation(promise="rollback", sentence=sentence)
        events = [each.event.startswith("undo") for each in self.effects]
        if events != sorted(events):
            sentence = f"{where} has the events {[(e.event, e.index) for e in self.effects]}"
            yield Violation(promise="rollback", sentence=sentence)


def log_violation(lines: Sequence[str], expected: int, *, is_whole: bool) -> str:
    """What is wrong with the numbered lines of a stage log, empty for nothing."""
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line ")]
    wanted = list(range(1, expected + 1))
    if numbers == (wanted if is_whole else wanted[: len(numbers)]):
        return ""
    return f"holds the lines {numbers} instead of 1 to {expected}"
