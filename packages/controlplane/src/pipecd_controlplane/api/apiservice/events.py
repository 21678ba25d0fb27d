# SPDX-License-Identifier: Apache-2.0
"""Events and plan previews, by API key or session: the calls of build pipelines."""

from collections.abc import Callable

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import events, plan_preview
from pipecd_controlplane.usecases.plan_preview import PlanPreviewResults
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_controlplane.usecases.traces import NewTrace
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.rpc import rpc


class ProgramEventsApi:
    """Register an event, request a plan preview and read its results."""

    def __init__(
        self, stores: Stores, presence: Presence, now: Now, web_base_url: Callable[[], str]
    ) -> None:
        self._stores = stores
        self._now = now
        self._previews = PlanPreviewResults(stores, presence, now, web_base_url)

    @rpc("RegisterEvent")
    async def register_event(
        self, caller: User, request: pb.RegisterEventRequest
    ) -> pb.RegisterEventResponse:
        trace = None
        if request.commit_hash and request.commit_url:
            trace = NewTrace(
                commit_hash=request.commit_hash,
                commit_url=request.commit_url,
                title=request.commit_title,
                message=request.commit_message,
                author=request.commit_author,
                timestamp=max(0, request.commit_timestamp),
            )
        event_id = await events.register(
            self._stores,
            caller.project_id,
            name=request.name,
            data=request.data,
            labels=request.labels,
            contexts=request.contexts,
            trace=trace,
            now=self._now,
            wanted_id=caller.request_id("RegisterEvent"),
        )
        return pb.RegisterEventResponse(event_id=event_id)

    @rpc("RequestPlanPreview")
    async def request_plan_preview(
        self, caller: User, request: pb.RequestPlanPreviewRequest
    ) -> pb.RequestPlanPreviewResponse:
        asked = await plan_preview.ask(self._stores, caller, request)
        return pb.RequestPlanPreviewResponse(commands=asked)

    @rpc("GetPlanPreviewResults")
    async def get_plan_preview_results(
        self, caller: User, request: pb.GetPlanPreviewResultsRequest
    ) -> pb.GetPlanPreviewResultsResponse:
        results = await self._previews.results(
            caller.project_id, request.commands, handle_seconds=request.command_handle_timeout
        )
        return pb.GetPlanPreviewResultsResponse(results=results)
