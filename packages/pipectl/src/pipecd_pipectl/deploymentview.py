# SPDX-License-Identifier: Apache-2.0
"""A deployment as people read it: a line of a table, and a page with its stages."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

from pipecd_model.deployment import find_stage_to_decide, is_completed, rank_in_queue
from pipecd_model.stage import format_stage_number, is_rollback
from pipecd_pipectl.analysisview import print_analyses
from pipecd_pipectl.output import echo, print_fields
from pipecd_pipectl.queuetable import describe_queued
from pipecd_pipectl.statuses import (
    COLOURS,
    MARKS,
    describe_running,
    is_waiting_for_approval,
    stage_status_name,
    status_name,
)
from pipecd_pipectl.tables import Column, print_table, shorten_ids
from pipecd_pipectl.times import format_age, format_duration, format_moment, when
from pipecd_pipectl.typeable import SHORT_ID, format_typeable
from pipecd_wire.model import common_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment

APPROVED_USERS: Final = "pipecd/stage-approved-users"
DISPLAY: Final = "pipecd/stage-display-metadata"
SHORT_HASH: Final = 7


def print_deployments(
    deployments: Sequence[pb.Deployment],
    *,
    wide: bool,
    queued: Mapping[str, QueuedDeployment] | None = None,
) -> None:
    """Prints a table of deployments; `queued` says what some of them wait for."""
    known = queued or {}
    short = {} if wide else shorten_ids(each.id for each in deployments)
    now = time.time()
    columns: list[Column[pb.Deployment]] = [
        Column(heading="ID", cell=lambda it: short.get(it.id, it.id), fixed=True),
        Column(heading="APPLICATION", cell=lambda it: it.application_name),
        Column(
            heading="STATUS",
            cell=lambda it: status_name(it.status),
            colour=lambda it: COLOURS.get(status_name(it.status)),
            fixed=True,
        ),
        Column(heading="COMMIT", cell=_short_hash, fixed=True),
        Column(heading="STARTED", cell=lambda it: format_age(it.created_at, now), fixed=True),
        Column(heading="TOOK", cell=lambda it: _format_took(it, now), fixed=True),
        Column(heading="TITLE", cell=_get_title, wide=True),
        Column(heading="BY", cell=_get_starter, wide=True),
        Column(heading="CREATED", cell=lambda it: when(it.created_at), wide=True),
        Column(heading="SUMMARY", cell=lambda it: it.summary, wide=True),
        Column(heading="WHAT", cell=lambda it: _describe_briefly(it, deployments, known)),
    ]
    print_table(columns, deployments, wide=wide)


def find_ahead(deployment: pb.Deployment, others: Iterable[pb.Deployment]) -> pb.Deployment | None:
    """Returns the deployment that a queued one waits behind; None for one that waits for none.

    An application has one deployment at a time, and those in its queue begin in their order.
    """
    if deployment.status != pb.DEPLOYMENT_PENDING:
        return None
    ahead = [
        each
        for each in others
        if each.application_id == deployment.application_id
        and each.id != deployment.id
        and not is_completed(each.status)
        and _get_place(each) < _get_place(deployment)
    ]
    return max(ahead, key=_get_place, default=None)


def _get_place(deployment: pb.Deployment) -> tuple[int, int, int, int, str]:
    return (*rank_in_queue(deployment), deployment.created_at, deployment.id)


def describe_ahead(deployment: pb.Deployment) -> str:
    """Returns which deployment is ahead, and what it does."""
    doing = describe_running(deployment)
    return f"{deployment.id[:SHORT_ID]}" + (f", whose {doing}" if doing.startswith("stage") else "")


def print_deployment(
    deployment: pb.Deployment,
    *,
    behind: pb.Deployment | None = None,
    queued: QueuedDeployment | None = None,
    wide: bool = False,
) -> None:
    """Prints the page of a deployment; `behind` is the one that it waits behind.

    `queued` is what its agent says that it waits for.
    """
    now = time.time()
    commit = deployment.trigger.commit
    word = status_name(deployment.status)
    took = _format_took(deployment, now)
    state = click.style(word, fg=COLOURS.get(word), bold=True)
    echo(f"{click.style(deployment.application_name, bold=True)}  {state}" + (took and f"  {took}"))
    echo()
    print_fields(
        [
            ("id", deployment.id),
            ("commit", f"{_short_hash(deployment)} {_get_title(deployment)}"),
            ("author", commit.author),
            ("branch", commit.branch),
            ("started by", deployment.trigger.commander),
            ("strategy", _describe_strategy(deployment)),
            ("targets", format_targets(deployment.deploy_targets_by_plugin)),
            (
                "reason",
                deployment.status_reason if _is_reason_worth_showing(deployment) else "",
            ),
            ("queue", _describe_place(behind, queued)),
            ("created", format_moment(deployment.created_at, now)),
            ("completed", format_moment(deployment.completed_at, now)),
        ]
    )
    shown = [each for each in deployment.stages if wide or _is_worth_showing(each)]
    if shown:
        echo()
        print_stages(deployment, shown, wide=wide, now=now)
        print_analyses(shown, wide=wide)
    if hint := suggest_next(deployment):
        echo()
        echo(f"next: {hint}")


def print_stages(
    deployment: pb.Deployment, stages: Sequence[pb.PipelineStage], *, wide: bool, now: float
) -> None:
    """Prints a table of stages, with the mark of their status."""
    columns: list[Column[pb.PipelineStage]] = [
        Column(
            heading=" ",
            cell=lambda it: MARKS[it.status][0],
            colour=lambda it: MARKS[it.status][1],
            fixed=True,
        ),
        Column(heading="#", cell=format_stage_number, fixed=True),
        Column(heading="STAGE", cell=lambda it: it.name),
        Column(
            heading="STATUS",
            cell=_format_stage_status,
            colour=lambda it: MARKS[it.status][1],
            fixed=True,
        ),
        Column(heading="TOOK", cell=lambda it: _format_stage_took(deployment, it, now), fixed=True),
        Column(heading="ID", cell=lambda it: it.id, wide=True),
        Column(heading="WHAT", cell=_describe_stage),
    ]
    print_table(columns, stages, wide=wide)


def suggest_next(deployment: pb.Deployment) -> str:
    """Returns the command that a person may want next; empty when there is none."""
    name = (
        deployment.id[:SHORT_ID]
        if is_completed(deployment.status)
        else format_typeable(deployment.application_name, deployment.id)
    )
    if any(map(is_waiting_for_approval, deployment.stages)):
        return f"pipectl deployment approve {name}"
    if find_stage_to_decide(deployment) is not None:
        return f"pipectl deployment retry {name}, or rollback, or cancel"
    if deployment.status == pb.DEPLOYMENT_PENDING:
        return f"pipectl why {deployment.id[:SHORT_ID]}"
    if not is_completed(deployment.status):
        return f"pipectl deployment logs --follow {name}"
    if deployment.status == pb.DEPLOYMENT_FAILURE:
        return f"pipectl deployment logs {name}"
    return ""


def measure_stage(deployment: pb.Deployment, stage: pb.PipelineStage, now: float) -> float | None:
    """Returns how many seconds a stage has run; None for one that has not.

    When a stage began is not on record once it has ended: stages run one after the other, so it
    was when the one before it ended, or when the deployment was planned.
    """
    if stage.status in {pb.STAGE_NOT_STARTED_YET, pb.STAGE_SKIPPED}:
        return None
    if stage.status == pb.STAGE_RUNNING:
        return now - (stage.completed_at or stage.updated_at)
    before = [
        each.completed_at
        for each in deployment.stages
        if _runs_before(each, stage) and each.completed_at <= stage.completed_at
    ]
    return stage.completed_at - max([stage.created_at, *before])


def format_targets(targets: Mapping[str, pb.DeployTargets]) -> str:
    """Returns deploy targets as the option takes them: `files=east, files=west`."""
    return ", ".join(
        f"{plugin}={target}"
        for plugin in sorted(targets)
        for target in targets[plugin].deploy_targets
    )


def _runs_before(one: pb.PipelineStage, other: pb.PipelineStage) -> bool:
    if is_rollback(one) == is_rollback(other):
        return one.index < other.index
    return is_rollback(other)


def _is_worth_showing(stage: pb.PipelineStage) -> bool:
    """Returns whether a stage is part of what happens: rollback stages mostly do not run."""
    return not is_rollback(stage) or stage.status != pb.STAGE_NOT_STARTED_YET


def _is_reason_worth_showing(deployment: pb.Deployment) -> bool:
    if find_stage_to_decide(deployment) is not None:
        return True
    return deployment.status != pb.DEPLOYMENT_RUNNING


def _describe_stage(stage: pb.PipelineStage) -> str:
    if is_waiting_for_approval(stage):
        whom = ", ".join(stage.authorized_operators) or "anyone who may deploy"
        so_far = stage.metadata.get(DISPLAY, "")
        return f"waits for approval by {whom}" + (f" ({so_far})" if so_far else "")
    if stage.status_reason and stage.status != pb.STAGE_SUCCESS:
        return stage.status_reason
    if shown := stage.metadata.get(DISPLAY) or stage.metadata.get(APPROVED_USERS):
        return shown
    return stage.desc or stage.status_reason


def _describe_strategy(deployment: pb.Deployment) -> str:
    strategy = common_pb2.SyncStrategy.Name(deployment.trigger.sync_strategy)
    return (
        deployment.summary
        or deployment.trigger.strategy_summary
        or (
            ""
            if deployment.trigger.sync_strategy == common_pb2.AUTO
            else strategy.replace("_", " ")
        )
    )


def _describe_briefly(
    deployment: pb.Deployment,
    listed: Iterable[pb.Deployment],
    queued: Mapping[str, QueuedDeployment],
) -> str:
    reported = queued.get(deployment.id)
    if reported is not None and reported.cause != QueuedDeployment.OTHER_DEPLOYMENT:
        return describe_queued(reported)
    if ahead := find_ahead(deployment, listed):
        return f"waits behind {ahead.id[:SHORT_ID]}"
    if not is_completed(deployment.status):
        return describe_running(deployment)
    if deployment.status == pb.DEPLOYMENT_SUCCESS:
        return _get_title(deployment)
    return deployment.status_reason


def _describe_place(behind: pb.Deployment | None, queued: QueuedDeployment | None) -> str:
    if behind is not None:
        more = queued.position - 1 if queued is not None else 0
        return f"waits behind {describe_ahead(behind)}" + (f", and {more} more" if more > 0 else "")
    if queued is None or queued.cause == QueuedDeployment.OTHER_DEPLOYMENT:
        return ""
    return f"{describe_queued(queued)}" + (f"; {queued.hint}" if queued.hint else "")


def _format_took(deployment: pb.Deployment, now: float) -> str:
    if deployment.completed_at:
        return format_duration(deployment.completed_at - deployment.created_at)
    return format_duration(now - deployment.created_at) if deployment.created_at else ""


def _format_stage_status(stage: pb.PipelineStage) -> str:
    return stage_status_name(stage.status).removesuffix("_YET").replace("_", " ")


def _format_stage_took(deployment: pb.Deployment, stage: pb.PipelineStage, now: float) -> str:
    passed = measure_stage(deployment, stage, now)
    return "" if passed is None else format_duration(passed)


def _get_starter(deployment: pb.Deployment) -> str:
    return deployment.trigger.commander or deployment.trigger.commit.author


def _short_hash(deployment: pb.Deployment) -> str:
    return deployment.trigger.commit.hash[:SHORT_HASH]


def _get_title(deployment: pb.Deployment) -> str:
    return deployment.trigger.commit.message.partition("\n")[0]
