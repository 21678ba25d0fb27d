# SPDX-License-Identifier: Apache-2.0
"""Deployment chains with the state of their blocks."""

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.store.chains import ChainFilter
from pipecd_controlplane.store.stores import Stores
from pipecd_wire.pipecd.api import chains_pb2 as pb
from pipecd_wire.rpc import rpc


class V1ChainsApi:
    """Lists chains, newest first."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    @rpc("ListChains")
    async def list_chains(
        self, caller: User, request: pb.ListChainsRequest
    ) -> pb.ListChainsResponse:
        page = await self._stores.chains.page(
            caller.project_id, ChainFilter(), limit=request.limit, cursor=request.cursor
        )
        return pb.ListChainsResponse(chains=page.items, cursor=page.cursor)

    @rpc("GetChain")
    async def get_chain(self, caller: User, request: pb.GetChainRequest) -> pb.GetChainResponse:
        chain = await self._stores.chains.get(caller.project_id, request.chain_id)
        return pb.GetChainResponse(chain=chain)
