# SPDX-License-Identifier: Apache-2.0
"""Act on a deployment, and watch it with its stage logs."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.auth.rights import Action, CallerRights, Resource
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import (
    decisions,
    deployment_commands,
    deployments,
    queue,
    stage_actions,
    stage_logs,
    waits,
)
from pipecd_controlplane.usecases.deployment_briefs import describe_wait
from pipecd_controlplane.usecases.deployment_diffs import DeploymentDiffs
from pipecd_controlplane.usecases.overview import can_answer
from pipecd_controlplane.usecases.rollbacks import RollBacks
from pipecd_controlplane.usecases.shared_state import ChangeBus, Presence
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import rpc


class V1DeploymentsApi:
    """Approve, skip, cancel, watch, follow, explain."""

    def __init__(
        self,
        stores: Stores,
        bus: ChangeBus,
        presence: Presence,
        roll_backs: RollBacks,
        diffs: DeploymentDiffs,
        rights: CallerRights,
        now: Now,
        *,
        seal_wait_seconds: float = stage_logs.SEAL_WAIT_SECONDS,
    ) -> None:
        self._stores = stores
        self._bus = bus
        self._presence = presence
        self._roll_backs = roll_backs
        self._diffs = diffs
        self._rights = rights
        self._now = now
        self._seal_wait_seconds = seal_wait_seconds

    @rpc("ApproveStage")
    async def approve_stage(
        self, caller: User, request: pb.ApproveStageRequest
    ) -> pb.ApproveStageResponse:
        issued = await deployment_commands.approve_stage(
            self._stores, caller, request.deployment_id, request.stage_id, request.comment
        )
        return pb.ApproveStageResponse(command_id=issued.id, stage_id=issued.stage_id)

    @rpc("SkipStage")
    async def skip_stage(self, caller: User, request: pb.SkipStageRequest) -> pb.SkipStageResponse:
        issued = await deployment_commands.skip_stage(
            self._stores, caller, request.deployment_id, request.stage_id, request.comment
        )
        return pb.SkipStageResponse(command_id=issued.id)

    @rpc("CancelDeployment")
    async def cancel_deployment(
        self, caller: User, request: pb.CancelDeploymentRequest
    ) -> pb.CancelDeploymentResponse:
        issued = await deployment_commands.cancel(
            self._stores,
            caller,
            request.deployment_id,
            force_rollback=request.force_rollback,
            force_no_rollback=request.force_no_rollback,
            comment=request.comment,
        )
        return pb.CancelDeploymentResponse(command_id=issued.id)

    @rpc("RetryStage")
    async def retry_stage(
        self, caller: User, request: pb.RetryStageRequest
    ) -> pb.RetryStageResponse:
        return await decisions.retry_stage(self._stores, self._presence, caller, request, self._now)

    @rpc("RollBackDeployment")
    async def roll_back_deployment(
        self, caller: User, request: pb.RollBackDeploymentRequest
    ) -> pb.RollBackDeploymentResponse:
        deployment = await deployments.get(self._stores, caller, request.deployment_id)
        return await self._roll_backs.roll_back_deployment(caller, deployment, request.reason)

    @rpc("GetDeploymentRecord")
    async def get_deployment_record(
        self, caller: User, request: pb.GetDeploymentRecordRequest
    ) -> pb.GetDeploymentRecordResponse:
        record = await stage_actions.get_record(self._stores, caller, request.deployment_id)
        return pb.GetDeploymentRecordResponse(record=record)

    @rpc("GetDeploymentDiff")
    async def get_deployment_diff(
        self, caller: User, request: pb.GetDeploymentDiffRequest
    ) -> pb.GetDeploymentDiffResponse:
        return await self._diffs.get(caller, request.deployment_id)

    @rpc("WatchDeployment")
    async def watch_deployment(
        self, caller: User, request: pb.WatchDeploymentRequest
    ) -> AsyncIterator[pb.WatchDeploymentResponse]:
        await deployments.get(self._stores, caller, request.deployment_id)
        watching = deployments.watch(
            self._stores, self._bus, caller.project_id, request.deployment_id
        )
        async with aclosing(watching) as seen:
            async for deployment in seen:
                yield pb.WatchDeploymentResponse(deployment=deployment)

    @rpc("ExplainWait")
    async def explain_wait(
        self, caller: User, request: pb.ExplainWaitRequest
    ) -> pb.ExplainWaitResponse:
        found = await waits.explain(
            self._stores, self._presence, caller, request.deployment_id, self._now
        )
        for wait in found:
            if wait.kind in {pb.Wait.APPROVAL, pb.Wait.DECISION}:
                wait.is_for_caller = await self._can_answer(caller, wait.deployment_id)
        return pb.ExplainWaitResponse(waits_for=found)

    async def _can_answer(self, caller: User, deployment_id: str) -> bool:
        deployment = await self._stores.deployments.find(caller.project_id, deployment_id)
        wait = describe_wait(deployment) if deployment is not None else None
        if deployment is None or wait is None:
            return False
        grant = await self._rights.find_grant(caller, Resource.DEPLOYMENT, Action.UPDATE)
        return can_answer(wait, deployment, caller.name, grant)

    @rpc("ListQueue")
    async def list_queue(self, caller: User, request: pb.ListQueueRequest) -> pb.ListQueueResponse:
        items = await queue.list_queue(self._stores, caller, request.piped_id)
        return pb.ListQueueResponse(items=items)

    @rpc("FollowStageLog")
    async def follow_stage_log(
        self, caller: User, request: pb.FollowStageLogRequest
    ) -> AsyncIterator[pb.FollowStageLogResponse]:
        await deployments.get(self._stores, caller, request.deployment_id)
        key = LogKey(
            deployment_id=request.deployment_id,
            stage_id=request.stage_id,
            retried_count=request.retried_count,
        )
        following = stage_logs.follow(
            self._stores,
            self._bus,
            caller.project_id,
            key,
            from_index=request.from_index,
            seal_wait_seconds=self._seal_wait_seconds,
        )
        async with aclosing(following) as parts:
            async for part in parts:
                yield pb.FollowStageLogResponse(blocks=part.blocks, completed=part.completed)
