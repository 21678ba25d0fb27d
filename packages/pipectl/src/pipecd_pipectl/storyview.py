# SPDX-License-Identifier: Apache-2.0
"""The story of a deployment: what happened when, how long it took, and who did what."""

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from pipecd_model.deployment import is_completed
from pipecd_model.stage import format_stage_number
from pipecd_model.stage import is_completed as stage_is_completed
from pipecd_pipectl.client import Client
from pipecd_pipectl.deploymentview import measure_stage
from pipecd_pipectl.output import echo, wrap_text
from pipecd_pipectl.statuses import MARKS, stage_status_name, status_name
from pipecd_pipectl.times import format_clock, format_duration
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.control.control_pb2 import DeploymentRecord, StageAction
from pipecd_wire.rpc import CallError, call

VERBS: Final = {
    StageAction.APPROVED: "approved",
    StageAction.SKIPPED: "skipped",
    StageAction.RETRIED: "retried",
    StageAction.CANCELLED: "cancelled",
    StageAction.ROLLED_BACK: "rolled back",
    StageAction.OVERRIDDEN: "let begin in spite of the rules:",
}


CREATED: Final = 0
"""The order of the event that a deployment was created."""


class StoryEvent(NamedTuple):
    """One thing that happened. Times have seconds: what causes comes before what is caused."""

    at: int
    order: int
    text: str


async def read_record(client: Client, deployment_id: str) -> DeploymentRecord:
    """Returns what people did to a deployment; empty at a control plane that does not know."""
    request = api_pb2.GetDeploymentRecordRequest(deployment_id=deployment_id)
    try:
        return (await call(client.deployments.GetDeploymentRecord, request)).record
    except CallError as error:
        if error.status not in {"UNIMPLEMENTED", "NOT_FOUND"}:
            raise
        return DeploymentRecord(deployment_id=deployment_id)


def print_story(deployment: pb.Deployment, record: DeploymentRecord) -> None:
    """Prints the story of a deployment that somebody did something to, or asked for."""
    if not (record.by or record.actions or record.refusals):
        return
    echo()
    echo("story")
    for event in list_events(deployment, record, time.time()):
        text = make_printable_line(event.text)
        echo(wrap_text(text, first=f"  {format_clock(event.at)}  "))


def list_events(
    deployment: pb.Deployment, record: DeploymentRecord, now: float
) -> list[StoryEvent]:
    """Returns what happened, in its order: first of all, that it was created.

    A deployment is created later than the last one of its application, if need be by a second that
    has not passed yet.
    """
    events = [
        *_list_ends(deployment, record),
        *_list_stages(deployment, now),
        *_list_actions(deployment, record),
    ]
    return sorted(events, key=lambda event: (event.order != CREATED, event))


def _list_ends(deployment: pb.Deployment, record: DeploymentRecord) -> Iterator[StoryEvent]:
    by = record.by or deployment.trigger.commander
    said = f": {record.reason}" if record.reason else ""
    what = "roll-back asked for" if record.type == DeploymentRecord.ROLL_BACK else "asked for"
    begun = f"{what} by {by}{said}" if by else "created because of a commit"
    yield StoryEvent(deployment.created_at, CREATED, begun)
    if is_completed(deployment.status):
        took = format_duration(deployment.completed_at - deployment.created_at)
        yield StoryEvent(
            deployment.completed_at,
            3,
            f"{status_name(deployment.status)} after {took}: {deployment.status_reason}",
        )
    for refusal in record.refusals:  # of what follows its end, and is reported before it
        yield StoryEvent(deployment.completed_at or deployment.updated_at, 4, refusal)


def _list_stages(deployment: pb.Deployment, now: float) -> Iterator[StoryEvent]:
    for stage in deployment.stages:
        if stage.status == pb.STAGE_NOT_STARTED_YET:
            continue
        passed = measure_stage(deployment, stage, now)
        took = "" if passed is None else f" after {format_duration(passed)}"
        again = f", attempt {stage.retried_count + 1}" if stage.retried_count else ""
        label = f"{MARKS[stage.status][0]} {format_stage_number(stage)} {stage.name}{again}"
        if stage_is_completed(stage.status):
            word = stage_status_name(stage.status)
            yield StoryEvent(stage.completed_at, 2, f"{label} {word}{took}")
        else:
            began = stage.completed_at or stage.updated_at
            yield StoryEvent(began, 2, f"{label} runs since then")


def _list_actions(deployment: pb.Deployment, record: DeploymentRecord) -> Iterator[StoryEvent]:
    stages = {each.id: each for each in deployment.stages}
    for action in record.actions:
        stage = stages.get(action.stage_id)
        what = f"{format_stage_number(stage)} {stage.name}" if stage is not None else "it"
        verb = VERBS.get(action.kind, "did something to")
        again = f" as attempt {action.attempt + 1}" if action.kind == StageAction.RETRIED else ""
        said = f": {action.comment}" if action.comment else ""
        text = f"{action.by or 'somebody'} {verb} {what}{again}{said}"
        yield StoryEvent(action.at.seconds, 1, text)
