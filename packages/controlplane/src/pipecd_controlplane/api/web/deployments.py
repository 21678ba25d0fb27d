# SPDX-License-Identifier: Apache-2.0
"""Deployments, their logs, and what people ask of them."""

from collections.abc import Callable
from datetime import datetime

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.deployments import DeploymentFilter
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import commands, stage_log_reads
from pipecd_model import command
from pipecd_model.errors import ConfigError
from pipecd_wire.model import command_pb2, deployment_pb2
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
        return pb.GetDeploymentResponse(deployment=await self._get(caller, request.deployment_id))

    @rpc("GetStageLog")
    async def get_stage_log(
        self, caller: Person, request: pb.GetStageLogRequest
    ) -> pb.GetStageLogResponse:
        deployment = await self._get(caller, request.deployment_id)
        key = LogKey(
            deployment_id=deployment.id,
            stage_id=request.stage_id,
            retried_count=request.retried_count,
        )
        part = await stage_log_reads.from_index(
            self._stores, caller.project_id, key, request.offset_index
        )
        return pb.GetStageLogResponse(blocks=part.blocks, completed=part.completed)

    @rpc("CancelDeployment")
    async def cancel_deployment(
        self, caller: Person, request: pb.CancelDeploymentRequest
    ) -> pb.CancelDeploymentResponse:
        if request.force_rollback and request.force_no_rollback:
            raise ConfigError("invalid request: force_rollback and force_no_rollback are both set")
        deployment = await self._get(caller, request.deployment_id)
        issued = await self._issue(
            caller,
            "CancelDeployment",
            lambda at: command.cancel(
                deployment,
                by=caller.name,
                at=at,
                force_rollback=request.force_rollback,
                force_no_rollback=request.force_no_rollback,
            ),
        )
        return pb.CancelDeploymentResponse(command_id=issued.id)

    @rpc("SkipStage")
    async def skip_stage(
        self, caller: Person, request: pb.SkipStageRequest
    ) -> pb.SkipStageResponse:
        deployment = await self._get(caller, request.deployment_id)
        issued = await self._issue(
            caller,
            "SkipStage",
            lambda at: command.skip(deployment, request.stage_id, by=caller.name, at=at),
        )
        return pb.SkipStageResponse(command_id=issued.id)

    @rpc("ApproveStage")
    async def approve_stage(
        self, caller: Person, request: pb.ApproveStageRequest
    ) -> pb.ApproveStageResponse:
        deployment = await self._get(caller, request.deployment_id)
        issued = await self._issue(
            caller,
            "ApproveStage",
            lambda at: command.approve(deployment, request.stage_id, by=caller.name, at=at),
        )
        return pb.ApproveStageResponse(command_id=issued.id)

    async def _get(self, caller: Person, deployment_id: str) -> deployment_pb2.Deployment:
        deployment = await self._stores.deployments.get(caller.project_id, deployment_id)
        caller.check("deployment", deployment_id, deployment.labels)
        return deployment

    async def _issue(
        self, caller: Person, method: str, make: Callable[[datetime], command_pb2.Command]
    ) -> command_pb2.Command:
        return await commands.issue(
            self._stores.commands, caller.project_id, caller.request_id(method), make
        )
