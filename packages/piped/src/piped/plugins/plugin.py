# SPDX-License-Identifier: Apache-2.0
"""A plugin as planner and scheduler see it: where it stands, what it offers, typed calls.

Behind it the supervisor starts and restarts processes; a call goes to the one that is there. A call
to a process that dies ends at once with PluginLostError, and `ready` waits for the next process.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipecd_runtime.logs import logger
from pipecd_runtime.orphans import ticks_now
from pipecd_runtime.signals import Signal
from pipecd_wire.model.deployment_pb2 import (
    STAGE_CANCELLED,
    STAGE_EXITED,
    STAGE_FAILURE,
    STAGE_SKIPPED,
    STAGE_SUCCESS,
)
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2 as pb
from pipecd_wire.plugin.livestateapi import api_pb2 as livestate
from pipecd_wire.plugin.planpreviewapi import api_pb2 as planpreview
from pipecd_wire.rpc import call
from piped.plugins.abandoned import StageSearch
from piped.plugins.connection import Connection
from piped.plugins.errors import PluginError, PluginLostError, PluginStoppingError
from piped.plugins.running import RunningStages
from piped.plugins.state import Limits, Phase, PluginState
from piped.programs.output import Output

log = logger(__name__)

WENT_WELL: Final = frozenset({STAGE_SUCCESS, STAGE_SKIPPED, STAGE_EXITED})
ENDS: Final = WENT_WELL | {STAGE_FAILURE, STAGE_CANCELLED}

OWN_QUESTION: Final = "DeploymentService/FetchDefinedStages"
"""What piped asks all the time to see whether a plugin serves. One that tells each call would fill
log and last words with it."""
TROUBLE: Final = re.compile("error|fail|panic|fatal", re.IGNORECASE)


def is_own_question(line: str) -> bool:
    """Whether a line of output only tells that piped has asked for the stages."""
    return OWN_QUESTION in line and not TROUBLE.search(line)


class Plugin:
    """One of the configured plugins."""

    def __init__(
        self,
        name: str,
        limits: Limits,
        on_change: Callable[["Plugin"], None],
        shown: Callable[[str], str] = str,
    ) -> None:
        """`shown` takes secrets out of what its processes write."""
        self.name = name
        self.state = PluginState(phase=Phase.FETCHING, sentence="not started yet")
        self.stages: frozenset[str] = frozenset()
        """What it offers; as it last said while it is restarted."""
        self.stages_without_files: frozenset[str] = frozenset()
        """Those that need no files of the commit."""
        self.version = ""
        self.was_ready = False
        """Has it ever been? Before that nobody knows its stages."""
        self.failures = 0
        """How often it has failed in a row; for the supervisor."""
        self.failure = ""
        """How it has failed the last time; for the supervisor."""
        self._starts = 0
        self._was_tried = False
        self.running = RunningStages()
        self.output = Output(name, shown, is_own_question)
        self._limits = limits
        self._on_change = on_change
        self._connection: Connection | None = None
        self._changed = Signal()

    @property
    def managed(self) -> bool:
        """Has the process that is there accepted plugin management?"""
        return self._connection is not None and self._connection.managed

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        return max(0, self._starts - 1)

    async def ready(self, limit: float) -> None:
        """Wait until it can be called; PluginError with the reason when that takes too long."""
        try:
            async with asyncio.timeout(limit):
                await self._until(self._is_there)
        except TimeoutError:
            raise PluginLostError(
                f"the plugin {self.name!r} is not ready: {self.state.sentence}",
                hint=self.state.last_output[-1] if self.state.last_output else "",
            ) from None
        if self._connection is None:
            raise PluginStoppingError(f"the plugin {self.name!r} is stopping")

    async def tried(self) -> None:
        """Wait until it has been ready, or has failed, for the first time."""
        await self._until(lambda: self._was_tried)

    async def determine_versions(self, request: pb.PlanPluginInput) -> pb.DetermineVersionsResponse:
        """Which versions of which artifacts a deployment would bring."""
        there = self._require_connection()
        message = pb.DetermineVersionsRequest(input=request)
        return await there.ask(
            "DetermineVersions",
            lambda: call(
                there.deployment.DetermineVersions, message, deadline=self._limits.planning
            ),
        )

    async def determine_strategy(self, request: pb.PlanPluginInput) -> pb.DetermineStrategyResponse:
        """Pipeline or quick sync. Not for a first deployment: there is nothing to compare with."""
        there = self._require_connection()
        message = pb.DetermineStrategyRequest(input=request)
        return await there.ask(
            "DetermineStrategy",
            lambda: call(
                there.deployment.DetermineStrategy, message, deadline=self._limits.planning
            ),
        )

    async def build_pipeline_sync_stages(
        self, request: pb.BuildPipelineSyncStagesRequest
    ) -> pb.BuildPipelineSyncStagesResponse:
        """Make stages of the pipeline's entries that belong to this plugin."""
        there = self._require_connection()
        return await there.ask(
            "BuildPipelineSyncStages",
            lambda: call(
                there.deployment.BuildPipelineSyncStages, request, deadline=self._limits.planning
            ),
        )

    async def build_quick_sync_stages(
        self, request: pb.BuildQuickSyncStagesRequest
    ) -> pb.BuildQuickSyncStagesResponse:
        """Make the stages of a quick sync."""
        there = self._require_connection()
        return await there.ask(
            "BuildQuickSyncStages",
            lambda: call(
                there.deployment.BuildQuickSyncStages, request, deadline=self._limits.planning
            ),
        )

    async def execute_stage(self, request: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        """Run a stage to its end; the status is a final one.

        When the calling task is cancelled the stage is, and this returns only after the plugin's
        handler has ended. PluginLostError: it was lost on the way; once it is ready again a second
        call continues the stage. PluginStoppingError: the same, but it was told to stop.
        """
        there = self._require_connection()
        deployment_id, stage_id = request.deployment.id, request.stage.id
        message = pb.ExecuteStageRequest(input=request)
        since = ticks_now()
        with self.running.enter(deployment_id, stage_id):
            try:
                response = await there.ask(
                    "ExecuteStage",
                    lambda: call(there.deployment.ExecuteStage, message, deadline=None),
                )
            except asyncio.CancelledError:
                await self._wait_cancelled(there, request, since)
                raise
            except PluginLostError:
                try:
                    await there.stage_lost()
                except asyncio.CancelledError:
                    await self._wait_cancelled(there, request, since)
                    raise
                raise
        if there.stopping and not there.managed and response.status not in WENT_WELL:
            # A plugin of upstream's cannot say that it only stops: its stages just end badly.
            raise PluginStoppingError(f"the plugin {self.name!r} was stopped")
        if response.status not in ENDS:
            raise PluginError(
                f"the plugin {self.name!r} ended the stage {request.stage.name!r} "
                f"with the status {response.status}, which is not an end"
            )
        return response

    async def _wait_cancelled(
        self, there: Connection, request: pb.ExecutePluginInput, since: int
    ) -> None:
        """Wait until nothing of a cancelled stage runs any more."""
        if await there.handler_end(request.deployment.id, request.stage.id):
            return
        sources = (request.target_deployment_source, request.running_deployment_source)
        folders = [each.application_directory for each in sources if each.application_directory]
        search = StageSearch(
            leaders=there.processes.leaders,
            is_wanted=there.processes.is_wanted,
            folders=tuple(map(Path, folders)),
            since=since,
            alone_until=ticks_now() if self.running.is_alone else 0,
        )
        await there.end_abandoned(search)

    async def check_config(
        self, request: plugin_pb2.CheckConfigRequest
    ) -> plugin_pb2.CheckConfigResponse | None:
        """What is wrong in an application's options; None from a plugin that cannot tell."""
        there = self._require_connection()
        return await there.ask_if_offered(
            "CheckConfig",
            lambda: call(there.config.CheckConfig, request, deadline=self._limits.planning),
        )

    async def get_livestate(
        self, request: livestate.GetLivestateRequest, *, deadline: float
    ) -> livestate.GetLivestateResponse | None:
        """What is running; None from a plugin that cannot tell."""
        there = self._require_connection()
        return await there.ask_if_offered(
            "GetLivestate",
            lambda: call(there.livestate.GetLivestate, request, deadline=deadline),
        )

    async def get_plan_preview(
        self, request: planpreview.GetPlanPreviewRequest, *, deadline: float
    ) -> planpreview.GetPlanPreviewResponse | None:
        """What a deployment would change; None from a plugin that cannot tell."""
        there = self._require_connection()
        return await there.ask_if_offered(
            "GetPlanPreview",
            lambda: call(there.planpreview.GetPlanPreview, request, deadline=deadline),
        )

    def become(self, phase: Phase, sentence: str) -> None:
        """Be in another state; for the supervisor."""
        failed = phase is Phase.FAILED
        looping = self.failures >= self._limits.crash_loop and phase is not Phase.READY
        has_failed = failed
        if phase in (Phase.FETCHING, Phase.STARTING) and self.failures and self.failure:
            # The next try has not changed anything yet: the last failure is what people look for.
            sentence, has_failed = f"{self.failure}; now {sentence}", True
        if has_failed and looping:
            sentence = f"crash loop, {self.failures} times in a row: {sentence}"
        self.state = PluginState(
            phase=phase,
            sentence=sentence,
            last_output=self.output.last() if has_failed else (),
            crash_loop=looping,
        )
        self._starts += phase is Phase.STARTING
        self._was_tried = self._was_tried or phase in (Phase.READY, Phase.FAILED)
        write = log.warning if failed else log.info
        write(f"plugin.{phase}", plugin=self.name, sentence=sentence)
        self._changed.send()
        self._on_change(self)

    def set_connection(self, connection: Connection | None) -> None:
        """Make calls through this connection, or none; for the supervisor."""
        self._connection = connection
        self.was_ready = self.was_ready or connection is not None

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait for a state in which something holds, or for the stop."""
        while not holds() and self.state.phase is not Phase.STOPPING:
            await self._changed.wait()

    def _is_there(self) -> bool:
        return self._connection is not None and not self._connection.unrecoverable.done()

    def _require_connection(self) -> Connection:
        if self._connection is not None:
            return self._connection
        if self.state.phase is Phase.STOPPING:
            raise PluginStoppingError(f"the plugin {self.name!r} is stopping")
        raise PluginLostError(f"the plugin {self.name!r} is not ready: {self.state.sentence}")
