# SPDX-License-Identifier: Apache-2.0
"""The rules of a stage: which status may follow which, and which rollback stages run, in order.

The agent's schedule runs the stages that `rollback_stages` returns; a simulation uses the same
function.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipecd_wire.model import deployment_pb2 as pb

SCRIPT_RUN = "SCRIPT_RUN"
SCRIPT_RUN_ROLLBACK = "SCRIPT_RUN_ROLLBACK"
ROLLBACK = "ROLLBACK"  # what every platform's rollback was called in stored older deployments

PLUGIN_KEY = "pipecd/plugin"
"""Key in a stage's metadata: the plugin that was chosen for it, kept for resume and rollback."""

COMPLETED = frozenset(
    {
        pb.STAGE_SUCCESS,
        pb.STAGE_FAILURE,
        pb.STAGE_CANCELLED,
        pb.STAGE_SKIPPED,
        pb.STAGE_EXITED,
    }
)
_OPEN = frozenset({pb.STAGE_NOT_STARTED_YET, pb.STAGE_RUNNING})
# A skipped stage did nothing, so there is nothing to undo.
_STARTED = frozenset({pb.STAGE_RUNNING}) | COMPLETED - {pb.STAGE_SKIPPED}


def is_completed(status: pb.StageStatus.ValueType) -> bool:
    """Returns whether the stage has ended."""
    return status in COMPLETED


def can_become(status: pb.StageStatus.ValueType, new: pb.StageStatus.ValueType) -> bool:
    """Returns whether `new` may follow. An end is final; until then reports may be repeated."""
    if new == pb.STAGE_NOT_STARTED_YET:
        return status == pb.STAGE_NOT_STARTED_YET
    return status in _OPEN


def can_follow(stage: pb.PipelineStage, new: pb.StageStatus.ValueType, retried_count: int) -> bool:
    """Returns whether a stage may get a status in the attempt of this number.

    A new attempt begins with RUNNING, after a failure. What belongs to an earlier one is too late.
    """
    if retried_count < stage.retried_count:
        return False
    is_next = retried_count == stage.retried_count + 1
    if is_next and stage.status == pb.STAGE_FAILURE and new == pb.STAGE_RUNNING:
        return True
    return can_become(stage.status, new)


def has_started(stage: pb.PipelineStage) -> bool:
    """Returns whether the stage has begun to do something that may have to be undone."""
    return stage.status in _STARTED


def is_rollback(stage: pb.PipelineStage) -> bool:
    """Returns whether the stage runs only when the deployment fails or is cancelled."""
    return stage.rollback or stage.name in {ROLLBACK, SCRIPT_RUN_ROLLBACK}


def format_stage_number(stage: pb.PipelineStage) -> str:
    """Returns the number that people see: `3` for the third stage, `3r` for its rollback.

    The one rollback stage of a v0 piped undoes all of them, and its index says nothing.
    """
    if stage.name == ROLLBACK and not stage.rollback:
        return "r"
    return f"{stage.index + 1}{'r' if is_rollback(stage) else ''}"


def forward_stages(deployment: pb.Deployment) -> tuple[pb.PipelineStage, ...]:
    """Returns the stages that are no rollback stages, in the order in which they run."""
    return tuple(stage for stage in deployment.stages if not is_rollback(stage))


def rollback_stages(deployment: pb.Deployment) -> tuple[pb.PipelineStage, ...]:
    """Returns the rollback stages that run if the deployment stops now, in their order.

    First every platform's rollback, then the rollback of each script that had started, both in
    pipeline order. Those that have ended already are listed too: an agent that resumes after a
    restart skips them.
    """
    untouched = {each.index for each in forward_stages(deployment) if not has_started(each)}
    return tuple(
        each
        for each in sort_rollback_stages(deployment.stages)
        if each.name != SCRIPT_RUN_ROLLBACK or each.index not in untouched
    )


def sort_rollback_stages(stages: Iterable[pb.PipelineStage]) -> tuple[pb.PipelineStage, ...]:
    """Returns the rollback stages among `stages`, in the order in which they run."""
    return tuple(
        sorted(
            (each for each in stages if is_rollback(each)),
            key=lambda each: (each.name == SCRIPT_RUN_ROLLBACK, each.index),
        )
    )
