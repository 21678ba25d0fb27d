# SPDX-License-Identifier: Apache-2.0
"""Stages of a deployment: status, metadata and log."""

from pipecd_controlplane.auth.caller import Agent
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import deployment_reports as reports
from pipecd_controlplane.usecases import deployments
from pipecd_controlplane.usecases.ownership import own_deployment
from pipecd_controlplane.usecases.stage_logs import can_reopen
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import rpc


class AgentStagesApi:
    """The reports of a running stage."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("ReportStageStatusChanged")
    async def report_status_changed(
        self, caller: Agent, request: pb.ReportStageStatusChangedRequest
    ) -> pb.ReportStageStatusChangedResponse:
        await deployments.report(
            self._stores,
            caller,
            request.deployment_id,
            lambda kept: reports.apply_stage_status(kept, request, self._now()),
            self._now,
        )
        return pb.ReportStageStatusChangedResponse()

    @rpc("SaveStageMetadata")
    async def save_metadata(
        self, caller: Agent, request: pb.SaveStageMetadataRequest
    ) -> pb.SaveStageMetadataResponse:
        await deployments.report(
            self._stores,
            caller,
            request.deployment_id,
            lambda kept: reports.merge_stage_metadata(kept, request.stage_id, request.metadata),
            self._now,
        )
        return pb.SaveStageMetadataResponse()

    @rpc("ReportStageLogs")
    async def report_logs(
        self, caller: Agent, request: pb.ReportStageLogsRequest
    ) -> pb.ReportStageLogsResponse:
        await self._append(caller, request, completed=False)
        return pb.ReportStageLogsResponse()

    @rpc("ReportStageLogsFromLastCheckpoint")
    async def report_logs_from_last_checkpoint(
        self, caller: Agent, request: pb.ReportStageLogsFromLastCheckpointRequest
    ) -> pb.ReportStageLogsFromLastCheckpointResponse:
        await self._append(caller, request, completed=request.completed)
        return pb.ReportStageLogsFromLastCheckpointResponse()

    async def _append(
        self,
        caller: Agent,
        request: pb.ReportStageLogsRequest | pb.ReportStageLogsFromLastCheckpointRequest,
        *,
        completed: bool,
    ) -> None:
        deployment = await own_deployment(self._stores.deployments, caller, request.deployment_id)
        key = LogKey(
            deployment_id=deployment.id,
            stage_id=request.stage_id,
            retried_count=request.retried_count,
        )
        await self._stores.stage_logs.append(
            caller.project_id,
            key,
            request.blocks,
            completed=completed,
            reopen=can_reopen(deployment, key),
        )
