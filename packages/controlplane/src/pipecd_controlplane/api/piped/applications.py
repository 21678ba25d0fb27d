# SPDX-License-Identifier: Apache-2.0
"""The applications of a piped: listed to it, and reported on by it."""

from pipecd_controlplane.auth.caller import Agent
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import application_reports as reports
from pipecd_controlplane.usecases import limits
from pipecd_controlplane.usecases.ownership import own_application
from pipecd_model.errors import NotFoundError
from pipecd_wire.model import application_pb2
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import rpc


class AgentApplicationsApi:
    """Calls of a piped about its applications."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    @rpc("ListApplications")
    async def list_applications(
        self, caller: Agent, request: pb.ListApplicationsRequest
    ) -> pb.ListApplicationsResponse:
        listed = await self._stores.applications.list_enabled(caller.project_id, caller.piped_id)
        return pb.ListApplicationsResponse(applications=listed)

    @rpc("ReportApplicationSyncState")
    async def report_sync_state(
        self, caller: Agent, request: pb.ReportApplicationSyncStateRequest
    ) -> pb.ReportApplicationSyncStateResponse:
        def edit(application: application_pb2.Application) -> None:
            application.sync_state.CopyFrom(request.state)

        await reports.report(self._stores, caller, request.application_id, edit)
        return pb.ReportApplicationSyncStateResponse()

    @rpc("ReportApplicationDeployingStatus")
    async def report_deploying_status(
        self, caller: Agent, request: pb.ReportApplicationDeployingStatusRequest
    ) -> pb.ReportApplicationDeployingStatusResponse:
        def edit(application: application_pb2.Application) -> None:
            application.deploying = request.deploying

        await reports.report(self._stores, caller, request.application_id, edit)
        return pb.ReportApplicationDeployingStatusResponse()

    @rpc("ReportApplicationMostRecentDeployment")
    async def report_most_recent_deployment(
        self, caller: Agent, request: pb.ReportApplicationMostRecentDeploymentRequest
    ) -> pb.ReportApplicationMostRecentDeploymentResponse:
        def edit(application: application_pb2.Application) -> None:
            if not reports.is_outdated(application, request.status, request.deployment):
                reports.remember_deployment(application, request.status, request.deployment)

        await reports.report(self._stores, caller, request.application_id, edit)
        return pb.ReportApplicationMostRecentDeploymentResponse()

    @rpc("GetApplicationMostRecentDeployment")
    async def get_most_recent_deployment(
        self, caller: Agent, request: pb.GetApplicationMostRecentDeploymentRequest
    ) -> pb.GetApplicationMostRecentDeploymentResponse:
        application = await own_application(
            self._stores.applications, caller, request.application_id
        )
        reference = reports.most_recent_deployment(application, request.status)
        return pb.GetApplicationMostRecentDeploymentResponse(deployment=reference)

    @rpc("UpdateApplicationConfigurations")
    async def update_configurations(
        self, caller: Agent, request: pb.UpdateApplicationConfigurationsRequest
    ) -> pb.UpdateApplicationConfigurationsResponse:
        await reports.take_configurations(self._stores, caller, request.applications)
        return pb.UpdateApplicationConfigurationsResponse()

    @rpc("ReportUnregisteredApplicationConfigurations")
    async def report_unregistered(
        self, caller: Agent, request: pb.ReportUnregisteredApplicationConfigurationsRequest
    ) -> pb.ReportUnregisteredApplicationConfigurationsResponse:
        await self._stores.unregistered.put(caller.project_id, caller.piped_id, request)
        return pb.ReportUnregisteredApplicationConfigurationsResponse()

    @rpc("GetApplicationSharedObject")
    async def get_shared_object(
        self, caller: Agent, request: pb.GetApplicationSharedObjectRequest
    ) -> pb.GetApplicationSharedObjectResponse:
        await own_application(self._stores.applications, caller, request.application_id)
        found = await self._stores.shared_objects.find(
            caller.project_id, request.application_id, request.plugin_name, request.key
        )
        if found is None:
            raise NotFoundError(
                f"the plugin {request.plugin_name!r} keeps no object {request.key!r} here"
            )
        return pb.GetApplicationSharedObjectResponse(object=found)

    @rpc("PutApplicationSharedObject")
    async def put_shared_object(
        self, caller: Agent, request: pb.PutApplicationSharedObjectRequest
    ) -> pb.PutApplicationSharedObjectResponse:
        await own_application(self._stores.applications, caller, request.application_id)
        limits.size("shared object", request, limits.SHARED_OBJECT_BYTES)
        await self._stores.shared_objects.put(
            caller.project_id,
            request.application_id,
            request.plugin_name,
            request.key,
            request.object,
        )
        return pb.PutApplicationSharedObjectResponse()
