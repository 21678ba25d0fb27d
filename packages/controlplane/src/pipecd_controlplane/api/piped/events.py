# SPDX-License-Identifier: Apache-2.0
"""Events, as pipeds find them and report their status."""

from typing import Final

from pipecd_controlplane.auth.caller import Agent
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import events
from pipecd_model.errors import ConfigError
from pipecd_wire.model import event_pb2
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import rpc

STATUSES: Final = {
    pb.ListEventsRequest.ALL: None,
    pb.ListEventsRequest.NOT_HANDLED: event_pb2.EVENT_NOT_HANDLED,
    pb.ListEventsRequest.SUCCESS: event_pb2.EVENT_SUCCESS,
    pb.ListEventsRequest.FAILURE: event_pb2.EVENT_FAILURE,
    pb.ListEventsRequest.OUTDATED: event_pb2.EVENT_OUTDATED,
}


class AgentEventsApi:
    """The events of the project: each piped sees all of them."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("GetLatestEvent")
    async def get_latest(
        self, caller: Agent, request: pb.GetLatestEventRequest
    ) -> pb.GetLatestEventResponse:
        event = await events.find_latest(
            self._stores, caller.project_id, request.name, request.labels
        )
        return pb.GetLatestEventResponse(event=event)

    @rpc("ListEvents")
    async def list_events(
        self, caller: Agent, request: pb.ListEventsRequest
    ) -> pb.ListEventsResponse:
        found = await self._stores.events.for_agent(
            caller.project_id,
            start=getattr(request, "from"),
            end=max(0, request.to),
            status=STATUSES[request.status],
            oldest_first=request.order != pb.DESC,
        )
        return pb.ListEventsResponse(events=found)

    @rpc("ReportEventStatuses")
    async def report_statuses(
        self, caller: Agent, request: pb.ReportEventStatusesRequest
    ) -> pb.ReportEventStatusesResponse:
        if len(request.events) > events.MOST_REPORTED:
            raise ConfigError(
                f"invalid request: {len(request.events)} events, at most {events.MOST_REPORTED}"
            )
        await events.report(self._stores, caller.project_id, request.events, self._now)
        return pb.ReportEventStatusesResponse()
