# SPDX-License-Identifier: Apache-2.0
"""Delivery figures, counts of applications, and live states."""

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import insights, live_state
from pipecd_wire.rpc import rpc
from pipecd_wire.webservice import service_pb2 as pb


class WebInsightsApi:
    """Figures of deployments, the number of applications, the live state of an application."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("GetInsightData")
    async def get_insight_data(
        self, caller: Person, request: pb.GetInsightDataRequest
    ) -> pb.GetInsightDataResponse:
        return await insights.read_data(self._stores, caller.project_id, request, self._now)

    @rpc("GetInsightApplicationCount")
    async def get_insight_application_count(
        self, caller: Person, request: pb.GetInsightApplicationCountRequest
    ) -> pb.GetInsightApplicationCountResponse:
        return await insights.count_applications(self._stores, caller.project_id, self._now)

    @rpc("GetApplicationLiveState")
    async def get_application_live_state(
        self, caller: Person, request: pb.GetApplicationLiveStateRequest
    ) -> pb.GetApplicationLiveStateResponse:
        application = await self._stores.applications.get(caller.project_id, request.application_id)
        caller.check("application", application.id, application.labels)
        snapshot = await live_state.read_snapshot(self._stores, caller.project_id, application.id)
        return pb.GetApplicationLiveStateResponse(snapshot=snapshot)
