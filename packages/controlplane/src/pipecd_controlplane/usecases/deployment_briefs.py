# SPDX-License-Identifier: Apache-2.0
"""Deployments in lists: what a person needs to see of each, and what it waits for."""

from collections.abc import Iterator

from pipecd_model import stage as stages
from pipecd_model.command import approvers as list_approvers
from pipecd_model.deployment import find_stage_to_decide, is_completed
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipecd.api import overview_pb2 as pb

STATUSES = {
    model.DEPLOYMENT_SUCCESS: pb.SUCCEEDED,
    model.DEPLOYMENT_FAILURE: pb.FAILED,
    model.DEPLOYMENT_CANCELLED: pb.CANCELLED,
}


def find_status(deployment: model.Deployment) -> pb.ApplicationStatus.ValueType:
    """Returns how an application is whose newest deployment this is."""
    if is_completed(deployment.status):
        return STATUSES[deployment.status]
    return pb.WAITING if any(True for _ in find_waiting_stages(deployment)) else pb.IN_PROGRESS


def find_waiting_stages(deployment: model.Deployment) -> Iterator[model.PipelineStage]:
    """Yields the stages at which a person is waited for."""
    for stage in deployment.stages:
        is_running = stage.status == model.STAGE_RUNNING
        if is_running and stage.available_operation == model.MANUAL_OPERATION_APPROVE:
            yield stage
    failed = find_stage_to_decide(deployment)
    if failed is not None:
        yield failed


def describe_wait(deployment: model.Deployment) -> pb.WaitingDeployment | None:
    """Returns what a deployment waits for of a person; None when it waits for nobody."""
    stage = next(find_waiting_stages(deployment), None)
    if stage is None:
        return None
    is_approval = stage.status == model.STAGE_RUNNING
    approvers = list_approvers(stage) if is_approval else ()
    if is_approval:
        sentence = f"{stage.name} waits for an approval"
        sentence += f" by {' or '.join(approvers)}" if approvers else ""
    else:
        sentence = f"{stage.name} failed: {deployment.status_reason}"
    return pb.WaitingDeployment(
        deployment=make_brief(deployment, stage),
        cause=pb.WaitingDeployment.APPROVAL if is_approval else pb.WaitingDeployment.DECISION,
        sentence=sentence,
        approvers=approvers,
        since=stage.updated_at or deployment.updated_at,
    )


def make_brief(
    deployment: model.Deployment, stage: model.PipelineStage | None = None
) -> pb.DeploymentBrief:
    """Returns what a list shows of a deployment; `stage` is the one to look at."""
    stage = stage or _find_stage(deployment)
    commit = deployment.trigger.commit
    forward = stages.forward_stages(deployment)
    return pb.DeploymentBrief(
        id=deployment.id,
        application_id=deployment.application_id,
        application_name=deployment.application_name,
        labels=deployment.labels,
        status=deployment.status,
        status_reason=deployment.status_reason,
        summary=deployment.summary,
        triggered_by=deployment.trigger.commander or commit.author,
        commit_hash=commit.hash,
        commit_message=commit.message.partition("\n")[0],
        created_at=deployment.created_at,
        completed_at=deployment.completed_at,
        updated_at=deployment.updated_at,
        stage_id=stage.id if stage else "",
        stage_name=stage.name if stage else "",
        stage_retried_count=stage.retried_count if stage else 0,
        stages_done=sum(stages.is_completed(each.status) for each in forward),
        stages=len(forward),
    )


def _find_stage(deployment: model.Deployment) -> model.PipelineStage | None:
    """Returns the stage that a person is waited for at, that runs, or that failed first."""
    waiting = next(find_waiting_stages(deployment), None)
    for status in (model.STAGE_RUNNING, model.STAGE_FAILURE, model.STAGE_CANCELLED):
        if waiting is not None:
            break
        waiting = next((each for each in deployment.stages if each.status == status), None)
    return waiting
