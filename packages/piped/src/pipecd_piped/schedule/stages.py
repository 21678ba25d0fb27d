# SPDX-License-Identifier: Apache-2.0
"""Runs the stages of one deployment: prepares each, and reports its status.

`schedule.stage` knows how a stage runs; this module gives it the options, files, timeouts and
plugin of the stage.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pipecd_model.config import ApplicationConfig, StageConfig
from pipecd_model.errors import ConfigError, NoPluginForStageError, PipecdError
from pipecd_model.stage import ROLLBACK, SCRIPT_RUN_ROLLBACK, is_rollback
from pipecd_piped.facts import DeploymentNoted, StageChanged, WaitsForApproval
from pipecd_piped.plan.protocols import PLUGIN, PluginCalls
from pipecd_piped.plan.sources import open_commits
from pipecd_piped.plan.stages import config_bytes
from pipecd_piped.schedule.admission import Ticket
from pipecd_piped.schedule.services import RunServices
from pipecd_piped.schedule.skip import skip_reason
from pipecd_piped.schedule.stage import Asked, Limit, StageOutcome, execute_on, run_stage
from pipecd_piped.schedule.stop import (
    HandedOver,
    StopRequestedError,
    StopScope,
    Terminated,
    TimedOut,
)
from pipecd_runtime.logs import logger
from pipecd_runtime.tasks import UnwrappedTaskGroup
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.common_pb2 import QUICK_SYNC
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from pipecd_wire.plugin.deploymentapi.api_pb2 import ExecutePluginInput, ExecuteStageResponse

log = logger(__name__)

WAITED_KEY: Final = "pipecd/waited-seconds"
"""Key in a deployment's shared metadata: how long its stages have waited for their turns."""

