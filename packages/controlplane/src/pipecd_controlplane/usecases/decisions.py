# SPDX-License-Identifier: Apache-2.0
"""What a person decides about a deployment that is kept open after a failure."""

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import applications, deployments, limits, stage_actions
from pipecd_controlplane.usecases.requester import Requester
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_controlplane.usecases.watching import check_watches
from pipecd_model.deployment import find_stage_to_decide
from pipecd_model.errors import StateError
from pipecd_model.ids import new_id
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.control.control_pb2 import StageAction
from pipecd_wire.pipecd.push import push_pb2


async def retry_stage(
    stores: Stores,
    presence: Presence,
    requester: Requester,
    request: api_pb2.RetryStageRequest,
    now: Now,
) -> api_pb2.RetryStageResponse:
    """Ask the piped to run a failed stage again, as a new attempt.

    A call that is repeated with its idempotency key makes one command.
    """
    deployment = await deployments.get(stores, requester, request.deployment_id)
    limits.text("comment", request.comment, limits.CONTEXT)
    command_id = requester.request_id("RetryStage") or new_id()
    if known := await stores.push_commands.find(requester.project_id, command_id):
        return _describe(known.command)
    application = await applications.get(stores, requester, deployment.application_id)
    await check_watches(stores, presence, application, "retry a stage", now)
    stage = find_stage_to_decide(deployment)
    if stage is None or request.stage_id not in ("", stage.id):
        what = f"the stage {request.stage_id!r}" if request.stage_id else "no stage"
        verb = "does not wait" if request.stage_id else "waits"
        raise StateError(
            f"{what} of the deployment {deployment.id!r} {verb} to be retried",
            hint="only a deployment that is kept open after a failure has one: `onFailure: wait`",
        )
    command = push_pb2.Command(
        id=command_id,
        type=push_pb2.Command.RETRY_STAGE,
        stage_id=stage.id,
        attempt=stage.retried_count + 1,
        reason=request.comment,
    )
    return _describe(await decide_open(stores, requester, deployment, command, at=now()))


async def decide_open(
    stores: Stores,
    requester: Requester,
    deployment: Deployment,
    command: push_pb2.Command,
    *,
    at: int,
) -> push_pb2.Command:
    """Add a command on an open deployment, and the action to its record; returns the command."""
    command.application_id = deployment.application_id
    command.deployment_id = deployment.id
    command.commander = requester.name
    command.created_at.CopyFrom(Timestamp(seconds=at))
    is_retry = command.type == push_pb2.Command.RETRY_STAGE
    action = StageAction(
        kind=StageAction.RETRIED if is_retry else StageAction.ROLLED_BACK,
        stage_id=command.stage_id,
        by=command.commander,
        at=command.created_at,
        comment=command.reason,
        command_id=command.id,
        attempt=command.attempt,
    )

    async def work(transaction: Transaction) -> None:
        await stores.push_commands.add_in(
            transaction, requester.project_id, deployment.piped_id, command
        )
        await stage_actions.append_in(stores, transaction, deployment, action)

    await stores.database.write(work)
    return command


def _describe(command: push_pb2.Command) -> api_pb2.RetryStageResponse:
    return api_pb2.RetryStageResponse(
        command_id=command.id, stage_id=command.stage_id, attempt=command.attempt
    )
