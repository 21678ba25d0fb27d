# SPDX-License-Identifier: Apache-2.0
"""Deployments, their logs and commands, by API key or session."""

from pipecd_controlplane.api.apiservice.applications import kind_of
from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.store.deployments import DeploymentFilter
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import deployments, stage_logs
from pipecd_model.errors import ConfigError
from pipecd_model.stage import ROLLBACK
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import deployment_pb2
from pipecd_wire.rpc import rpc


class ProgramDeploymentsApi:
    """Read deployments, stage logs and commands."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("GetDeployment")
    async def get_deployment(
        self, caller: User, request: pb.GetDeploymentRequest
    ) -> pb.GetDeploymentResponse:
        deployment = await deployments.get(self._stores, caller, request.deployment_id)
        return pb.GetDeploymentResponse(deployment=deployment)

    @rpc("ListDeployments")
    async def list_deployments(
        self, caller: User, request: pb.ListDeploymentsRequest
    ) -> pb.ListDeploymentsResponse:
        wanted = DeploymentFilter(
            statuses=tuple(status_of(name) for name in request.statuses),
            kinds=tuple(kind_of(name) for name in request.kinds),
            application_ids=tuple(request.application_ids),
            application_name=request.application_name,
            labels=dict(request.labels),
        )
        page = await self._stores.deployments.page(
            caller.project_id, wanted, limit=request.limit, cursor=request.cursor
        )
        return pb.ListDeploymentsResponse(
            deployments=[each for each in page.items if caller.covers(each.labels)],
            cursor=page.cursor,
        )

    @rpc("ListStageLogs")
    async def list_stage_logs(
        self, caller: User, request: pb.ListStageLogsRequest
    ) -> pb.ListStageLogsResponse:
        deployment = await deployments.get(self._stores, caller, request.deployment_id)
        logs = await stage_logs.read_whole(self._stores, deployment, self._now)
        names = {stage.id: stage.name for stage in deployment.stages}
        return pb.ListStageLogsResponse(
            stage_logs={
                stage_id: pb.StageLog(blocks=log.blocks, completed=log.completed)
                for stage_id, log in logs.items()
                if log.blocks or log.completed or names[stage_id] != ROLLBACK
            }
        )

    @rpc("GetCommand")
    async def get_command(
        self, caller: User, request: pb.GetCommandRequest
    ) -> pb.GetCommandResponse:
        command = await self._stores.commands.get(caller.project_id, request.command_id)
        return pb.GetCommandResponse(command=command)


def status_of(name: str) -> int:
    """Returns the number of a deployment status by name, with or without its prefix.

    Raises ConfigError for an unknown name.
    """
    full = name if name.startswith("DEPLOYMENT_") else f"DEPLOYMENT_{name}"
    try:
        return deployment_pb2.DeploymentStatus.Value(full)
    except ValueError:
        known = ", ".join(deployment_pb2.DeploymentStatus.keys())
        raise ConfigError(
            f"invalid request: statuses: there is no status {name!r}", hint=f"one of {known}"
        ) from None
