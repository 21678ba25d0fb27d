# SPDX-License-Identifier: Apache-2.0
"""Live states, and the baseline of v0's analyses, as a piped reports them."""

from pipecd_controlplane.auth.caller import Agent
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import live_state
from pipecd_controlplane.usecases.ownership import own_application
from pipecd_model.errors import NotFoundError
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import rpc


class AgentLiveStateApi:
    """Records of an application beside its deployments."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("ReportApplicationLiveState")
    async def report_live_state(
        self, caller: Agent, request: pb.ReportApplicationLiveStateRequest
    ) -> pb.ReportApplicationLiveStateResponse:
        await live_state.report(self._stores, caller, request.snapshot, self._now)
        return pb.ReportApplicationLiveStateResponse()

    @rpc("ReportApplicationLiveStateEvents")
    async def report_live_state_events(
        self, caller: Agent, request: pb.ReportApplicationLiveStateEventsRequest
    ) -> pb.ReportApplicationLiveStateEventsResponse:
        failed = await live_state.patch(self._stores, caller, request.kubernetes_events)
        return pb.ReportApplicationLiveStateEventsResponse(failed_ids=failed)

    @rpc("GetLatestAnalysisResult")
    async def get_latest_analysis_result(
        self, caller: Agent, request: pb.GetLatestAnalysisResultRequest
    ) -> pb.GetLatestAnalysisResultResponse:
        await own_application(self._stores.applications, caller, request.application_id)
        found = await self._stores.analysis_results.find(caller.project_id, request.application_id)
        if found is None:
            raise NotFoundError(f"the application {request.application_id!r} was not analysed yet")
        return pb.GetLatestAnalysisResultResponse(analysis_result=found.message)

    @rpc("PutLatestAnalysisResult")
    async def put_latest_analysis_result(
        self, caller: Agent, request: pb.PutLatestAnalysisResultRequest
    ) -> pb.PutLatestAnalysisResultResponse:
        await own_application(self._stores.applications, caller, request.application_id)

        async def work(transaction: Transaction) -> None:
            await self._stores.analysis_results.change_in(
                transaction,
                caller.project_id,
                request.application_id,
                lambda _known: request.analysis_result,
            )

        await self._stores.database.write(work)
        return pb.PutLatestAnalysisResultResponse()
