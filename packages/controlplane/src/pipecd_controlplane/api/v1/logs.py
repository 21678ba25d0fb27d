# SPDX-License-Identifier: Apache-2.0
"""Stage logs by line number."""

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import log_reading
from pipecd_wire.pipecd.api import logs_pb2 as pb
from pipecd_wire.rpc import rpc


class V1LogsApi:
    """Any range of a stage log, and a search in it."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    @rpc("ReadStageLog")
    async def read_stage_log(
        self, caller: User, request: pb.ReadStageLogRequest
    ) -> pb.ReadStageLogResponse:
        return await log_reading.read_lines(self._stores, caller, request)

    @rpc("SearchStageLog")
    async def search_stage_log(
        self, caller: User, request: pb.SearchStageLogRequest
    ) -> pb.SearchStageLogResponse:
        return await log_reading.search_lines(self._stores, caller, request)
