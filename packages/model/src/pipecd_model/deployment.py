# SPDX-License-Identifier: Apache-2.0
"""The rules of a deployment: which status may follow which, and what belongs to it.

All code that changes or reports a status uses these functions: the control plane before it stores
one, the agent before it sends one.
"""

from __future__ import annotations

from pipecd_model.errors import NotFoundError
from pipecd_wire.model import deployment_pb2 as pb

COMPLETED = frozenset({pb.DEPLOYMENT_SUCCESS, pb.DEPLOYMENT_FAILURE, pb.DEPLOYMENT_CANCELLED})


WAITS_FOR_DECISION = "waits for a person to retry, roll back or cancel, until "
"""What the reason of a deployment says whose failed stage is kept open (`onFailure: wait`)."""


def is_completed(status: pb.DeploymentStatus.ValueType) -> bool:
    """Returns whether it is over, so that nothing about it changes any more."""
    return status in COMPLETED


def can_become(status: pb.DeploymentStatus.ValueType, new: pb.DeploymentStatus.ValueType) -> bool:
    """Returns whether `new` may follow. An open status may follow itself: reports are repeated."""
    if new in COMPLETED:
        return status not in COMPLETED
    return status <= new


def is_begun(deployment: pb.Deployment) -> bool:
    """Returns whether the deployment has been planned, perhaps by another instance."""
    return deployment.status != pb.DEPLOYMENT_PENDING


def rank_in_queue(
    deployment: pb.Deployment, *, is_roll_back: bool = False, is_passed: bool = False
) -> tuple[int, int, int]:
    """Returns the sort key in the queue of an application.

    Begun, planned, the roll-back of a person, then by commit age; last those that one with an
    override passes.
    """
    if deployment.status in {pb.DEPLOYMENT_RUNNING, pb.DEPLOYMENT_ROLLING_BACK}:
        rank = 0
    elif deployment.status == pb.DEPLOYMENT_PLANNED:
        rank = 1
    else:
        rank = 2 if is_roll_back else 4 if is_passed else 3
    return rank, deployment.trigger.commit.created_at, deployment.trigger.timestamp


def find_stage_to_decide(deployment: pb.Deployment) -> pb.PipelineStage | None:
    """Returns the failed stage for which the deployment waits for a person; None when it does not.

    A person may retry that stage, roll the deployment back, or cancel it.
    """
    if deployment.status != pb.DEPLOYMENT_RUNNING:
        return None
    if WAITS_FOR_DECISION not in deployment.status_reason:
        return None
    if any(each.status == pb.STAGE_RUNNING for each in deployment.stages):
        return None
    failed = [each for each in deployment.stages if each.status == pb.STAGE_FAILURE]
    return failed[-1] if failed else None


def stage(deployment: pb.Deployment, stage_id: str) -> pb.PipelineStage:
    """Find a stage by its id."""
    for each in deployment.stages:
        if each.id == stage_id:
            return each
    raise NotFoundError(
        f"the deployment {deployment.id!r} has no stage {stage_id!r}",
        deployment_id=deployment.id,
        stage_id=stage_id,
    )
