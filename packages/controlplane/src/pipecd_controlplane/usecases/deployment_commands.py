# SPDX-License-Identifier: Apache-2.0
"""What people and programs ask of a deployment: cancel it, skip or approve one of its stages."""

from datetime import datetime

from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import commands, deployments, stage_actions
from pipecd_controlplane.usecases.requester import Requester
from pipecd_model import command
from pipecd_model.errors import ConfigError, StateError
from pipecd_wire.model import command_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import StageAction


async def cancel(
    stores: Stores,
    requester: Requester,
    deployment_id: str,
    *,
    force_rollback: bool,
    force_no_rollback: bool,
    comment: str = "",
) -> command_pb2.Command:
    """Ask the piped to cancel the deployment. Raises ConfigError when both ways are forced."""
    if force_rollback and force_no_rollback:
        raise ConfigError("invalid request: force_rollback and force_no_rollback are both set")
    deployment = await deployments.get(stores, requester, deployment_id)
    return await commands.issue(
        stores,
        requester,
        "CancelDeployment",
        lambda at: command.cancel(
            deployment,
            by=requester.name,
            at=at,
            force_rollback=force_rollback,
            force_no_rollback=force_no_rollback,
        ),
        stage_actions.recorder(stores, deployment, StageAction.CANCELLED, comment),
    )


async def skip_stage(
    stores: Stores, requester: Requester, deployment_id: str, stage_id: str, comment: str = ""
) -> command_pb2.Command:
    """Ask the piped to skip a stage that can be skipped."""
    deployment = await deployments.get(stores, requester, deployment_id)
    return await commands.issue(
        stores,
        requester,
        "SkipStage",
        lambda at: command.skip(deployment, stage_id, by=requester.name, at=at),
        stage_actions.recorder(stores, deployment, StageAction.SKIPPED, comment),
    )


async def approve_stage(
    stores: Stores, requester: Requester, deployment_id: str, stage_id: str, comment: str = ""
) -> command_pb2.Command:
    """Approve a stage; an empty `stage_id` is the one stage that waits for approval now."""
    deployment = await deployments.get(stores, requester, deployment_id)

    def make(at: datetime) -> command_pb2.Command:
        found = stage_id or find_stage_to_approve(deployment)
        return command.approve(deployment, found, by=requester.name, at=at)

    record_in = stage_actions.recorder(stores, deployment, StageAction.APPROVED, comment)
    return await commands.issue(stores, requester, "ApproveStage", make, record_in)


def find_stage_to_approve(deployment: pb.Deployment) -> str:
    """Returns the id of the one stage that waits for approval now.

    Raises StateError when none or several do.
    """
    waiting = [
        stage
        for stage in deployment.stages
        if stage.status == pb.STAGE_RUNNING
        and stage.available_operation == pb.MANUAL_OPERATION_APPROVE
    ]
    if not waiting:
        raise StateError(f"no stage of the deployment {deployment.id!r} waits for approval now")
    if len(waiting) > 1:
        raise StateError(
            f"{len(waiting)} stages of the deployment {deployment.id!r} wait for approval",
            hint=f"name one of {', '.join(stage.id for stage in waiting)}",
        )
    return waiting[0].id
