# SPDX-License-Identifier: Apache-2.0
"""Reports of a piped about itself."""

from collections.abc import Callable

from pipecd_controlplane.auth.caller import Agent
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import pipeds
from pipecd_controlplane.usecases.duplicate_agents import DuplicateAgents, parse_process_start
from pipecd_controlplane.usecases.piped_metrics import ReportCheck
from pipecd_model.errors import ConfigError
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import rpc


class AgentPipedsApi:
    """A piped's start, its heartbeats, and its desired version."""

    def __init__(
        self, stores: Stores, now: Now, web_base_url: Callable[[], str], duplicates: DuplicateAgents
    ) -> None:
        self._stores = stores
        self._now = now
        self._web_base_url = web_base_url
        self._duplicates = duplicates
        self._report_check = ReportCheck()

    @rpc("ReportStat")
    async def report_stat(
        self, caller: Agent, request: pb.ReportStatRequest
    ) -> pb.ReportStatResponse:
        try:
            self._report_check.check_size(request.piped_stats)
        except ConfigError:
            await self._note_stat(caller, pb.ReportStatRequest())  # a sign of life all the same
            raise
        await self._note_stat(caller, request)
        await self._report_check.check(caller.piped_id, request.piped_stats)
        return pb.ReportStatResponse()

    async def _note_stat(self, caller: Agent, request: pb.ReportStatRequest) -> None:
        await self._duplicates.note(caller, "ReportStat", parse_process_start(request.piped_stats))
        await self._stores.piped_stats.put(caller.project_id, caller.piped_id, request)

    @rpc("ReportPipedMeta")
    async def report_piped_meta(
        self, caller: Agent, request: pb.ReportPipedMetaRequest
    ) -> pb.ReportPipedMetaResponse:
        await self._duplicates.note(caller, "ReportPipedMeta")
        piped = await pipeds.report_meta(self._stores, caller, request, self._now)
        return pb.ReportPipedMetaResponse(name=piped.name, web_base_url=self._web_base_url())

    @rpc("GetDesiredVersion")
    async def get_desired_version(
        self, caller: Agent, request: pb.GetDesiredVersionRequest
    ) -> pb.GetDesiredVersionResponse:
        piped = await self._stores.pipeds.get(caller.project_id, caller.piped_id)
        return pb.GetDesiredVersionResponse(version=piped.desired_version)
