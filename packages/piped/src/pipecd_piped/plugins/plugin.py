# SPDX-License-Identifier: Apache-2.0
"""A plugin for planner and scheduler: its state, the stages that it offers, typed calls.

The supervisor starts and restarts its processes; a call goes to the current one. When the process
dies, its calls raise PluginLostError at once; `wait_ready` waits for the next process.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pipecd_model.errors import NotFoundError
from pipecd_piped.plugins.abandoned import StageSearch
from pipecd_piped.plugins.connection import PluginConnection
from pipecd_piped.plugins.errors import PluginError, PluginLostError, PluginStoppingError
from pipecd_piped.plugins.masking import (
    Mask,
    mask_details,
    mask_live_state,
    mask_plan_preview,
    mask_versions,
    masking_errors,
)
from pipecd_piped.plugins.running import RunningStages
from pipecd_piped.plugins.state import Phase, PluginLimits, PluginState
from pipecd_piped.programs.output import Output
from pipecd_piped.report.metadata import MetadataStores
from pipecd_piped.secrets import KnownSecrets
from pipecd_runtime.logs import logger
from pipecd_runtime.orphans import ticks_now
from pipecd_runtime.signals import Signal
from pipecd_wire.headers import CURRENT_METADATA_HEADER
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
from pipecd_wire.rpc import CallError, call

log = logger(__name__)

Response = TypeVar("Response")

WENT_WELL: Final = frozenset({STAGE_SUCCESS, STAGE_SKIPPED, STAGE_EXITED})
ENDS: Final = WENT_WELL | {STAGE_FAILURE, STAGE_CANCELLED}

OWN_QUESTION: Final = "DeploymentService/FetchDefinedStages"
"""The call with which piped probes a plugin. It would fill the output of one that logs calls."""
TROUBLE: Final = re.compile("error|fail|panic|fatal", re.IGNORECASE)


def is_own_question(line: str) -> bool:
    """Returns whether a line of output only logs a probe by piped, without an error."""
    return OWN_QUESTION in line and not TROUBLE.search(line)


class Plugin:
    """One of the configured plugins."""

    def __init__(
        self,
        name: str,
        limits: PluginLimits,
        on_change: Callable[["Plugin"], None],
        secrets: KnownSecrets | None = None,
        metadata: MetadataStores | None = None,
    ) -> None:
        """`secrets` are masked in the output, responses and errors of its processes.

        `metadata`: what it has stored with deployments, which it gets with each stage.
        """
        self._secrets = secrets or KnownSecrets()
        self._metadata = metadata
        self.name = name
        self.state = PluginState(phase=Phase.FETCHING, sentence="not started yet")
        self.stages: frozenset[str] = frozenset()
        """The stages that it offers; those of the last process while it is restarted."""
        self.stages_without_files: frozenset[str] = frozenset()
        """Its stages that need no files of the commit."""
        self.version = ""
        self.was_ready = False
        """Whether it has ever been ready. Before that its stages are unknown."""
        self.failures = 0
        """How often it has failed in a row; for the supervisor."""
        self.failure = ""
        """Why it has failed the last time; for the supervisor."""
        self._starts = 0
        self._was_tried = False
        self.running = RunningStages()
        self.output = Output(name, self._secrets.mask, is_own_question)
        self._limits = limits
        self._on_change = on_change
        self._connection: PluginConnection | None = None
        self._changed = Signal()

    @property
    def is_managed(self) -> bool:
        """Whether the current process has accepted plugin management."""
        return self._connection is not None and self._connection.is_managed

    @property
    def restarts(self) -> int:
        """Returns how often the plugin was restarted."""
        return max(0, self._starts - 1)

    async def wait_ready(self, limit: float) -> None:
        """Wait until the plugin can be called; raises PluginError with the reason after `limit`."""
        try:
            async with asyncio.timeout(limit):
                await self._wait_until(self._is_there)
        except TimeoutError:
            with masking_errors(self._secrets.mask):
                raise PluginLostError(
                    f"the plugin {self.name!r} is not ready: {self.state.sentence}",
                    hint=self.state.last_output[-1] if self.state.last_output else "",
                ) from None
        if self._connection is None:
            raise PluginStoppingError(f"the plugin {self.name!r} is stopping")

    async def wait_tried(self) -> None:
        """Wait until the plugin has been ready or has failed once."""
        await self._wait_until(lambda: self._was_tried)

    async def determine_versions(self, request: pb.PlanPluginInput) -> pb.DetermineVersionsResponse:
        """Returns the artifact versions that a commit deploys."""
        mask = self._mask_of(request.deployment.id)
        answer = await self._plan(
            "DetermineVersions",
            lambda there: call(
                there.deployment.DetermineVersions,
                pb.DetermineVersionsRequest(input=request),
                deadline=self._limits.planning_seconds,
            ),
            mask,
        )
        mask_versions(answer, mask)
        return answer

    async def determine_strategy(self, request: pb.PlanPluginInput) -> pb.DetermineStrategyResponse:
        """Returns the sync strategy that the plugin chooses: pipeline or quick sync.

        Not for a first deployment, which has no commit to compare with.
        """
        mask = self._mask_of(request.deployment.id)
        answer = await self._plan(
            "DetermineStrategy",
            lambda there: call(
                there.deployment.DetermineStrategy,
                pb.DetermineStrategyRequest(input=request),
                deadline=self._limits.planning_seconds,
            ),
            mask,
        )
        answer.summary = mask(answer.summary)
        return answer

    async def build_pipeline_sync_stages(
        self, request: pb.BuildPipelineSyncStagesRequest
    ) -> pb.BuildPipelineSyncStagesResponse:
        """Returns stages for the pipeline's entries that belong to this plugin."""
        return await self._plan(
            "BuildPipelineSyncStages",
            lambda there: call(
                there.deployment.BuildPipelineSyncStages,
                request,
                deadline=self._limits.planning_seconds,
            ),
        )

    async def build_quick_sync_stages(
        self, request: pb.BuildQuickSyncStagesRequest
    ) -> pb.BuildQuickSyncStagesResponse:
        """Returns the stages of a quick sync."""
        return await self._plan(
            "BuildQuickSyncStages",
            lambda there: call(
                there.deployment.BuildQuickSyncStages,
                request,
                deadline=self._limits.planning_seconds,
            ),
        )

    async def _plan(
        self,
        rpc: str,
        attempt: Callable[[PluginConnection], Awaitable[Response]],
        mask: Mask | None = None,
    ) -> Response:
        with masking_errors(mask or self._secrets.mask):
            there = self._require_connection()
            return await there.ask(rpc, lambda: attempt(there))

    async def _ask_if_offered(
        self, rpc: str, attempt: Callable[[PluginConnection], Awaitable[Response]]
    ) -> Response | None:
        with masking_errors(self._secrets.mask):
            there = self._require_connection()
            return await there.ask_if_offered(rpc, lambda: attempt(there))

    def _mask_of(self, deployment_id: str) -> Mask:
        """Returns the function that masks a deployment's secrets; all secrets without an id."""
        if deployment_id:
            return partial(self._secrets.mask_for, deployment_id)
        return self._secrets.mask

    async def execute_stage(self, request: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        """Run a stage to its end. Returns its response with a final status.

        Cancelling the calling task cancels the stage, and this returns only after the plugin's
        handler has ended. Raises PluginLostError when the process was lost meanwhile: once it is
        ready again, a second call continues the stage. Raises PluginStoppingError, with the same
        effect, when it got the signal to stop.
        """
        mask = self._mask_of(request.deployment.id)
        with masking_errors(mask):
            response = await self._execute_stage(request)
        response.message = mask(response.message)
        return response

    async def _execute_stage(self, request: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        there = self._require_connection()
        deployment_id, stage_id = request.deployment.id, request.stage.id
        message = pb.ExecuteStageRequest(input=request)
        headers = self._put_metadata(message.input) if there.is_managed else []
        since = ticks_now()
        with self.running.enter(deployment_id, stage_id):
            try:
                response = await there.ask(
                    "ExecuteStage",
                    lambda: call(
                        there.deployment.ExecuteStage, message, deadline=None, metadata=headers
                    ),
                )
            except asyncio.CancelledError:
                await self._wait_cancelled(there, request, since)
                raise
            except PluginLostError:
                try:
                    await there.wait_stage_lost()
                except asyncio.CancelledError:
                    await self._wait_cancelled(there, request, since)
                    raise
                raise
        if there.is_stopping and not there.is_managed and response.status not in WENT_WELL:
            # A plugin of upstream's cannot report that it only stops: its stages end as failures.
            raise PluginStoppingError(f"the plugin {self.name!r} was stopped")
        if response.status not in ENDS:
            raise PluginError(
                f"the plugin {self.name!r} ended the stage {request.stage.name!r} "
                f"with the status {response.status}, which is not an end"
            )
        return response

    def _put_metadata(self, given: pb.ExecutePluginInput) -> list[tuple[str, str]]:
        """Put the plugin's current metadata into a request, so that it need not ask for it.

        Returns the headers that say so.
        """
        store = self._metadata.find(given.deployment.id) if self._metadata is not None else None
        if store is None:
            return []
        kept = given.deployment.metadata_v2.plugins[self.name].keyValues
        kept.clear()
        kept.update(store.copy_plugin(self.name))
        return [(CURRENT_METADATA_HEADER, "true")]

    async def _wait_cancelled(
        self, there: PluginConnection, request: pb.ExecutePluginInput, since: int
    ) -> None:
        """Wait until no process of a cancelled stage runs any more."""
        if await there.wait_handler_end(request.deployment.id, request.stage.id):
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
        """Returns the faults in an application's options; None when the plugin has no check."""
        return await self._ask_if_offered(
            "CheckConfig",
            lambda there: call(
                there.config.CheckConfig, request, deadline=self._limits.planning_seconds
            ),
        )

    async def get_livestate(
        self, request: livestate.GetLivestateRequest, *, deadline: float
    ) -> livestate.GetLivestateResponse | None:
        """Returns the live state; None when the plugin does not implement the call."""
        answer = await self._ask_if_offered(
            "GetLivestate",
            lambda there: call(there.livestate.GetLivestate, request, deadline=deadline),
        )
        if answer is not None:
            mask_live_state(answer, self._secrets.mask)
        return answer

    async def get_plan_preview(
        self, request: planpreview.GetPlanPreviewRequest, *, deadline: float
    ) -> planpreview.GetPlanPreviewResponse | None:
        """Returns what a deployment would change; None when the plugin has no plan preview."""
        answer = await self._ask_if_offered(
            "GetPlanPreview",
            lambda there: call(there.planpreview.GetPlanPreview, request, deadline=deadline),
        )
        if answer is not None:
            mask_plan_preview(answer, self._secrets.mask)
        return answer

    async def open_resource(
        self, request: plugin_pb2.OpenResourceRequest, *, deadline: float
    ) -> plugin_pb2.OpenResourceResponse | None:
        """Returns the details of a resource; None when the plugin has none.

        Raises NotFoundError when the resource is gone.
        """

        async def ask(there: PluginConnection) -> plugin_pb2.OpenResourceResponse:
            try:
                return await call(there.details.OpenResource, request, deadline=deadline)
            except CallError as error:
                if error.status != "NOT_FOUND":
                    raise
                raise NotFoundError(self._secrets.mask(error.message)) from None

        answer = await self._ask_if_offered("OpenResource", ask)
        if answer is not None:
            mask_details(answer.details, self._secrets.mask)
        return answer

    def become(self, phase: Phase, sentence: str) -> None:
        """Change the state; for the supervisor."""
        failed = phase is Phase.FAILED
        looping = self.failures >= self._limits.crash_loop and phase is not Phase.READY
        has_failed = failed
        if phase in (Phase.FETCHING, Phase.STARTING) and self.failures and self.failure:
            # The last failure stays visible until the next attempt succeeds.
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

    def set_connection(self, connection: PluginConnection | None) -> None:
        """Set the connection for further calls, None without a process; for the supervisor."""
        self._connection = connection
        self.was_ready = self.was_ready or connection is not None

    async def _wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds, or until the plugin stops."""
        while not holds() and self.state.phase is not Phase.STOPPING:
            await self._changed.wait()

    def _is_there(self) -> bool:
        return self._connection is not None and not self._connection.unrecoverable.done()

    def _require_connection(self) -> PluginConnection:
        if self._connection is not None:
            return self._connection
        if self.state.phase is Phase.STOPPING:
            raise PluginStoppingError(f"the plugin {self.name!r} is stopping")
        raise PluginLostError(f"the plugin {self.name!r} is not ready: {self.state.sentence}")
