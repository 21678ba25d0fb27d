# SPDX-License-Identifier: Apache-2.0
"""Runs one deployment from its current status to its end: plan, stages, rollback, reports.

A run owns its copy of the deployment, and nothing else changes it. It ends when the deployment is
completed, or leaves it as it is when piped stops; a later run resumes from the stored statuses.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pipecd_model.config import ApplicationConfig
from pipecd_model.deployment import WAITS_FOR_DECISION, is_completed
from pipecd_model.errors import PipecdError
from pipecd_model.queueing import INTERRUPTIBLE, SUPERSEDED_BY_KEY, RunningView
from pipecd_model.stage import forward_stages, has_started, is_rollback, rollback_stages
from pipecd_model.stage import is_completed as stage_is_completed
from pipecd_piped.controlplane.epoch import lease_epoch
from pipecd_piped.facts import (
    DeploymentCompleted,
    DeploymentNoted,
    DeploymentStarted,
    Planned,
    StatusChanged,
)
from pipecd_piped.plan.retrying import retry_while_unavailable
from pipecd_piped.plan.sources import read_config, read_target
from pipecd_piped.report.commands import SUCCEEDED, CommandOutcome
from pipecd_piped.report.statuses import reference
from pipecd_piped.schedule.choices import Choices
from pipecd_piped.schedule.events import build_events
from pipecd_piped.schedule.services import RunServices
from pipecd_piped.schedule.stage import StageOutcome
from pipecd_piped.schedule.stages import PreparedCommit, StageRunner
from pipecd_piped.schedule.stop import (
    Cancelled,
    HandedOver,
    Refused,
    StopRequestedError,
    StopScope,
    Superseded,
    Terminated,
    TimedOut,
)
from pipecd_runtime.logs import log_context, logger
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment, DeploymentStatus, PipelineStage
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipecd.push.push_pb2 import RegisterEventRequest

log = logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentEnding:
    """The final status of a deployment, and the forward stage at which it stopped."""

    status: DeploymentStatus.ValueType
    reason: str
    stage: PipelineStage | None = None

    def also(self, more: str) -> "DeploymentEnding":
        return replace(self, reason=f"{self.reason}; {more}")


def name_once(stage: PipelineStage, what: str, reason: str) -> str:
    """Returns a reason that begins with the name of its stage, which many reasons already do."""
    return reason if reason.startswith(f"{stage.name} ") else f"{stage.name}{what}: {reason}"


class DeploymentRun:
    """Runs one deployment."""

    def __init__(self, deployment: Deployment, services: RunServices) -> None:
        self.deployment = Deployment()
        self.deployment.CopyFrom(deployment)
        self._services = services
        self._scope = StopScope()
        self._stages: StageRunner | None = None
        self._config: ApplicationConfig | None = None
        self._stopping: Terminated | None = None
        self.epoch = services.permit.epoch
        """The epoch of the lease under which it runs."""
        self._planned_at = 0.0
        self._begun = deployment.status != pb.DEPLOYMENT_PENDING
        self._rolling_back = deployment.status == pb.DEPLOYMENT_ROLLING_BACK
        # Once begun, it is not cancelled before it is at its next stage: it may need a rollback.
        self._heeds_cancel = not self._begun
        self._cancels: list[Command] = []
        self._cancelled: Cancelled | None = None
        self._superseded: Superseded | None = None
        self._choices = Choices(self.deployment, services)

    def cancel(self, command: Command) -> None:
        """Cancel the deployment. During a rollback the command is only recorded."""
        if any(known.id == command.id for known in self._cancels):
            return
        self._cancels.append(command)
        wish = command.cancel_deployment
        self._cancelled = self._cancelled or Cancelled(
            by=command.commander,
            force_rollback=wish.force_rollback,
            force_no_rollback=wish.force_no_rollback,
        )
        if self._heeds_cancel:
            self._scope.stop(self._cancelled)

    def supersede(self, newer: Superseded) -> None:
        """Make way for a newer deployment: at once where that does no harm, else before a stage.

        During a rollback, and once another one has superseded it, nothing changes.
        """
        if self._superseded is not None or self._rolling_back:
            return
        self._superseded = newer
        log.info("deployment.superseded", deployment=self.deployment.id, by=newer.by)
        if self._heeds_cancel and _is_interruptible(self._running_stage()):
            self._scope.stop(newer)

    def view(self, *, is_roll_back: bool) -> RunningView:
        """Returns what the rules of the queue need to know of it."""
        stage = self._running_stage()
        return RunningView(
            stage=stage.name if stage is not None else "",
            is_rolling_back=self._rolling_back or self.is_completed,
            is_roll_back=is_roll_back,
        )

    def _running_stage(self) -> PipelineStage | None:
        stages = forward_stages(self.deployment)
        return next((each for each in stages if each.status == pb.STAGE_RUNNING), None)

    def refuse(self, reason: Refused) -> None:
        """Cancel a deployment that has not begun, and never may."""
        self._scope.stop(reason)

    def terminate(self) -> None:
        """Start nothing new because piped stops.

        A stage that a plugin runs is not stopped here: the plugin gets its own signal to stop. It
        finishes a script, and returns any other stage unfinished.
        """
        self._stopping = Terminated()
        if self._stages is not None:
            self._stages.stopping = True
            if self._stages.with_a_plugin:
                return
        self._scope.stop(self._stopping)

    def hand_over(self) -> None:
        """Stop the run without reports because another instance continues the deployment."""
        self._stopping = HandedOver()
        if self._stages is not None:
            self._stages.stopping = True
        self._scope.stop(self._stopping)

    async def run(self) -> None:
        """Run until the deployment is completed, or until piped stops."""
        deployment = self.deployment
        about = log_context(deployment=deployment.id, application=deployment.application_name)
        with about, lease_epoch(self.epoch):
            try:
                ending = await self._run()
            except StopRequestedError as stopped:
                self._leave(str(stopped))
                return
            except PipecdError as error:
                if self._is_elsewhere():
                    self._leave(str(error))
                    return
                ending = DeploymentEnding(status=pb.DEPLOYMENT_FAILURE, reason=error.with_hint())
            except Exception:  # noqa: BLE001 - one of the doors: a bug fails the deployment, not piped
                log.bug("deployment.bug")
                ending = DeploymentEnding(
                    status=pb.DEPLOYMENT_FAILURE,
                    reason="internal error of piped; its log has the details",
                )
            # Also when no stage could do it: the next deployment must not run beside them.
            await self._services.scripts.end(deployment.id)
            self._complete(ending)

    def _leave(self, why: str) -> None:
        status = DeploymentStatus.Name(self.deployment.status)
        log.info("deployment.left", status=status, why=why)

    def _is_elsewhere(self) -> bool:
        """Returns whether the lease is lost: then no error here may fail the deployment."""
        return not self._services.permit.held or self._services.permit.epoch != self.epoch

    async def _run(self) -> DeploymentEnding:
        deployment = self.deployment
        try:
            prepared = await self._prepare()
        except StopRequestedError as stopped:
            ending = self._to_ending(stopped, None)
            self._note_superseded(ending)
            return ending
        self._config = prepared.config
        with self._services.scope.open(deployment):
            self._stages = StageRunner(
                deployment,
                prepared,
                self._services,
                began=self._find_begin(),
                epoch=self.epoch,
                stopping=self._stopping is not None,
            )
            if self._rolling_back:
                ending = self._where_it_stopped()
            else:
                self._heeds_cancel = True
                self._become(pb.DEPLOYMENT_RUNNING, "the stages are running")
                ending = await self._forward(self._stages)
                self._note_superseded(ending)
            if ending.status != pb.DEPLOYMENT_SUCCESS:
                ending = await self._roll_back(self._stages, prepared.config, ending)
        return ending

    async def _prepare(self) -> PreparedCommit:
        """Plan a pending deployment; of any other, read the application file."""
        deployment, services = self.deployment, self._services
        scope = self._scope
        if deployment.status != pb.DEPLOYMENT_PENDING:
            async with scope:
                source = await read_target(services.sources, deployment)
                return PreparedCommit(config=read_config(source), source=source)
        async with scope:
            self._begun = True
            services.facts.publish(DeploymentStarted(deployment=deployment))
            running = await retry_while_unavailable(
                lambda: services.successes.get(deployment.application_id)
            )
            with services.scope.open(deployment):
                plan = await services.planner.plan(deployment, running)
            deployment.summary = plan.summary
            deployment.trigger.sync_strategy = plan.strategy
            deployment.versions.extend(plan.versions)
            deployment.stages.extend(plan.stages)
            if running is not None:
                deployment.running_commit_hash = running.trigger.commit.hash
                deployment.running_config_filename = running.config_filename
            deployment.status = pb.DEPLOYMENT_PLANNED
            deployment.status_reason = "the deployment is planned"
            await services.facts.publish_planned(Planned(deployment=deployment))
        self._planned_at = services.clock()
        log.info("deployment.planned", stages=len(deployment.stages), summary=plan.summary)
        return PreparedCommit(config=plan.config, source=plan.source)

    async def _forward(self, stages: StageRunner) -> DeploymentEnding:
        for stage in forward_stages(self.deployment):
            outcome = await self._run_stage(stages, stage)
            if isinstance(outcome, DeploymentEnding):
                return outcome
            match outcome.status:
                case pb.STAGE_SUCCESS | pb.STAGE_SKIPPED:
                    continue
                case pb.STAGE_EXITED:
                    reason = outcome.reason or f"{stage.name} ended the pipeline"
                    return DeploymentEnding(status=pb.DEPLOYMENT_SUCCESS, reason=reason)
                case pb.STAGE_CANCELLED:
                    reason = f"{outcome.reason or 'cancelled'} during {stage.name}"
                    return DeploymentEnding(
                        status=pb.DEPLOYMENT_CANCELLED, reason=reason, stage=stage
                    )
                case _:
                    return _to_failure(stage, outcome)
        return DeploymentEnding(status=pb.DEPLOYMENT_SUCCESS, reason="all stages are done")

    async def _run_stage(
        self, stages: StageRunner, stage: PipelineStage
    ) -> StageOutcome | DeploymentEnding:
        """Run a stage to its end, and again whenever it fails and a person wants that."""
        while True:
            if stage_is_completed(stage.status):
                outcome = StageOutcome(status=stage.status, reason=stage.status_reason)
            else:
                try:
                    outcome = await stages.run(
                        stage, self._new_scope(stage), self._choices.finish_begun
                    )
                except StopRequestedError as stopped:
                    return self._to_ending(stopped, stage)
            limit = stages.find_decision_time(stage)
            if outcome.status != pb.STAGE_FAILURE or limit is None:
                return outcome
            ending = await self._wait_for_decision(stage, outcome, limit)
            if ending is not None:
                return ending

    async def _wait_for_decision(
        self, stage: PipelineStage, outcome: StageOutcome, limit: timedelta
    ) -> DeploymentEnding | None:
        """Wait for a person after a failure; returns None when the stage is to be run again.

        Counted from the failure, also after a restart of piped.
        """
        ending = _to_failure(stage, outcome)
        deadline = stage.completed_at + limit.total_seconds()
        until = datetime.fromtimestamp(deadline, UTC)
        self._say(f"{ending.reason}; {WAITS_FOR_DECISION}{until:%Y-%m-%d %H:%M:%S} UTC")
        try:
            async with self._new_scope():
                choice = await self._choices.wait(stage, deadline)
        except StopRequestedError as stopped:
            if isinstance(stopped.reason, Terminated):
                raise
            reason = f"{stopped.reason} after {stage.name} had failed"
            return DeploymentEnding(status=pb.DEPLOYMENT_CANCELLED, reason=reason, stage=stage)
        if choice is None:
            return ending.also(f"nobody decided within {limit}")
        if choice.type == push.Command.ROLL_BACK:
            return ending.also(f"{choice.commander or 'somebody'} chose to roll back")
        self._say("the stages are running")
        stage.status = pb.STAGE_NOT_STARTED_YET
        stage.status_reason = ""
        stage.retried_count = choice.attempt
        log.info("stage.retried", stage=stage.name, attempt=choice.attempt, by=choice.commander)
        return None

    def _to_ending(
        self, stopped: StopRequestedError, before: PipelineStage | None
    ) -> DeploymentEnding:
        """Returns the ending of a deployment that was stopped while no stage ran.

        Raises `stopped` again when piped stops: then the deployment is left as it is.
        """
        match stopped.reason:
            case Cancelled() | Superseded():
                where = f" before {before.name}" if before else " before it began"
                return DeploymentEnding(
                    status=pb.DEPLOYMENT_CANCELLED, reason=f"{stopped.reason}{where}", stage=before
                )
            case Refused():
                return DeploymentEnding(
                    status=pb.DEPLOYMENT_CANCELLED, reason=str(stopped.reason), stage=before
                )
            case TimedOut():
                return DeploymentEnding(
                    status=pb.DEPLOYMENT_FAILURE, reason=str(stopped.reason), stage=before
                )
            case Terminated():
                raise stopped

    def _where_it_stopped(self) -> DeploymentEnding:
        """Returns the ending of a deployment whose rollback an earlier piped has begun."""
        reason = self.deployment.status_reason
        for stage in forward_stages(self.deployment):
            if stage.status == pb.STAGE_CANCELLED:
                return DeploymentEnding(status=pb.DEPLOYMENT_CANCELLED, reason=reason, stage=stage)
            if stage.status == pb.STAGE_FAILURE:
                return DeploymentEnding(status=pb.DEPLOYMENT_FAILURE, reason=reason, stage=stage)
        is_superseded = SUPERSEDED_BY_KEY in self.deployment.metadata_v2.shared.keyValues
        is_stopped = bool(self._cancels) or is_superseded
        status = pb.DEPLOYMENT_CANCELLED if is_stopped else pb.DEPLOYMENT_FAILURE
        return DeploymentEnding(status=status, reason=reason)

    def _note_superseded(self, ending: DeploymentEnding) -> None:
        """Keep by which deployment this one was superseded, if that is what ended it."""
        newer = self._superseded
        if newer is None or not ending.reason.startswith(newer.sentence):
            return
        notes = {SUPERSEDED_BY_KEY: newer.by}
        self.deployment.metadata_v2.shared.keyValues.update(notes)
        self._services.facts.publish(DeploymentNoted(deployment=self.deployment, notes=notes))

    async def _roll_back(
        self, stages: StageRunner, config: ApplicationConfig, ending: DeploymentEnding
    ) -> DeploymentEnding:
        deployment = self.deployment
        self._heeds_cancel = False
        wish = self._cancelled if not self._rolling_back else None
        self._rolling_back = True
        if wish is not None and wish.force_no_rollback:
            return ending.also("not rolled back, as asked")
        if wish is not None and wish.force_rollback:
            if not any(is_rollback(stage) for stage in deployment.stages):
                try:
                    async with self._new_scope():
                        await self._build_rollback(config)
                except PipecdError as error:
                    return ending.also(f"the rollback could not be planned: {error.with_hint()}")
        elif not any(has_started(stage) for stage in forward_stages(deployment)):
            return ending  # nothing was done that could be undone
        todo = rollback_stages(deployment)
        if not todo:
            return ending if config.planner.auto_rollback else ending.also("not rolled back")
        self._become(pb.DEPLOYMENT_ROLLING_BACK, ending.reason)
        self._choices.finish_begun()
        for stage in todo:
            if stage_is_completed(stage.status):
                continue
            if ending.stage is not None:
                stage.requires[:] = [ending.stage.id]
            await stages.run(stage, self._new_scope())
        failed = [
            name_once(stage, "", stage.status_reason)
            for stage in todo
            if stage.status not in {pb.STAGE_SUCCESS, pb.STAGE_SKIPPED, pb.STAGE_EXITED}
        ]
        return ending.also(f"the rollback failed: {', '.join(failed)}" if failed else "rolled back")

    async def _build_rollback(self, config: ApplicationConfig) -> None:
        """Plan the rollback that a user has asked for and the application file has switched off."""
        deployment, services = self.deployment, self._services
        built = await services.planner.rollback_stages(deployment, config)
        # Publishing the plan replaces all stages: keep the metadata that plugins have stored since.
        stored = await retry_while_unavailable(lambda: services.read_deployment(deployment.id))
        kept = {stage.id: stage for stage in stored.stages}
        for stage in deployment.stages:
            if stage.id in kept:
                stage.metadata.update(kept[stage.id].metadata)
        deployment.stages.extend(built)
        await services.facts.publish_planned(Planned(deployment=deployment))

    def _find_begin(self) -> float:
        """Returns when the deployment was planned, which is when its stages were created."""
        made = [stage.created_at for stage in self.deployment.stages]
        return self._planned_at or float(min(made, default=self.deployment.created_at))

    def _new_scope(self, stage: PipelineStage | None = None) -> StopScope:
        """Returns the scope of the next stage, already stopped if the run is to stop.

        A stage that an earlier piped has begun and that cannot be interrupted comes to its end
        before a newer deployment gets its way.
        """
        self._scope = StopScope()
        if self._stopping is not None:
            self._scope.stop(self._stopping)
        elif self._cancelled is not None and self._heeds_cancel:
            self._scope.stop(self._cancelled)
        elif self._superseded is not None and self._heeds_cancel:
            begun = stage if stage is not None and stage.status == pb.STAGE_RUNNING else None
            if _is_interruptible(begun):
                self._scope.stop(self._superseded)
        return self._scope

    def _become(self, status: DeploymentStatus.ValueType, reason: str) -> None:
        deployment = self.deployment
        if deployment.status != status:
            deployment.status = status
            deployment.status_reason = reason
            deployment.updated_at = int(self._services.clock())
            self._services.facts.publish(StatusChanged(deployment=deployment))

    def _say(self, reason: str) -> None:
        """Report another reason for the status that the deployment has."""
        if self.deployment.status_reason != reason:
            self.deployment.status_reason = reason
            self._services.facts.publish(StatusChanged(deployment=self.deployment))

    def _complete(self, ending: DeploymentEnding) -> None:
        deployment, services = self.deployment, self._services
        if self._cancels and ending.status != pb.DEPLOYMENT_CANCELLED:
            by = ", ".join(command.commander for command in self._cancels if command.commander)
            ending = ending.also(f"the cancel {f'of {by} ' if by else ''}came too late")
        events: list[RegisterEventRequest] = []
        goes_on = ending.status == pb.DEPLOYMENT_SUCCESS and not services.turns.is_roll_back(
            deployment
        )
        if self._config is not None and goes_on:
            events, faults = build_events(self._config, deployment)
            for fault in faults:
                ending = ending.also(fault)
        deployment.status = ending.status
        deployment.status_reason = ending.reason
        deployment.completed_at = deployment.updated_at = int(services.clock())
        services.facts.publish(
            DeploymentCompleted(
                deployment=deployment, was_started=self._begun, events=tuple(events)
            )
        )
        if ending.status == pb.DEPLOYMENT_SUCCESS:
            services.successes.remember(deployment.application_id, reference(deployment))
        in_time = ending.status == pb.DEPLOYMENT_CANCELLED
        outcome = SUCCEEDED if in_time else CommandOutcome.fail("the deployment ended otherwise")
        for command in self._cancels:
            services.commands.finish(command, outcome)
        self._choices.finish_all()
        log.info(
            "deployment.finished",
            status=DeploymentStatus.Name(deployment.status),
            reason=ending.reason,
        )

    @property
    def is_completed(self) -> bool:
        """Returns whether the deployment is completed."""
        return is_completed(self.deployment.status)


def _to_failure(stage: PipelineStage, outcome: StageOutcome) -> DeploymentEnding:
    """Returns the ending of a deployment whose stage has failed."""
    reason = name_once(stage, " failed", outcome.reason)
    return DeploymentEnding(status=pb.DEPLOYMENT_FAILURE, reason=reason, stage=stage)


def _is_interruptible(stage: PipelineStage | None) -> bool:
    """Returns whether a newer deployment may stop this one now, in its running stage if any."""
    return stage is None or stage.name in INTERRUPTIBLE
