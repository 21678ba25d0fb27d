# SPDX-License-Identifier: Apache-2.0
"""Deployments, their logs, and what people ask of them."""

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.deployments import DeploymentFilter
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import deployment_commands, deployments, stage_logs
from pipecd_wire.rpc import rpc
from pipecd_wire.webservice import service_pb2 as pb


class WebDeploymentsApi:
    """Read deployments; cancel them, skip or approve their stages."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    @rpc("ListDeployments")
    async def list_deployments(
        self, caller: Person, request: pb.ListDeploymentsRequest
    ) -> pb.ListDeploymentsResponse:
        options = request.options
        wanted = DeploymentFilter(
            statuses=tuple(options.statuses),
            kinds=tuple(options.kinds),
            application_ids=tuple(options.application_ids),
            application_name=options.application_name,
            labels=dict(options.labels),
            updated_since=request.page_min_updated_at,
        )
        page = await self._stores.deployments.page(
            caller.project_id, wanted, limit=request.page_size, cursor=request.cursor
        )
        return pb.ListDeploymentsResponse(
            deployments=[each for each in page.items if caller.covers(each.labels)],
            cursor=page.cursor,
        )

    @rpc("GetDeployment")
    async def get_deployment(
        self, caller: Person, request: pb.GetDeploymentRequest
    ) -> pb.GetDeploymentResponse:
        deployment = await deployments.get(self._stores, caller, request.deployment_id)
        return pb.GetDeploymentResponse(deployment=deployment)

    @rpc("GetStageLog")
    async def get_stage_log(
        self, caller: Person, request: pb.GetStageLogRequest
    ) -> pb.GetStageLogResponse:
        deployment = await deployments.get(self._stores, caller, request.deployment_id)
        key = LogKey(
            deployment_id=deployment.id,
            stage_id=request.stage_id,
            retried_count=request.retried_count,
        )
        part = await stage_logs.read_from(
            self._stores, caller.project_id, key, request.offset_index
        )
        return pb.GetStageLogResponse(blocks=part.blocks, completed=part.completed)

    @rpc("CancelDeployment")
    async def cancel_deployment(
        self, caller: Person, request: pb.CancelDeploymentRequest
    ) -> pb.CancelDeploymentResponse:
        issued = await deployment_commands.cancel(
            self._stores,
            caller,
            request.deployment_id,
            force_rollback=request.force_rollback,
            force_no_rollback=request.force_no_rollback,
        )
        return pb.CancelDeploymentResponse(command_id=issued.id)

    @rpc("SkipStage")
    async def skip_stage(
        self, caller: Person, request: pb.SkipStageRequest
    ) -> pb.SkipStageResponse:
        issued = await deployment_commands.skip_stage(
            self._stores, caller, request.deployment_id, request.stage_id
        )
        return pb.SkipStageResponse(command_id=issued.id)

    @rpc("ApproveStage")
    async def approve_stage(
        self, caller: Person, request: pb.ApproveStageRequest
    ) -> pb.ApproveStageResponse:
        issued = await deployment_commands.approve_stage(
            self._stores, caller, request.deployment_id, request.stage_id
        )
        return pb.ApproveStageResponse(command_id=issued.id)
