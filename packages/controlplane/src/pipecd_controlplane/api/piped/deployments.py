# SPDX-License-Identifier: Apache-2.0
"""Deployments, as their piped creates and reports them."""

from collections.abc import Callable

from pipecd_controlplane.auth.caller import Agent
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import chains, deployments
from pipecd_controlplane.usecases import deployment_reports as reports
from pipecd_controlplane.usecases.ownership import own_deployment
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import rpc


class AgentDeploymentsApi:
    """A deployment from its creation to its end."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("GetDeployment")
    async def get_deployment(
        self, caller: Agent, request: pb.GetDeploymentRequest
    ) -> pb.GetDeploymentResponse:
        deployment = await own_deployment(self._stores.deployments, caller, request.id)
        return pb.GetDeploymentResponse(deployment=deployment)

    @rpc("ListNotCompletedDeployments")
    async def list_not_completed(
        self, caller: Agent, request: pb.ListNotCompletedDeploymentsRequest
    ) -> pb.ListNotCompletedDeploymentsResponse:
        page = await self._stores.deployments.not_completed_of_piped(
            caller.project_id, caller.piped_id, cursor=request.cursor
        )
        return pb.ListNotCompletedDeploymentsResponse(deployments=page.items, cursor=page.cursor)

    @rpc("CreateDeployment")
    async def create_deployment(
        self, caller: Agent, request: pb.CreateDeploymentRequest
    ) -> pb.CreateDeploymentResponse:
        await deployments.create(self._stores, caller, request.deployment, self._now)
        return pb.CreateDeploymentResponse()

    @rpc("CreateDeploymentChain")
    async def create_deployment_chain(
        self, caller: Agent, request: pb.CreateDeploymentChainRequest
    ) -> pb.CreateDeploymentChainResponse:
        await deployments.create_chain(self._stores, caller, request, self._now)
        return pb.CreateDeploymentChainResponse()

    @rpc("InChainDeploymentPlannable")
    async def check_plannable_in_chain(
        self, caller: Agent, request: pb.InChainDeploymentPlannableRequest
    ) -> pb.InChainDeploymentPlannableResponse:
        verdict = await chains.plannable(self._stores, caller, request)
        return pb.InChainDeploymentPlannableResponse(
            plannable=verdict.plannable,
            cancel=bool(verdict.cancel_reason),
            cancel_reason=verdict.cancel_reason,
        )

    @rpc("ReportDeploymentPlanned")
    async def report_planned(
        self, caller: Agent, request: pb.ReportDeploymentPlannedRequest
    ) -> pb.ReportDeploymentPlannedResponse:
        await self._report(
            caller, request.deployment_id, lambda kept: reports.apply_plan(kept, request)
        )
        return pb.ReportDeploymentPlannedResponse()

    @rpc("ReportDeploymentStatusChanged")
    async def report_status_changed(
        self, caller: Agent, request: pb.ReportDeploymentStatusChangedRequest
    ) -> pb.ReportDeploymentStatusChangedResponse:
        await self._report(
            caller,
            request.deployment_id,
            lambda kept: reports.apply_status(kept, request.status, request.status_reason),
        )
        return pb.ReportDeploymentStatusChangedResponse()

    @rpc("ReportDeploymentCompleted")
    async def report_completed(
        self, caller: Agent, request: pb.ReportDeploymentCompletedRequest
    ) -> pb.ReportDeploymentCompletedResponse:
        await self._report(
            caller, request.deployment_id, lambda kept: reports.apply_completed(kept, request)
        )
        return pb.ReportDeploymentCompletedResponse()

    @rpc("SaveDeploymentMetadata")
    async def save_metadata(
        self, caller: Agent, request: pb.SaveDeploymentMetadataRequest
    ) -> pb.SaveDeploymentMetadataResponse:
        await self._report(
            caller,
            request.deployment_id,
            lambda kept: reports.merge_metadata(kept, request.metadata),
        )
        return pb.SaveDeploymentMetadataResponse()

    @rpc("SaveDeploymentSharedMetadata")
    async def save_shared_metadata(
        self, caller: Agent, request: pb.SaveDeploymentSharedMetadataRequest
    ) -> pb.SaveDeploymentSharedMetadataResponse:
        await self._report(
            caller,
            request.deployment_id,
            lambda kept: reports.merge_shared_metadata(kept, request.metadata),
        )
        return pb.SaveDeploymentSharedMetadataResponse()

    @rpc("SaveDeploymentPluginMetadata")
    async def save_plugin_metadata(
        self, caller: Agent, request: pb.SaveDeploymentPluginMetadataRequest
    ) -> pb.SaveDeploymentPluginMetadataResponse:
        await self._report(
            caller,
            request.deployment_id,
            lambda kept: reports.merge_plugin_metadata(kept, request.plugin_name, request.metadata),
        )
        return pb.SaveDeploymentPluginMetadataResponse()

    async def _report(
        self,
        caller: Agent,
        deployment_id: str,
        change: Callable[[deployment_pb2.Deployment], None],
    ) -> None:
        await deployments.report(self._stores, caller, deployment_id, change, self._now)