END_LIMIT_SECONDS: Final = 30.0
"""Seconds in which a plugin ends the script of a stopped stage; then piped ends it itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommit:
    """The application file and source of the target commit, read before the first stage."""

    config: ApplicationConfig
    source: DeploymentSource
    """Without files."""


class StageRunner:
    """Runs the stages of a deployment, one at a time."""

    def __init__(
        self,
        deployment: Deployment,
        prepared: PreparedCommit,
        services: RunServices,
        *,
        began: float,
        epoch: int,
        stopping: bool,
    ) -> None:
        """`began`: when the deployment was planned; its timeout counts from then.

        `epoch`: that of the lease under which it runs. `stopping`: whether piped stops already.
        """
        self._deployment = deployment
        self._config = prepared.config
        self._source = prepared.source
        self._services = services
        self._began = began
        self._epoch = epoch
        self.with_a_plugin = False
        """Whether a plugin executes a stage right now."""
        self.stopping = stopping

    async def run(
        self,
        stage: PipelineStage,
        scope: StopScope,
        on_begun: Callable[[], None] = lambda: None,
    ) -> StageOutcome:
        """Run a stage, unless it is skipped, and report its status. Returns its outcome.

        `on_begun` is called when its begin is reported, in the order of all reports.

        Raises StopRequestedError when the scope was stopped before the stage began, and always when
        piped stops: then the status of the stage is left as it is.
        """
        # Stages run one at a time: no script of another stage may be left, however that one ended.
        await self._services.scripts.end(self._deployment.id, but=stage.id)
        # When the stage began, if an earlier piped has begun it: our control plane keeps this time
        # in `updated_at`, upstream's in `completed_at`.
        began = float(stage.completed_at or stage.updated_at)
        if stage.status == pb.STAGE_NOT_STARTED_YET:
            decided = await self._decide_before(stage, scope)
            if decided is not None:
                self._end(stage, decided)
                return decided
            place = await self._take_turn(stage, scope)
            began = self._services.clock()
            stage.status = pb.STAGE_RUNNING
            stage.completed_at = stage.updated_at = int(began)
            self._publish_begin(stage)
        else:
            place = self._services.turns.resume_place(self._deployment, stage)
        on_begun()
        try:
            return await self._run_begun(stage, scope, began)
        finally:
            self._services.turns.give_back(place)

    async def _run_begun(
        self, stage: PipelineStage, scope: StopScope, began: float
    ) -> StageOutcome:
        limits = self._limits(stage, began)
        asked = Asked()
        outcome = await run_stage(stage, lambda: self._execute(stage, asked), scope, limits)
        if not outcome.ended:
            if isinstance(scope.reason, HandedOver):
                await self._services.scripts.end(self._deployment.id)
            raise StopRequestedError(Terminated())
        can_tell = not asked.has_ended and (scope.reason is not None or not asked.was_asked)
        await self._end_scripts(stage, told_by_plugin=can_tell and not self.stopping)
        self._end(stage, outcome)
        return outcome

    async def _take_turn(self, stage: PipelineStage, scope: StopScope) -> Ticket | None:
        """Wait until the stage may begin; returns its place, which is given back at its end.

        The time does not count against the deployment's timeout. Raises StopRequestedError.
        """
        if is_rollback(stage):
            return None
        turns, deployment, asked_at = self._services.turns, self._deployment, self._services.clock()
        place = None
        try:
            async with scope:
                await turns.wait_unpaused(deployment)
                place = await turns.take_place(deployment, stage)
                while turns.is_paused(deployment):  # since it waits for its place
                    turns.give_back(place)
                    place = None
                    await turns.wait_unpaused(deployment)
                    place = await turns.take_place(deployment, stage)
                await self._services.permit.wait_for_stage(rollback=False)
        except BaseException:
            turns.give_back(place)
            raise
        self._note_waited(self._services.clock() - asked_at)
        self._check_epoch(place)
        return place

    def _check_epoch(self, place: Ticket | None) -> None:
        """Raises StopRequestedError when another instance has run the deployment meanwhile."""
        if self._services.permit.epoch != self._epoch:
            self._services.turns.give_back(place)
            raise StopRequestedError(HandedOver())

    def _note_waited(self, seconds: float) -> None:
        """Keep how long the deployment has waited for its turns, also for a restarted piped."""
        if seconds < 1:
            return
        kept = self._deployment.metadata_v2.shared.keyValues
        notes = {WAITED_KEY: str(int(self._read_waited() + seconds))}
        kept.update(notes)
        self._services.facts.publish(DeploymentNoted(deployment=self._deployment, notes=notes))

    def _read_waited(self) -> int:
        kept = self._deployment.metadata_v2.shared.keyValues.get(WAITED_KEY, "")
        return int(kept) if kept.isascii() and kept.isdigit() and len(kept) < 10 else 0

    async def _end_scripts(self, stage: PipelineStage, *, told_by_plugin: bool) -> None:
        """End all scripts of a stage, and forbid further starts, before its end is reported.

        The plugin may not have been called for the stage at all: the stage was stopped while piped
        or the plugin was down, or during the checkout. With `told_by_plugin` it is called now: it
        ends the script instead of resuming it, and writes the rest of the output to the stage log.
        """
        scripts, deployment_id = self._services.scripts, self._deployment.id
        if told_by_plugin and scripts.stop(deployment_id, stage.id):
            try:
                async with asyncio.timeout(END_LIMIT_SECONDS):
                    await self._execute(stage, Asked(), files=False)
            except (PipecdError, StopRequestedError, TimeoutError) as error:
                log.warning("stage.end_not_delivered", stage=stage.name, reason=str(error))
            except Exception:  # noqa: BLE001 - one of the doors: the stage has its outcome already
                log.bug("stage.bug", stage=stage.name)
        await scripts.end(deployment_id, only=stage.id)

    async def _decide_before(self, stage: PipelineStage, scope: StopScope) -> StageOutcome | None:
        """Returns the outcome of a stage that does not run at all, None when it runs.

        Raises StopRequestedError when the deployment is stopped, timed out or taken over.
        """
        async with scope:
            await self._services.permit.wait_for_stage(rollback=is_rollback(stage))
        if self._services.permit.epoch != self._epoch:
            # Another instance has run the deployment meanwhile: what is known here is out of date.
            raise StopRequestedError(HandedOver())
        if is_rollback(stage):
            return None
        left = self._deployment_limit()
        if left.seconds <= 0:
            raise StopRequestedError(TimedOut(sentence=left.sentence))
        entry = self._entry(stage)
        if entry is None:
            return None
        try:
            async with scope:
                why = await self._skip_reason(entry)
        except PipecdError as error:
            return StageOutcome(
                status=pb.STAGE_FAILURE, reason=f"skipOn cannot be decided: {error.with_hint()}"
            )
        return StageOutcome(status=pb.STAGE_SKIPPED, reason=why) if why else None

    async def _skip_reason(self, entry: StageConfig) -> str:
        deployment = self._deployment
        running = deployment.running_commit_hash

        async def list_changed() -> list[str]:
            return await self._services.sources.list_changed_paths(
                deployment.git_path, running, deployment.trigger.commit.hash
            )

        return await skip_reason(
            entry.skip_on,
            message=deployment.trigger.commit.message,
            changed=list_changed if running else None,
        )

    async def _execute(
        self, stage: PipelineStage, asked: Asked, *, files: bool = True
    ) -> ExecuteStageResponse:
        plugin, stage = await self._find_plugin(stage)
        run = ExecutePluginInput(
            deployment=self._deployment, stage=stage, stage_config=self._stage_config(stage)
        )
        async with AsyncExitStack() as opened:
            async with UnwrappedTaskGroup() as tasks:
                # The next piped must know that the previous stage has ended: it is not run again.
                tasks.create_task(self._services.reports.wait_durable(self._deployment))
                if not files or stage.name in plugin.stages_without_files:
                    run.target_deployment_source.CopyFrom(self._source)
                else:
                    await self._open_sources(run, opened)
            self.with_a_plugin = True
            try:
                return await execute_on(plugin, run, asked, stopping=lambda: self.stopping)
            finally:
                self.with_a_plugin = False

    async def _open_sources(self, run: ExecutePluginInput, opened: AsyncExitStack) -> None:
        deployment, sources = self._deployment, self._services.sources
        target, running = await opened.enter_async_context(
            open_commits(
                sources,
                deployment,
                deployment.running_commit_hash,
                deployment.running_config_filename,
            )
        )
        run.target_deployment_source.CopyFrom(target)
        if running is not None:
            run.running_deployment_source.CopyFrom(running)

    def find_decision_time(self, stage: PipelineStage) -> timedelta | None:
        """Returns for how long a person is waited for when a stage has failed; None: not at all."""
        entry = self._entry(stage)
        wanted = self._config.on_failure
        if entry is not None and entry.on_failure is not None:
            wanted = entry.on_failure
        return self._config.on_failure_timeout if wanted == "wait" else None

    async def _find_plugin(self, stage: PipelineStage) -> tuple[PluginCalls, PipelineStage]:
        """Returns the plugin of a stage, and the stage as the plugin knows it."""
        try:
            return self._plugin_of(stage), stage
        except NoPluginForStageError:
            if stage.name != ROLLBACK:
                raise
        # Planned by an older agent, which had one name for the rollbacks of all platforms.
        for planned in await self._services.planner.rollback_stages(self._deployment, self._config):
            if planned.name != SCRIPT_RUN_ROLLBACK:
                known = PipelineStage()
                known.CopyFrom(stage)
                known.name, known.index, known.rollback = planned.name, planned.index, True
                return self._plugin_of(planned), known
        raise ConfigError("no plugin of the application's stages has a rollback")

    def _plugin_of(self, stage: PipelineStage) -> PluginCalls:
        plugins = self._services.plugins
        if stage.metadata.get(PLUGIN, "") in plugins.plugins:
            return plugins.plugins[stage.metadata[PLUGIN]]
        # Planned by another agent, or the plugin has been given another name since.
        declared = [*self._config.plugins, *self._deployment.deploy_targets_by_plugin]
        return plugins.choose(stage.name, wanted=None, declared=declared)

    def _entry(self, stage: PipelineStage) -> StageConfig | None:
        """Returns the stage's entry in the application file; None for a stage of a quick sync."""
        if self._deployment.trigger.sync_strategy == QUICK_SYNC:
            return None
        entries = self._config.pipeline.stages
        return entries[stage.index] if 0 <= stage.index < len(entries) else None

    def _stage_config(self, stage: PipelineStage) -> bytes:
        entry = self._entry(stage)
        if entry is not None:
            return config_bytes(entry)
        if self._deployment.trigger.sync_strategy == QUICK_SYNC:
            return b""  # the sign for plugins to use their quick-sync options
        raise ConfigError(f"the pipeline of the application has no stage {stage.index + 1}")

    def _limits(self, stage: PipelineStage, began: float) -> list[Limit]:
        """Returns what is left of the timeouts of the stage and of the deployment.

        Both count from the real start, also after a restart of piped. A rollback has only its own
        timeout. The rollback of a script uses that of the script's entry; any other rollback uses
        the default, because the entry at its index belongs to an unrelated stage.
        """
        entry = self._entry(stage)
        if entry is None or (is_rollback(stage) and stage.name != SCRIPT_RUN_ROLLBACK):
            allowed = StageConfig(name=stage.name).timeout
        else:
            allowed = entry.timeout
        own = Limit(
            seconds=began + allowed.total_seconds() - self._services.clock(),
            sentence=f"{stage.name} took longer than {allowed}",
        )
        return [own] if is_rollback(stage) else [own, self._deployment_limit()]

    def _deployment_limit(self) -> Limit:
        allowed = self._config.timeout
        return Limit(
            seconds=self._began
            + self._read_waited()
            + allowed.total_seconds()
            - self._services.clock(),
            sentence=f"the deployment took longer than {allowed}",
        )

    def _publish_begin(self, stage: PipelineStage) -> None:
        facts = self._services.facts
        facts.publish(StageChanged(deployment=self._deployment, stage=stage))
        if stage.available_operation == pb.MANUAL_OPERATION_APPROVE:
            facts.publish(WaitsForApproval(deployment=self._deployment, stage=stage))

    def _end(self, stage: PipelineStage, outcome: StageOutcome) -> None:
        stage.status = outcome.status
        stage.status_reason = outcome.reason
        stage.completed_at = stage.updated_at = int(self._services.clock())
        self._services.facts.publish(StageChanged(deployment=self._deployment, stage=stage))
        log.info(
            "stage.finished",
            stage=stage.name,
            status=pb.StageStatus.Name(outcome.status),
            reason=outcome.reason,
        )
        self._services.commands.finish_stage(self._deployment.id, stage.id)
