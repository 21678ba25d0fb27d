# SPDX-License-Identifier: Apache-2.0
"""Apply a piped's reports to a deployment: plain functions that change the message.

Pipeds retry reports whose response was lost, and some reports arrive late. So a repeated report
changes nothing, and a report that would move a status backwards is accepted and ignored: an error
would only make the piped send it again.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pipecd_model import deployment as deployments
from pipecd_model import stage as stages
from pipecd_model.command import APPROVERS
from pipecd_model.errors import ConfigError
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipedservice import service_pb2 as pipedservice

BEGUN: Final = frozenset({pb.DEPLOYMENT_RUNNING, pb.DEPLOYMENT_ROLLING_BACK})

# What a v0 piped leaves out because its names imply it.
OPERATIONS: Final = {
    "ANALYSIS": pb.MANUAL_OPERATION_SKIP,
    "WAIT_APPROVAL": pb.MANUAL_OPERATION_APPROVE,
}


def apply_created(deployment: pb.Deployment, now: int) -> None:
    """Fill in what a piped may leave out of a new deployment."""
    deployment.created_at = deployment.created_at or now
    deployment.updated_at = deployment.updated_at or now
    _fill_operations(deployment)


def apply_plan(
    deployment: pb.Deployment, report: pipedservice.ReportDeploymentPlannedRequest
) -> None:
    """Apply the plan. A later call may add stages, rollbacks for example, but removes none."""
    if deployments.is_completed(deployment.status):
        return
    merged = [_keep_progress(_find(deployment, stage.id), stage) for stage in report.stages]
    if deployment.status in BEGUN:
        listed = {stage.id for stage in merged}
        merged += [stage for stage in deployment.stages if stage.id not in listed]
    apply_status(deployment, pb.DEPLOYMENT_PLANNED, report.status_reason)
    deployment.summary = report.summary
    deployment.running_commit_hash = report.running_commit_hash
    deployment.running_config_filename = report.running_config_filename
    deployment.trigger.sync_strategy = report.sync_strategy
    del deployment.versions[:]
    deployment.versions.extend(report.versions)
    kept = [pb.PipelineStage.FromString(stage.SerializeToString()) for stage in merged]
    del deployment.stages[:]
    deployment.stages.extend(kept)
    _fill_operations(deployment)


def apply_status(
    deployment: pb.Deployment, status: pb.DeploymentStatus.ValueType, reason: str
) -> None:
    if deployments.can_become(deployment.status, status):
        deployment.status = status
        deployment.status_reason = reason


def apply_completed(
    deployment: pb.Deployment, report: pipedservice.ReportDeploymentCompletedRequest
) -> None:
    """Raises ConfigError when the status is not a final one."""
    if not deployments.is_completed(report.status):
        name = pb.DeploymentStatus.Name(report.status)
        raise ConfigError(f"invalid request: status: {name} is not the end of a deployment")
    if deployments.is_completed(deployment.status):
        return
    deployment.status = report.status
    deployment.status_reason = report.status_reason
    deployment.completed_at = report.completed_at
    for stage in deployment.stages:
        if stage.id in report.stage_statuses:
            _move(stage, report.stage_statuses[stage.id], report.completed_at)


def apply_stage_status(
    deployment: pb.Deployment, report: pipedservice.ReportStageStatusChangedRequest, now: int
) -> None:
    """Raises ConfigError when the deployment has no such stage."""
    stage = _stage(deployment, report.stage_id)
    if deployments.is_completed(deployment.status) and not stages.is_completed(report.status):
        return
    if not stages.can_follow(stage, report.status, report.retried_count):
        return
    before = pb.PipelineStage()
    before.CopyFrom(stage)
    if report.retried_count > stage.retried_count and stages.is_completed(stage.status):
        stage.status = report.status  # a new attempt of a stage that failed
    _move(stage, report.status, report.completed_at)
    stage.status_reason = report.status_reason
    stage.visible = report.visible
    stage.retried_count = report.retried_count
    if report.requires:
        del stage.requires[:]
        stage.requires.extend(report.requires)
    if stage != before:
        stage.updated_at = now


def apply_progress(
    deployment: pb.Deployment, all_reports: Iterable[push.ProgressReport], now: int
) -> None:
    """Apply reports in their order. Raises ConfigError when one of them cannot be applied."""
    for report in all_reports:
        match report.WhichOneof("body"):
            case "deployment_status":
                status = report.deployment_status
                _check_same(deployment, status.deployment_id)
                apply_status(deployment, status.status, status.status_reason)
            case "stage_status":
                _check_same(deployment, report.stage_status.deployment_id)
                apply_stage_status(deployment, report.stage_status, now)
            case _:
                raise ConfigError("invalid request: reports: one of them is of an unknown kind")


def _check_same(deployment: pb.Deployment, deployment_id: str) -> None:
    if deployment_id != deployment.id:
        raise ConfigError(
            f"invalid request: reports: one of them is about the deployment {deployment_id!r}"
        )


def merge_metadata(deployment: pb.Deployment, metadata: Mapping[str, str]) -> None:
    deployment.metadata.update(metadata)


def merge_shared_metadata(deployment: pb.Deployment, metadata: Mapping[str, str]) -> None:
    deployment.metadata_v2.shared.keyValues.update(metadata)


def merge_plugin_metadata(
    deployment: pb.Deployment, plugin_name: str, metadata: Mapping[str, str]
) -> None:
    deployment.metadata_v2.plugins[plugin_name].keyValues.update(metadata)


def merge_stage_metadata(
    deployment: pb.Deployment, stage_id: str, metadata: Mapping[str, str]
) -> None:
    """Raises ConfigError when the deployment has no such stage."""
    _stage(deployment, stage_id).metadata.update(metadata)


def _move(stage: pb.PipelineStage, status: pb.StageStatus.ValueType, at: int) -> None:
    if stages.can_become(stage.status, status):
        stage.status = status
        # Every report carries a time, also one of a stage that has only begun.
        stage.completed_at = at if stages.is_completed(status) else 0


def _keep_progress(known: pb.PipelineStage | None, new: pb.PipelineStage) -> pb.PipelineStage:
    """Returns the planned stage with the progress that the known one has already made."""
    stage = pb.PipelineStage()
    stage.CopyFrom(new)
    if known is None:
        return stage
    stage.metadata.update(known.metadata)
    if not stages.can_become(known.status, new.status):
        stage.status = known.status
        stage.status_reason = known.status_reason
        stage.completed_at = known.completed_at
        stage.retried_count = known.retried_count
        stage.updated_at = known.updated_at
    return stage


def _fill_operations(deployment: pb.Deployment) -> None:
    for stage in _find_unset_operations(deployment.stages):
        stage.available_operation = OPERATIONS[stage.name]
        if not stage.authorized_operators:
            named = stage.metadata.get(APPROVERS, "").split(",")
            stage.authorized_operators.extend(name.strip() for name in named if name.strip())


def _find_unset_operations(all_stages: Iterable[pb.PipelineStage]) -> list[pb.PipelineStage]:
    return [
        stage
        for stage in all_stages
        if stage.available_operation == pb.MANUAL_OPERATION_UNKNOWN and stage.name in OPERATIONS
    ]


def _find(deployment: pb.Deployment, stage_id: str) -> pb.PipelineStage | None:
    return next((stage for stage in deployment.stages if stage.id == stage_id), None)


def _stage(deployment: pb.Deployment, stage_id: str) -> pb.PipelineStage:
    stage = _find(deployment, stage_id)
    if stage is None:
        raise ConfigError(
            f"invalid request: stage_id: the deployment {deployment.id!r} has no stage {stage_id!r}"
        )
    return stage
