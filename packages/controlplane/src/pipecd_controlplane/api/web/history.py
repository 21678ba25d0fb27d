# SPDX-License-Identifier: Apache-2.0
"""What happened: events, traces of commits, deployment chains."""

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.chains import ChainFilter
from pipecd_controlplane.store.events import EventFilter
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import traces
from pipecd_wire.rpc import rpc
from pipecd_wire.webservice import service_pb2 as pb


class WebHistoryApi:
    """Lists, newest first."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    @rpc("ListEvents")
    async def list_events(
        self, caller: Person, request: pb.ListEventsRequest
    ) -> pb.ListEventsResponse:
        options = request.options
        wanted = EventFilter(
            name=options.name,
            statuses=tuple(options.statuses),
            labels=dict(options.labels),
            updated_since=request.page_min_updated_at,
        )
        page = await self._stores.events.page(
            caller.project_id, wanted, limit=request.page_size, cursor=request.cursor
        )
        return pb.ListEventsResponse(events=page.items, cursor=page.cursor)

    @rpc("ListDeploymentTraces")
    async def list_deployment_traces(
        self, caller: Person, request: pb.ListDeploymentTracesRequest
    ) -> pb.ListDeploymentTracesResponse:
        page = await traces.list_traces(
            self._stores,
            caller.project_id,
            commit_hash=request.options.commit_hash,
            updated_since=request.page_min_updated_at,
            limit=request.page_size,
            cursor=request.cursor,
        )
        return pb.ListDeploymentTracesResponse(
            traces=[
                pb.ListDeploymentTracesResponse.DeploymentTraceRes(
                    trace=each.trace, deployments=each.deployments
                )
                for each in page.items
            ],
            cursor=page.cursor,
        )

    @rpc("ListDeploymentChains")
    async def list_deployment_chains(
        self, caller: Person, request: pb.ListDeploymentChainsRequest
    ) -> pb.ListDeploymentChainsResponse:
        page = await self._stores.chains.page(
            caller.project_id,
            ChainFilter(updated_since=request.page_min_updated_at),
            limit=request.page_size,
            cursor=request.cursor,
        )
        return pb.ListDeploymentChainsResponse(deployment_chains=page.items, cursor=page.cursor)

    @rpc("GetDeploymentChain")
    async def get_deployment_chain(
        self, caller: Person, request: pb.GetDeploymentChainRequest
    ) -> pb.GetDeploymentChainResponse:
        chain = await self._stores.chains.get(caller.project_id, request.deployment_chain_id)
        return pb.GetDeploymentChainResponse(deployment_chain=chain)
