# SPDX-License-Identifier: Apache-2.0
"""The words, colours and marks of states: of deployments, stages, applications and pipeds."""

from dataclasses import dataclass
from typing import Final

from pipecd_model.deployment import find_stage_to_decide
from pipecd_model.holds import COMMIT_WAITS, describe_pin
from pipecd_model.stage import format_stage_number
from pipecd_pipectl.data import name_state
from pipecd_wire.model import application_pb2, deployment_pb2, piped_pb2
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl

PREFIX: Final = "DEPLOYMENT_"

STATUSES: Final = [
    name.removeprefix(PREFIX)
    for name in deployment_pb2.DeploymentStatus.keys()  # noqa: SIM118 - an enum, not a dict
]

COLOURS: Final = {
    "CANCELLED": "yellow",
    "DEPLOYED": "green",
    "DEPLOYING": "blue",
    "DISABLED": "yellow",
    "FAILED": "red",
    "FAILURE": "red",
    "INVALID CONFIG": "red",
    "OFFLINE": "red",
    "ONLINE": "green",
    "OUT OF SYNC": "red",
    "PENDING": "yellow",
    "PINNED": "yellow",
    "ROLLING BACK": "magenta",
    "ROLLING_BACK": "magenta",
    "RUNNING": "blue",
    "SUCCESS": "green",
    "SYNCED": "green",
}

MARKS: Final = {
    deployment_pb2.STAGE_NOT_STARTED_YET: ("·", None),
    deployment_pb2.STAGE_RUNNING: ("▶", "blue"),
    deployment_pb2.STAGE_SUCCESS: ("✔", "green"),
    deployment_pb2.STAGE_FAILURE: ("✘", "red"),
    deployment_pb2.STAGE_CANCELLED: ("■", "yellow"),
    deployment_pb2.STAGE_SKIPPED: ("↷", None),
    deployment_pb2.STAGE_EXITED: ("✔", "green"),
}


def status_name(status: int) -> str:
    """Returns the name of a deployment's status as flags take it."""
    return name_state(deployment_pb2.DeploymentStatus.DESCRIPTOR, status)


def stage_status_name(status: int) -> str:
    """Returns the name of a stage's status."""
    return name_state(deployment_pb2.StageStatus.DESCRIPTOR, status)


def connection_name(piped: piped_pb2.Piped) -> str:
    """Returns the state of a piped: DISABLED, or that of its connection."""
    if piped.disabled:
        return "DISABLED"
    return name_state(piped_pb2.Piped.ConnectionStatus.DESCRIPTOR, piped.status)


def is_waiting_for_approval(stage: deployment_pb2.PipelineStage) -> bool:
    """Returns whether a stage runs that goes on when somebody approves it."""
    return (
        stage.status == deployment_pb2.STAGE_RUNNING
        and stage.available_operation == deployment_pb2.MANUAL_OPERATION_APPROVE
    )


def list_running_stages(
    deployment: deployment_pb2.Deployment,
) -> list[deployment_pb2.PipelineStage]:
    """Returns the stages that run now."""
    return [each for each in deployment.stages if each.status == deployment_pb2.STAGE_RUNNING]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationStatus:
    """What an application is, in a word, and why."""

    word: str
    reason: str = ""


def needs_last_deployment(application: application_pb2.Application) -> bool:
    """Returns whether only its last deployment tells how the application is."""
    triggered = application.most_recently_triggered_deployment.deployment_id
    successful = application.most_recently_successful_deployment.deployment_id
    return not application.disabled and bool(triggered) and triggered != successful


def describe_application(
    application: application_pb2.Application,
    last: deployment_pb2.Deployment | None,
    control: ApplicationControl | None = None,
) -> ApplicationStatus:
    """Returns the status of an application; `last` is its last deployment, if that matters.

    An application of which nobody reports what runs has a state, too: how its last deployment
    ended.
    """
    state = application.sync_state
    if application.disabled:
        return ApplicationStatus(word="DISABLED")
    if state.status == application_pb2.INVALID_CONFIG:
        return ApplicationStatus(word="INVALID CONFIG", reason=state.reason or state.short_reason)
    if application.deploying or state.status == application_pb2.DEPLOYING:
        return ApplicationStatus(word="DEPLOYING", reason=describe_running(last) if last else "")
    drifts = state.status == application_pb2.OUT_OF_SYNC and state.short_reason != COMMIT_WAITS
    if control is not None and control.HasField("pin") and not drifts:
        return ApplicationStatus(word="PINNED", reason=describe_pin(control.pin))
    if state.status == application_pb2.OUT_OF_SYNC:
        return ApplicationStatus(word="OUT OF SYNC", reason=state.short_reason)
    if last is not None and last.status == deployment_pb2.DEPLOYMENT_FAILURE:
        return ApplicationStatus(word="FAILED", reason=last.status_reason)
    if last is not None and last.status == deployment_pb2.DEPLOYMENT_CANCELLED:
        return ApplicationStatus(word="CANCELLED", reason=last.status_reason)
    if state.status == application_pb2.SYNCED:
        return ApplicationStatus(word="SYNCED")
    if state.short_reason or state.reason:
        return ApplicationStatus(word="UNKNOWN", reason=state.short_reason or state.reason)
    if application.most_recently_successful_deployment.deployment_id:
        return ApplicationStatus(word="DEPLOYED")
    return ApplicationStatus(word="NOT DEPLOYED")


def describe_running(deployment: deployment_pb2.Deployment) -> str:
    """Returns what a deployment does now: its stage, and whether that waits for a person."""
    for stage in list_running_stages(deployment):
        doing = "waits for approval" if is_waiting_for_approval(stage) else "runs"
        return f"stage {format_stage_number(stage)} {stage.name} {doing}"
    failed = find_stage_to_decide(deployment)
    if failed is not None:
        return f"stage {format_stage_number(failed)} {failed.name} failed, waits for a person"
    if deployment.status == deployment_pb2.DEPLOYMENT_PENDING:
        return "waits for its turn"
    return deployment.status_reason
