# SPDX-License-Identifier: Apache-2.0
"""The rules of a deployment: which status may follow which, and what belongs to it.

All code that changes or reports a status uses these functions: the control plane before it stores
one, the agent before it sends one.
"""

from __future__ import annotations

from pipecd_model.errors import NotFoundError
from pipecd_wire.model import deployment_pb2 as pb

COMPLETED = frozenset({pb.DEPLOYMENT_SUCCESS, pb.DEPLOYMENT_FAILURE, pb.DEPLOYMENT_CANCELLED})


def is_completed(status: pb.DeploymentStatus.ValueType) -> bool:
    """Returns whether it is over, so that nothing about it changes any more."""
    return status in COMPLETED


def can_become(status: pb.DeploymentStatus.ValueType, new: pb.DeploymentStatus.ValueType) -> bool:
    """Returns whether `new` may follow. An open status may follow itself: reports are repeated."""
    if new in COMPLETED:
        return status not in COMPLETED
    return status <= new


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
