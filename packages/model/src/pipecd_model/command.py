# SPDX-License-Identifier: Apache-2.0
"""Builds the commands that a person sends to an agent; refuses impossible and forbidden ones.

The control plane builds commands with these functions, stores them and delivers them to the agent.
"""

from __future__ import annotations

from datetime import datetime

from pipecd_model import deployment as deployments
from pipecd_model import stage as stages
from pipecd_model.errors import DeniedError, StateError
from pipecd_model.ids import new_id
from pipecd_wire.model import application_pb2, command_pb2, common_pb2, deployment_pb2
from pipecd_wire.model.command_pb2 import Command

APPROVERS = "Approvers"  # where stored older stages keep who may approve, separated by commas
_APPROVAL = "WAIT_APPROVAL"
_SKIPPABLE = "ANALYSIS"


def is_handled(command: Command) -> bool:
    """Returns whether the agent has reported the result of the command."""
    return command.status != command_pb2.COMMAND_NOT_HANDLED_YET


def sync(
    application: application_pb2.Application,
    *,
    by: str,
    at: datetime,
    strategy: common_pb2.SyncStrategy.ValueType = common_pb2.AUTO,
) -> Command:
    """Returns a command to deploy the application now.

    Raises StateError when the application is disabled or deleted.
    """
    if application.disabled or application.deleted:
        state = "deleted" if application.deleted else "disabled"
        raise StateError(
            f"the application {application.name!r} is {state}", application_id=application.id
        )
    command = _command(Command.SYNC_APPLICATION, application.piped_id, by=by, at=at)
    command.project_id = application.project_id
    command.application_id = application.id
    command.sync_application.application_id = application.id
    command.sync_application.sync_strategy = strategy
    return command


def cancel(
    deployment: deployment_pb2.Deployment,
    *,
    by: str,
    at: datetime,
    force_rollback: bool = False,
    force_no_rollback: bool = False,
) -> Command:
    """Returns a command to stop the deployment. Raises StateError when it is over.

    Whether it is rolled back follows its configuration unless forced.
    """
    _still_open(deployment)
    command = _for_deployment(Command.CANCEL_DEPLOYMENT, deployment, by=by, at=at)
    command.cancel_deployment.deployment_id = deployment.id
    command.cancel_deployment.force_rollback = force_rollback
    command.cancel_deployment.force_no_rollback = force_no_rollback
    return command


def approve(
    deployment: deployment_pb2.Deployment, stage_id: str, *, by: str, at: datetime
) -> Command:
    """Returns a command that approves a waiting stage.

    Raises StateError when the stage is over or waits for no approval, DeniedError when `by` is
    not one of its approvers.
    """
    stage = _open_stage(deployment, stage_id)
    if not _can_be_approved(stage):
        raise StateError(f"the stage {stage.name} waits for no approval", stage_id=stage_id)
    allowed = approvers(stage)
    if allowed and by not in allowed:
        raise DeniedError(
            f"{by!r} may not approve this stage",
            hint=f"it waits for {', '.join(allowed)}",
            stage_id=stage_id,
        )
    command = _for_deployment(Command.APPROVE_STAGE, deployment, by=by, at=at)
    command.stage_id = stage_id
    command.approve_stage.deployment_id = deployment.id
    command.approve_stage.stage_id = stage_id
    return command


def skip(deployment: deployment_pb2.Deployment, stage_id: str, *, by: str, at: datetime) -> Command:
    """Returns a command to end a stage early, as if it had succeeded.

    Raises StateError when the stage is over or cannot be skipped.
    """
    stage = _open_stage(deployment, stage_id)
    if not _can_be_skipped(stage):
        raise StateError(f"the stage {stage.name} cannot be skipped", stage_id=stage_id)
    command = _for_deployment(Command.SKIP_STAGE, deployment, by=by, at=at)
    command.stage_id = stage_id
    command.skip_stage.deployment_id = deployment.id
    command.skip_stage.stage_id = stage_id
    return command


def approvers(stage: deployment_pb2.PipelineStage) -> tuple[str, ...]:
    """Returns the names of those who may approve the stage; empty means everybody."""
    if stage.authorized_operators:
        return tuple(stage.authorized_operators)
    names = stage.metadata.get(APPROVERS, "").split(",")
    return tuple(name.strip() for name in names if name.strip())


def _can_be_approved(stage: deployment_pb2.PipelineStage) -> bool:
    # Stages of older agents carry no operation: there the name decides.
    if stage.available_operation == deployment_pb2.MANUAL_OPERATION_UNKNOWN:
        return stage.name == _APPROVAL
    return stage.available_operation == deployment_pb2.MANUAL_OPERATION_APPROVE


def _can_be_skipped(stage: deployment_pb2.PipelineStage) -> bool:
    if stage.available_operation == deployment_pb2.MANUAL_OPERATION_UNKNOWN:
        return stage.name == _SKIPPABLE
    return stage.available_operation == deployment_pb2.MANUAL_OPERATION_SKIP


def _still_open(deployment: deployment_pb2.Deployment) -> None:
    if deployments.is_completed(deployment.status):
        raise StateError(
            f"the deployment {deployment.id!r} is over already", deployment_id=deployment.id
        )


def _open_stage(
    deployment: deployment_pb2.Deployment, stage_id: str
) -> deployment_pb2.PipelineStage:
    _still_open(deployment)
    stage = deployments.stage(deployment, stage_id)
    if stages.is_completed(stage.status):
        raise StateError(f"the stage {stage.name} is over already", stage_id=stage_id)
    return stage


def _for_deployment(
    kind: Command.Type.ValueType, deployment: deployment_pb2.Deployment, *, by: str, at: datetime
) -> Command:
    command = _command(kind, deployment.piped_id, by=by, at=at)
    command.project_id = deployment.project_id
    command.application_id = deployment.application_id
    command.deployment_id = deployment.id
    return command


def _command(kind: Command.Type.ValueType, piped_id: str, *, by: str, at: datetime) -> Command:
    seconds = int(at.timestamp())
    return Command(
        id=new_id(),
        type=kind,
        piped_id=piped_id,
        commander=by,
        created_at=seconds,
        updated_at=seconds,
    )
